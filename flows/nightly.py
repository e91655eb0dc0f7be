"""A night: every sweep of a folder, run from scratch and compared with earlier nights."""

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flows.drill import run_drill
from flows.other_code import NightOf, blame
from flows.prefect.server import prefect_api
from flows.prefect.service import ServerError
from rpg import next_steps
from rpg.config.errors import ConfigError
from rpg.config.load import read_mapping
from rpg.config.run_spec import RunSpec
from rpg.config.shipped import NIGHTLY
from rpg.config.sweep_spec import Sweep, load_sweep
from rpg.planning.preflight import missing_packages
from rpg.report import nightly_bands
from rpg.report.nightly_bands import NIGHTS, Number, judge, markdown, measure, read_nights
from rpg.report.run_digests import environment, ledger, reference, run_digest
from rpg.store import Layout, RunFolder, atomic_write_json, atomic_write_text, locks
from rpg.store.atomic_files import read_json_object
from rpg.store.current import current_runs
from rpg.store.draws import SETTINGS
from rpg.study.spec import Study, load_study, specs_of
from rpg.system import provenance
from rpg.system.provenance import ROOT
from rpg.tasks.preparation import data_digest

_SWEEP = re.compile(r"(nightly-.+-(\d{4}-\d\d-\d\d-[0-9a-f]{8}))(\.tuning|\.[0-9a-f]{8})?")
_ASIDE = ".forgotten-"


@dataclass(frozen=True)
class Night:
    """The outcome of a night."""

    name: str
    findings: list[Number]
    failed: dict[str, str]
    table: Path
    said: str
    bits: bool

    @property
    def failures(self) -> list[str]:
        """What makes it red, a line each."""
        failed = [f"{name}: {reason}" for name, reason in self.failed.items()]
        numbers = [str(finding) for finding in self.findings if finding.red]
        return [*failed, *([self.said] if self.bits else []), *numbers]

    @property
    def red(self) -> bool:
        return bool(self.failures)


def place(layout: Layout, folder: Path) -> Path:
    """Where the numbers of a set of sweeps are kept: a set is named by its folder and compared only
    with itself."""
    return layout.home / "nightly" / _set(folder)


def _set(folder: Path) -> str:
    """Name of a set; "" for the shipped one."""
    folder = folder.resolve()
    if folder == NIGHTLY:
        return ""
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
    return name or hashlib.sha256(folder.name.encode()).hexdigest()[:8]


def plan(folder: Path, overrides: dict[str, Any]) -> tuple[str, dict[str, Sweep | Study]]:
    """(name of tonight, label -> sweep or study) for every file of the folder.

    Date and code version are part of every run's identity, so that no night can reuse another one's
    results.
    """
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not files:
        raise ConfigError(f"{folder}: no sweep files; expected a folder with *.yaml")
    night = f"{time.strftime('%Y-%m-%d', time.gmtime())}-{code_version()}"  # UTC, as the schedule
    sweeps: dict[str, Sweep | Study] = {}
    for file in files:
        text = f"{_set(folder)}-{file.stem}".strip("-")
        if len(text) > 27:  # the beginnings of two may be one
            text = f"{text[:18].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        name = f"nightly-{text}-{night}"
        if "tune" in read_mapping(file):
            study = load_study(file)
            spec = study.spec.model_copy(
                update={"name": name, "set": {**study.spec.set, **overrides}}
            )
            sweeps[file.stem] = replace(study, spec=spec, night=night)
        else:
            sweeps[file.stem] = load_sweep(file, overrides, _tonight(night), name=name)
    return night, sweeps


def _run(
    planned: Sweep | Study,
    overrides: dict[str, Any],
    night: str,
    layout: Layout,
    run: Callable[[Sweep | Study], object],
) -> None:
    """Run a sweep or study, and what its file wants done to it on purpose."""
    if isinstance(planned, Study):
        run(planned)
    else:
        run_drill(planned, _before_edit(planned, overrides, night), layout, run)


def _before_edit(sweep: Sweep, overrides: dict[str, Any], night: str) -> Sweep | None:
    """The earlier version of a sweep file that is edited during the night."""
    if sweep.spec.drill is None or not sweep.spec.drill.edited_from:
        return None
    values = {**overrides, **sweep.spec.drill.edited_from}
    return load_sweep(sweep.path, values, _tonight(night), name=sweep.spec.name)


def _tonight(night: str) -> Callable[[RunSpec], str]:
    """The digest of a run's data, with the night: no night reuses another one's runs."""
    return lambda spec: f"{data_digest(spec)} {night}"


def code_version() -> str:
    """Digest of our own source: unlike a commit it also distinguishes edited and installed
    trees."""
    return provenance.code(provenance.below("rpg", "flows"))


def _audit() -> dict[str, dict[str, str]]:
    """Digests of the audit's table in the smallest worlds (rpg.auditing), by loss and study."""
    from rpg.auditing import Settings, audit_catalogue  # noqa: PLC0415 - PyTorch: only after the trainings
    from rpg.report.statistics_digests import digest  # noqa: PLC0415 - pandas: no form of `rpg serve` has a use for it

    smallest = Settings(vocabulary=2, length=2, seeds=(0,), drifts=(0.0, 0.4))
    report = audit_catalogue(peers=False, settings=smallest)
    losses = {result.name: digest(result.rows()) for result in (*report.losses, *report.levels)}
    studies = {
        f"{row.study} / {row.name} / {row.setting}": digest(asdict(row)) for row in report.studies
    }
    return {"audit": losses | studies}


