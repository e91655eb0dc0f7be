"""Is tonight like the nights before? Robust bands around the numbers of small reproductions.

A night is a file `nightly/<date>-<code>.json` in the data folder, `nightly/<set>/<date>-<code>.json` of a set of one's
own: {"night", "started", "revision", "code", "environment", "values", "spread", "digests", "failed", "bits", "said"}.
`values` maps `sweep / variant / metric` to the mean over seeds, `spread` to its standard error from those seeds,
`digests` every run to rpg.report.run_digests.run_digest; `bits` is whether they changed, `said` the sentence about that.
A change that was meant has "accepted": {"why", "user", "time"}, and what comes after is compared with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.metrics import METRICS, Band
from rpg.report.run_digests import is_settled, verdict
from rpg.store import RunFolder, StoreError
from rpg.store.atomic_files import read_json_object
from rpg.store.samples import read_eval

NIGHTS = 30
ENOUGH = 3
"""Nights before a band is drawn, where the seeds of a single one do not say how far a mean can move."""
WIDTH = 5.0
"""Half the band in robust standard deviations: 1.4826 times the median absolute deviation."""
SEEDS_WIDTH = 4.0
"""Half the band in standard errors of the difference of two means over independent seeds."""
ALREADY = "the night before is still running"


@dataclass(frozen=True)
class Finding:
    """One number of tonight. `off` is by how much it is outside its band: 0 inside, None when there is no band;
    `noted` is a number that is never red, because a busy machine moves it as well (seconds).
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
        """One word for what is outside its band: red, slower, or nothing."""
        return "red" if self.red else "slower" if self.outside else ""

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: missing tonight"
        if self.off is None or self.low is None or self.high is None:
            return f"{self.name}: {self.value:.4g} (no band yet)"
        where = "inside" if not self.off else f"{abs(self.off):.4g} {'above' if self.off > 0 else 'below'}"
        return f"{self.name}: {self.value:.4g}, band {self.low:.4g} .. {self.high:.4g}, {where}"


def measure(runs: Mapping[str, Sequence[RunFolder]]) -> dict[str, float]:
    """`sweep / variant / metric` -> mean over seeds, of finished runs. `runs` maps the sweep's label to its folders.

    `accuracy` is the mean over benchmarks at the last checkpoint; `seconds_step` the median over steps; the others
    are of the last step.
    """
    return {name: statistics.fmean(values) for name, values in _by_seed(runs).items()}


def spread(runs: Mapping[str, Sequence[RunFolder]]) -> dict[str, float]:
    """The same names -> standard error of the mean over seeds, where there are at least two."""
    return {
        name: statistics.stdev(values) / math.sqrt(len(values))
        for name, values in _by_seed(runs).items()
        if len(values) > 1
    }


