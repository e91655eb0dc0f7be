"""A night: every sweep of a folder, run afresh, compared with the nights before."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flows.register import git_revision
from rpg.config.errors import ConfigError
from rpg.config.shipped import NIGHTLY
from rpg.config.sweep import Sweep, load_sweep
from rpg.report.nightly import NIGHTS, Finding, compare, markdown, measure, read_nights
from rpg.store import Layout, atomic_write_json, atomic_write_text, locks
from rpg.tasks.preparation import data_digest

ROOT = Path(__file__).resolve().parents[1]
_SWEEP = re.compile(r"nightly-.+-(\d{4}-\d\d-\d\d-[0-9a-f]{8})")
_ASIDE = ".forgotten-"


@dataclass(frozen=True)
class Night:
    """What came of a night."""

    name: str
    findings: list[Finding]
    failed: dict[str, str]
    table: Path

    @property
    def red(self) -> bool:
        return bool(self.failed) or any(finding.red for finding in self.findings)


def place(layout: Layout, folder: Path) -> Path:
    """Where the numbers of a set of sweeps are kept: a set is named by its folder, and compared with itself only."""
    return layout.home / "nightly" / _set(folder)


def _set(folder: Path) -> str:
    """Name of a set; "" of the one that ships."""
    folder = folder.resolve()
    if folder == NIGHTLY:
        return ""
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
    return name or hashlib.sha256(folder.name.encode()).hexdigest()[:8]


def plan(folder: Path, overrides: dict[str, Any]) -> tuple[str, dict[str, Sweep]]:
    """(name of tonight, label -> sweep) for every sweep file of the folder.

    Date and code version are part of every run's identity, so that no night can be made of another one's results.
    """
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not files:
        raise ConfigError(f"{folder}: no sweep files; expected a folder with *.yaml, as configs/nightly")
    night = f"{time.strftime('%Y-%m-%d')}-{code_version()}"
    return night, {
        file.stem: load_sweep(
            file,
            overrides,
            lambda spec: f"{data_digest(spec)} {night}",
            name=f"nightly-{f'{_set(folder)}-{file.stem}'.strip('-')[:36]}-{night}",
        )
        for file in files
    }


@cache
def code_version() -> str:
    """Digest of our own source: unlike a commit it also tells an edited or an installed tree from another."""
    digest = hashlib.sha256()
    for room in ("rpg", "flows"):
        for path in sorted((ROOT / room).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def forget(layout: Layout, keep: int, tonight: str) -> list[str]:
    """Remove runs and reports of all but the newest `keep` nights and tonight; returns the sweeps that went.

    What a night is compared by, its numbers and its table in nightly/, stays for ever.
    """
    of_night = {name: found[1] for name in layout.sweeps() if (found := _SWEEP.fullmatch(name))}
    kept = {tonight, *sorted(set(of_night.values()))[-keep:]}
    old = [name for name, night in of_night.items() if night not in kept]
    for name in old:
        shutil.rmtree(layout.reports(name), ignore_errors=True)
        # Aside first: what is half removed when we are killed is no sweep any more.
        layout.sweep_folder(name).rename(layout.runs / f"{_ASIDE}{name}")
    for path in layout.runs.glob(f"{_ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)
    return old


def run_night(
    layout: Layout,
    folder: Path,
    overrides: dict[str, Any],
    run: Callable[[Sweep], object],
    keep: int = NIGHTS,
) -> Night | None:
    """Run tonight's sweeps by `run`, keep their numbers and compare them; None while another night is running.

    Runs of the newest `keep` nights stay on disk, tonight's included.

    Raises:
        ConfigError: a file that cannot be used.
        StoreError: the data folder cannot be written.
    """
    kept = place(layout, folder)
    lock = locks.take(kept / ".lock", beat=True)
    if lock is None:
        return None
    with lock:
        started = time.time()
        night, sweeps = plan(folder, overrides)
        for sweep in sweeps.values():
            run(sweep)
        folders = {
            label: [layout.run(sweep.spec.name, one.folder) for one in sweep.runs]
            for label, sweep in sweeps.items()
        }
        failed = {
            f"{label} / {one.name}": (one.read_failed() or {}).get("error", "not finished")
            for label, members in folders.items()
            for one in members
            if not one.done_path.exists()
        }
        values = measure(folders)
        before = read_nights(kept, night)
        findings = compare(values, [earlier["values"] for earlier in before])
        atomic_write_json(
            kept / f"{night}.json",
            {
                "night": night,
                "started": started,
                "revision": git_revision(),
                "values": values,
                "failed": failed,
            },
        )
        table = kept / f"{night}.md"
        atomic_write_text(table, markdown(night, findings, failed, len(before)))
        forget(layout, keep, night)
        return Night(night, findings, failed, table)
