"""Robust bands around the numbers of nightly reproductions: is tonight like the nights before?

A night is a file `nightly/<date>-<code>.json` in the data folder, or
`nightly/<set>/<date>-<code>.json` for a custom set: {"night", "started", "revision", "code",
"environment", "values", "spread", "digests", "statistics", "failed", "bits", "said"}. `values` maps
`sweep / variant / metric` to the mean over seeds, `spread` to its standard error over those seeds,
`digests` every run to rpg.report.run_digests.run_digest; `statistics` are
rpg.report.statistics_digests; `bits` is whether they changed or there are fewer, `said` the
sentence about it. An intended change has "accepted": {"why", "user", "time"}; later nights are
compared with it.
"""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.errors import UserError, plural
from rpg.metrics import METRICS, Band
from rpg.report import format as written
from rpg.report.run_digests import is_settled, named_as, verdict
from rpg.store import RunFolder, StoreError, atomic_write_json, locks
from rpg.store.atomic_files import read_json_object
from rpg.store.samples import accuracy

NIGHTS = 30
ENOUGH = 3
"""Nights needed for a band, unless the seeds of a single night show how far a mean can move."""
WIDTH = 5.0
"""Half the band in robust standard deviations: 1.4826 times the median absolute deviation."""
SEEDS_WIDTH = 4.0
"""Half the band in standard errors of the difference of two means over independent seeds."""
ALREADY = "the previous night is still running"


@dataclass(frozen=True)
class Number:
    """One of tonight's numbers. `off`: how far it is outside its band (0 inside, None without a
    band). `noted`: never red, because it also depends on the load of the machine (seconds).
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    off: float | None
    noted: bool = False

    @property
    def outside(self) -> bool:
        return self.off is not None and self.off != 0

    @property
    def red(self) -> bool:
        return self.outside and not self.noted

    @property
    def mark(self) -> str:
        """One word for a number outside its band (red, slower), else the empty string."""
        if self.red:
            return "red"
        return "slower" if self.outside else ""

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: missing tonight"
        if self.off is None or self.low is None or self.high is None:
            return f"{self.name}: {self.shown} (no band yet)"
        where = "inside it"
        if not math.isfinite(self.off):
            where = "outside it"
        elif self.off:
            distance = self.change(self.off)
            where = f"{distance[1:]} {'above' if self.off > 0 else 'below'} it"
        return f"{self.name}: {self.shown}, band {self.band}, {where}"

    @property
    def is_accuracy(self) -> bool:
        return self.name.endswith("accuracy")

    @property
    def shown(self) -> str:
        """Tonight's value."""
        if self.value is None:
            return "missing"
        return "not finite" if math.isnan(self.value) else self.text(self.value)

    @property
    def band(self) -> str:
        """`[0.44, 0.56]`, or `at most 9.5`; "" without a band."""
        if self.high is not None and self.low == -math.inf:
            return f"at most {self.text(self.high)}"
        return written.interval(self.low, self.high, self.text)

    def text(self, value: float) -> str:
        """A value of this number."""
        return written.accuracy(value) if self.is_accuracy else written.measured(value)

    def change(self, difference: float) -> str:
        """A difference of two values of this number."""
        if self.is_accuracy:
            return f"{written.points(difference)} points"
        return written.change(difference)


def measure(runs: Mapping[str, Sequence[RunFolder]]) -> tuple[dict[str, float], dict[str, float]]:
    """`sweep / variant / metric` -> mean over the seeds of finished runs; and its standard error,
    if there are at least two. `runs`: label of a sweep -> its run folders.

    `accuracy` is the mean over benchmarks at the last checkpoint, `seconds_step` the median over
    steps; all other metrics are those of the last step.
    """
    by_seed: dict[str, list[float]] = {}
    for sweep, members in runs.items():
        for folder in members:
            if not folder.done_path.exists():
                continue
            manifest = folder.read_manifest()
            rows = folder.read_metrics()
            if not rows:
                continue
            values = {
                name: rows[-1].get(name) for name, metric in METRICS.items() if metric.nightly
            }
            values["accuracy"] = accuracy(folder, manifest["benchmarks"], manifest["steps"])
            values["seconds_step"] = statistics.median(
                row.get("seconds_step", math.nan) for row in rows
            )
            for name, value in values.items():
                if value is not None:
                    by_seed.setdefault(f"{sweep} / {manifest['variant']} / {name}", []).append(
                        float(value)
                    )
    several = {
        at: values
        for at, values in by_seed.items()
        if len(values) > 1 and math.isfinite(sum(values))
    }
    errors = {
        name: statistics.stdev(values) / math.sqrt(len(values)) for name, values in several.items()
    }
    return {name: statistics.fmean(values) for name, values in by_seed.items()}, errors


Values = Mapping[str, float]


def compare(
    tonight: Values, before: Sequence[Values], spreads: Sequence[Values] = ()
) -> list[Number]:
    """Tonight's numbers against those of the newest NIGHTS earlier nights, the worst first.

    `spreads`: the standard errors over seeds of the same earlier nights.
    """
    before = before[-NIGHTS:]
    spreads = spreads[-NIGHTS:]
    names = dict.fromkeys([*tonight, *(before[-1] if before else ())])
    numbers = []
    for name in names:
        earlier = [night[name] for night in before if math.isfinite(night.get(name, math.nan))]
        errors = [night[name] for night in spreads if math.isfinite(night.get(name, math.nan))]
        if name.rpartition(" / ")[2].startswith("seconds_"):
            errors = []  # seeds say nothing about how the speed of a machine varies between nights
        numbers.append(_judged(name, tonight.get(name), earlier, errors))
    return sorted(numbers, key=lambda number: (not number.red, not number.outside, number.name))