def _by_seed(runs: Mapping[str, Sequence[RunFolder]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for sweep, members in runs.items():
        for folder in members:
            if not folder.done_path.exists():
                continue
            manifest, rows = folder.read_manifest(), folder.read_metrics().rows
            values = {name: rows[-1].get(name) for name, metric in METRICS.items() if metric.nightly}
            values["accuracy"] = _accuracy(folder, manifest)
            values["seconds_step"] = statistics.median(row.get("seconds_step", math.nan) for row in rows)
            for name, value in values.items():
                if value is not None:
                    found.setdefault(f"{sweep} / {manifest['variant']} / {name}", []).append(float(value))
    return found


def compare(
    tonight: Mapping[str, float],
    before: Sequence[Mapping[str, float]],
    spreads: Sequence[Mapping[str, float]] = (),
) -> list[Finding]:
    """Tonight's numbers against those of earlier nights (the newest NIGHTS count), the worst first.

    `spreads` are the standard errors over seeds of the same earlier nights.
    """
    before, spreads = before[-NIGHTS:], spreads[-NIGHTS:]
    names = dict.fromkeys([*tonight, *(name for night in before for name in night)])
    findings = []
    for name in names:
        earlier = [night[name] for night in before if math.isfinite(night.get(name, math.nan))]
        errors = [night[name] for night in spreads if math.isfinite(night.get(name, math.nan))]
        if name.rpartition(" / ")[2].startswith("seconds_"):
            errors = []  # seeds say nothing about how a machine's speed moves from night to night
        findings.append(_finding(name, tonight.get(name), earlier, errors))
    return sorted(findings, key=lambda f: (not f.red, not f.outside, f.name))


def band(metric: str, values: Sequence[float], errors: Sequence[float] = ()) -> tuple[float, float]:
    """(low, high) around the median of earlier nights: as wide as they scatter, as means over so many seeds may
    differ by chance (`errors`, standard errors over seeds), and as the metric's own floor.
    """
    middle = statistics.median(values)
    scatter = 1.4826 * statistics.median(abs(v - middle) for v in values)
    chance = math.sqrt(2 * statistics.fmean(e * e for e in errors)) if errors else 0.0
    declared = METRICS.get(metric)
    floor = (declared and declared.nightly) or Band(0.25, 0.0)  # a night may hold numbers of older versions
    half = max(WIDTH * scatter, SEEDS_WIDTH * chance, floor.part * abs(middle), floor.least)
    return (-math.inf if floor.only_above else middle - half, middle + half)


def _finding(name: str, value: float | None, earlier: Sequence[float], errors: Sequence[float]) -> Finding:
    if not earlier or (len(earlier) < ENOUGH and not errors):
        return Finding(name, value, None, None, None)
    metric = name.rpartition(" / ")[2]
    low, high = band(metric, earlier, errors)
    if value is None or not math.isfinite(value):
        return Finding(name, value, low, high, math.inf)
    declared = METRICS.get(metric)
    noted = bool(declared and declared.nightly and declared.nightly.never_red)
    return Finding(name, value, low, high, value - high if value > high else min(value - low, 0.0), noted)


def comparable(nights: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The nights whose bits are settled, from the newest accepted one on: there bands begin anew."""
    newest = max((i for i, night in enumerate(nights) if night.get("accepted")), default=0)
    return [night for night in nights[newest:] if is_settled(night)]


def judge(tonight: Mapping[str, Any], nights: Sequence[Mapping[str, Any]]) -> tuple[list[Finding], str, bool]:
    """(numbers against their bands, what is said about the bits, whether those are red)."""
    before = comparable(nights)
    findings = compare(
        tonight["values"],
        [night["values"] for night in before],
        [night.get("spread", {}) for night in before],
    )
    return findings, *verdict(tonight, nights)


def read_nights(folder: Path, but: str) -> list[dict[str, Any]]:
    """The nights on disk, oldest first, without the one named `but` and without files that cannot be read."""
    nights = []
    for path in folder.glob("*.json"):
        try:
            night = read_json_object(path)
        except StoreError:
            continue
        if night.get("night") != but and isinstance(night.get("values"), dict) and "started" in night:
            nights.append(night)
    return sorted(nights, key=lambda night: night["started"])


def markdown(
    night: str,
    findings: Sequence[Finding],
    failed: Mapping[str, str],
    nights: int,
    said: str = "",
    bits: bool = False,
) -> str:
    """The table of a night."""
    red = sum(f.red for f in findings) + len(failed)
    parts = [*(["bits changed"] if bits else []), *([f"{red} out of band"] if red else [])]
    lines = [f"# Night {night}: {', '.join(parts) or 'as before'}", ""]
    lines += [f"Compared with {min(nights, NIGHTS)} earlier nights.", ""]
    if said:
        lines += [f"- {'**red**: ' if bits else ''}{said}".replace("|", "\\|")]
    lines += [f"- **failed**: {name}: {why}" for name, why in failed.items()]
    slower = sum(f.mark == "slower" for f in findings)
    if slower:
        lines += [
            f"- {slower} of {len(findings)} numbers slower than usual, which a busy machine is reason enough for"
        ]
    lines += ["", "| | sweep / variant / metric | tonight | band | off by |", "|---|---|---|---|---|"]
    for f in findings:
        shown = "missing" if f.value is None else f"{f.value:.4g}"
        bounds = "none yet" if f.low is None or f.high is None else f"{f.low:.4g} .. {f.high:.4g}"
        name = f.name.replace("|", "\\|")
        lines.append(
            f"| {'RED' if f.red else f.mark} | {name} | {shown} | {bounds} "
            f"| {f'{f.off:+.4g}' if f.outside else ''} |"
        )
    return "\n".join(lines) + "\n"


def _accuracy(folder: RunFolder, manifest: Mapping[str, Any]) -> float | None:
    means = []
    for benchmark in manifest["benchmarks"]:
        samples = read_eval(folder, benchmark, manifest["steps"]).column("correct").to_pylist()
        means.append(sum(samples) / len(samples))
    return statistics.fmean(means) if means else None