def forget(layout: Layout, keep: int, tonight: str) -> list[str]:
    """Remove runs and reports of all but the newest `keep` nights and tonight; returns the removed
    sweeps.

    The numbers and tables of all nights, in nightly/, stay for ever.
    """
    night_of = {}
    for name in layout.sweeps():
        match = _SWEEP.fullmatch(name)
        if match:
            night_of[name] = match
    kept = {tonight, *sorted({match[2] for match in night_of.values()})[-keep:]}
    old = [name for name, match in night_of.items() if match[2] not in kept]
    for name in old:
        for folder in (layout.reports(name), layout.study_folder(night_of[name][1])):
            shutil.rmtree(folder, ignore_errors=True)
        # Renamed first: if we are killed, what is half removed is no sweep any more.
        layout.sweep_folder(name).rename(layout.runs / f"{_ASIDE}{name}")
    for path in layout.runs.glob(f"{_ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)
    return old


def _draw_anew(layout: Layout, night: str) -> None:
    """Remove the stored samples of earlier nights: tonight's models may be the same, and then none
    would be drawn."""
    for path in (layout.home / "samples").glob(f"*/{SETTINGS}"):
        drawn_for = str(read_json_object(path).get("of"))
        if drawn_for.startswith("runs/nightly-") and night not in drawn_for:
            shutil.rmtree(path.parent, ignore_errors=True)


def run_night(
    layout: Layout,
    folder: Path,
    overrides: dict[str, Any],
    run: Callable[[Sweep | Study], object],
    keep: int = NIGHTS,
    only: Collection[str] = (),
    night_of: NightOf | None = None,
) -> Night | None:
    """Run tonight's sweeps and studies with `run`, keep their numbers and compare them; None while
    another night is running. One is left out if a package that it needs is not installed, which is
    red if the night before had it.

    `only`: of those with these labels; `night_of`: runs a night of other code, to find the commit
    that changed the bits. Runs of the newest `keep` nights, including tonight, stay on disk.
    ConfigError names a file that cannot be used.
    """
    kept = place(layout, folder)
    lock = locks.take(kept / ".lock", beat=True)
    if lock is None:
        return None
    with lock:
        started = time.time()
        night, sweeps = plan(folder, overrides)
        sweeps = {label: sweep for label, sweep in sweeps.items() if not only or label in only}
        missing = {label: missing_packages(specs_of(sweep)) for label, sweep in sweeps.items()}
        sweeps = {label: sweep for label, sweep in sweeps.items() if not missing[label]}
        _draw_anew(layout, night)
        with ExitStack() as server:
            # One for all sweeps: a process stays connected to the first one that it has used. If
            # there is none, each sweep says so, and the night is red.
            with suppress(ServerError):
                server.enter_context(prefect_api(layout.home))
            for sweep in sweeps.values():
                _run(sweep, overrides, night, layout, run)
        # Of a study: <name>.<digest of what is reported>, and <name>.tuning.
        names = {
            label: [
                name for name in layout.sweeps() if f"{name}.".startswith(f"{sweep.spec.name}.")
            ]
            for label, sweep in sweeps.items()
        }
        runs = [
            (at, run) for at in names for name in names[at] for run in current_runs(layout, name)
        ]
        reported: dict[str, list[RunFolder]] = {label: [] for label in names}
        failed = {}
        digests = {}
        for label, member in runs:
            if not member.sweep.endswith(".tuning"):
                reported[label].append(member)
            if member.done_path.exists():
                manifest = member.read_manifest()
                digests[f"{label} / {manifest['variant']} / seed {manifest['seed']}"] = run_digest(
                    member
                )
            else:
                failed[f"{label} / {member.name}"] = (member.read_failed() or {}).get(
                    "error", "not finished"
                )
        before = read_nights(kept, night)
        failed |= {label: "nothing was run" for label, members in reported.items() if not members}
        from rpg.report.statistics_digests import statistics  # noqa: PLC0415 - as above

        values, spread = measure(reported)
        record: dict[str, Any] = {
            "night": night,
            "started": started,
            "revision": provenance.git_revision(),
            "code": code_version(),
            "environment": environment(provenance.versions(), provenance.machine()),
            "values": values,
            "spread": spread,
            "digests": digests,
            "statistics": statistics(layout, {label: of[0] for label, of in names.items() if of})
            | _audit(),
            "failed": failed,
        }
        findings, said, bits = judge(record, before)
        said += "".join(
            f"; {label} left out: {', '.join(why)}" for label, why in missing.items() if why
        )
        path = kept / f"{night}.json"
        earlier = read_json_object(path) if path.exists() else {}
        again = "digests" in earlier and ledger(record, earlier).is_equal
        if again and "accepted" in earlier:
            record["accepted"], bits = earlier["accepted"], False
        elif bits and not failed and (settled := reference(before)):
            earlier_cause = again and earlier.get("cause")
            cause, is_environment = record["cause"] = earlier_cause or blame(
                record, settled, ROOT, night_of
            )
            said = f"{said}; {cause}"
            bits = not is_environment
        atomic_write_json(path, {**record, "bits": bits, "said": said})
        table = kept / f"{night}.md"
        atomic_write_text(table, markdown(night, findings, failed, len(before), said, bits))
        forget(layout, keep, night)
        return Night(night, findings, failed, table, said, bits)


def accept(layout: Layout, folder: Path, why: str) -> str:
    """Make the newest night of a set the one that later nights are compared with; returns its name.

    UserError if no reason is given, or the newest night cannot be accepted; ConfigError if there is
    none.
    """
    kept = place(layout, folder)
    if not read_nights(kept, ""):
        run_one = next_steps.command("nightly", str(folder), layout=layout)
        raise ConfigError(f"{kept}: no night yet; run one with: {run_one}")
    return nightly_bands.accept(kept, why)