def band(metric: str, values: Sequence[float], errors: Sequence[float] = ()) -> tuple[float, float]:
    """(low, high) around the median of earlier nights. The half-width is the largest of three: the
    scatter of these nights, the chance difference of means over seeds (`errors`: their standard
    errors), and the floor that the metric declares.
    """
    middle = statistics.median(values)
    scatter = 1.4826 * statistics.median(abs(v - middle) for v in values)
    chance = math.sqrt(2 * statistics.fmean(e * e for e in errors)) if errors else 0.0
    declared = METRICS.get(metric)
    # An older version may have stored other metrics.
    floor = (declared and declared.nightly) or Band(0.25, 0.0)
    half = max(WIDTH * scatter, SEEDS_WIDTH * chance, floor.part * abs(middle), floor.least)
    return (-math.inf if floor.only_above else middle - half, middle + half)


def _judged(
    name: str, value: float | None, earlier: Sequence[float], errors: Sequence[float]
) -> Number:
    if not earlier or (len(earlier) < ENOUGH and not errors):
        return Number(name, value, None, None, None)
    metric = name.rpartition(" / ")[2]
    low, high = band(metric, earlier, errors)
    if value is None or not math.isfinite(value):
        return Number(name, value, low, high, math.inf)
    declared = METRICS.get(metric)
    noted = bool(declared and declared.nightly and declared.nightly.never_red)
    return Number(
        name, value, low, high, value - high if value > high else min(value - low, 0.0), noted
    )


def comparable(nights: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The nights with settled bits, from the newest accepted night on, where bands start anew."""
    newest = max((i for i, night in enumerate(nights) if night.get("accepted")), default=0)
    return [night for night in nights[newest:] if is_settled(night)]


def judge(
    tonight: Mapping[str, Any], nights: Sequence[Mapping[str, Any]]
) -> tuple[list[Number], str, bool]:
    """(numbers against their bands, a sentence about the bits, whether the bits are red)."""
    before = [named_as(tonight, night) for night in comparable(nights)]
    spreads = [night.get("spread", {}) for night in before]
    numbers = compare(tonight["values"], [night["values"] for night in before], spreads)
    return numbers, *verdict(tonight, nights)


def read_nights(folder: Path, but: str) -> list[dict[str, Any]]:
    """The nights on disk, oldest first, except the one named `but`, unreadable files and those of a
    clock that was ahead."""
    nights = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(StoreError):
            night = read_json_object(path)
            over = night.get("started", math.inf) <= time.time()
            if night.get("night") != but and isinstance(night.get("values"), dict) and over:
                nights.append(night)
    return sorted(nights, key=lambda night: night["started"])


def accept(folder: Path, why: str) -> str:
    """Make the newest night of a set's folder the one that later nights are compared with; returns
    its name.

    Raises UserError: no reason is given, or runs of that night failed.
    """
    if not why.strip():
        raise UserError("--why: say in a sentence why the numbers were meant to change")
    newest = read_nights(folder, "")[-1]
    failed = newest.get("failed")
    if failed:
        raise UserError(
            f"night {newest['night']}: {len(failed)} runs failed; "
            "only a night whose runs are all done can be accepted"
        )
    accepted = {"why": why.strip(), "user": locks.user(), "time": time.time()}
    atomic_write_json(folder / f"{newest['night']}.json", {**newest, "accepted": accepted})
    return str(newest["night"])


def markdown(
    night: str,
    numbers: list[Number],
    failed: dict[str, str],
    nights: int,
    said: str = "",
    bits: bool = False,
) -> str:
    red = sum(number.red for number in numbers)
    usual = "as before" if nights else "the first night"
    parts = [said.partition(" since ")[0]] if bits else []
    if failed:
        parts.append(f"{plural(len(failed), 'run')} failed")
    if red:
        parts.append(f"{red} of {len(numbers)} numbers outside their bands")
    lines = [f"# Night {night}: {', '.join(parts) or usual}", ""]
    compared = f"Compared with {plural(min(nights, NIGHTS), 'earlier night')}."
    if nights:
        compared += " A number's band is the range that those nights lead one to expect."
    lines += [compared, ""]
    if said:
        lines += [f"- {'**red**: ' if bits else ''}{said}".replace("|", "\\|")]
    lines += [f"- **failed**: {name}: {why}" for name, why in failed.items()]
    slower = sum(number.mark == "slower" for number in numbers)
    if slower:
        lines += [
            f"- slower than usual: {slower} of {len(numbers)} numbers; a busy machine may "
            "be the reason"
        ]
    lines += [
        "",
        "| | sweep / variant / metric | tonight | band | off by |",
        "|---|---|---|---|---|",
    ]
    for number in numbers:
        name = number.name.replace("|", "\\|")
        off = number.change(number.off) if number.off else ""
        mark = "RED" if number.red else number.mark
        lines.append(f"| {mark} | {name} | {number.shown} | {number.band or 'none yet'} | {off} |")
    return "\n".join(lines) + "\n"
