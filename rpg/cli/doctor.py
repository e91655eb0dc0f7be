"""The command `rpg doctor`: is everything here that a sweep needs?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpg.cli.app import Home, Set, app, say

if TYPE_CHECKING:
    from rpg.config.run import RunSpec
    from rpg.store import Layout


@app.command(epilog="Examples: rpg doctor · rpg doctor configs/sweeps/quickstart.yaml")
def doctor(
    file: Annotated[
        Path | None, typer.Argument(help="A sweep or run file, to check what its runs need as well.")
    ] = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
) -> int:
    """Check that everything a sweep needs is here: Python, packages, cores, a writable data folder; with FILE its data,
    models, gold answers, longest prompts, GPUs, ports and disk: all that is wrong in one list, before anything starts.
    """
    import os
    import shutil
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    from rpg.cli.extras import install_command
    from rpg.config.load import parse_assignments
    from rpg.store import Layout

    bad = 0

    def line(good: bool, text: str) -> None:
        nonlocal bad
        bad += not good
        say(f"{'ok ' if good else 'NO '} {text}", None if good else "bold red")

    line((3, 11) <= sys.version_info[:2] <= (3, 13), f"Python {sys.version.split()[0]} (3.11 to 3.13 wanted)")
    for name in (
        "torch",
        "transformers",
        "safetensors",
        "schedulefree",
        "prefect",
        "duckdb",
        "altair",
        "streamlit",
    ):
        try:
            line(True, f"{name} {version(name)}")
        except PackageNotFoundError:
            line(False, f"{name} is not installed; install it with: {install_command(name)}")
    from rpg.cli.execution import cores

    line(True, f"{cores()} cores: that many trainings at a time")
    folder = Layout.at(home).home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free / 2**30
        line(free > 1, f"data folder {folder} is writable, {free:.0f} GB free")
    except OSError as error:
        line(False, f"data folder {folder}: {error.strerror}; set RPG_HOME or --home to a writable folder")
    url = os.environ.get("PREFECT_API_URL")
    line(
        True, f"Prefect server: {url}" if url else "Prefect server: a private one on loopback for each sweep"
    )
    if file is not None:
        for text in _of_file(file, parse_assignments(set_), Layout.at(home)):
            line(False, text)
        if not bad:
            line(True, f"{file}: nothing is wrong that can be seen before it starts")
    return 1 if bad else 0


def _of_file(file: Path, overrides: dict[str, Any], layout: Layout) -> list[str]:
    """What is wrong with the runs of a file: paths, packages, lengths, disk, GPUs, ports, and its problems themselves."""
    from flows.slots import machine, need_of
    from rpg.cli.lenient import LenientDigest
    from rpg.config.sweep import load_file
    from rpg.models.initial import check_lengths
    from rpg.planning.preflight import preflight, unreachable
    from rpg.tasks import DataError, load_problems

    specs = [run.spec for run in load_file(file, overrides, LenientDigest()).runs]
    lines = preflight(specs, layout)
    here = machine()
    for spec in specs:
        need = need_of(spec.backend, here) if spec.backend.device == "cuda" else None
        if need is not None and (need.kind != "gpu" or need.count > len(here.gpus)):
            wanted = spec.backend.workers_here() or 1
            lines.append(f"backend: wants {wanted} GPUs, and this machine shows {len(here.gpus)}")
    lines += unreachable(specs) + [
        f"backend.device: {why}" for why in {_no_metal(spec) for spec in specs} if why
    ]
    splits = {}
    for task in {spec.task.model_dump_json(): spec.task for spec in specs}.values():
        try:
            splits[task.model_dump_json()] = found = load_problems(task)
            lines += found.notes
        except DataError as error:
            lines.append(str(error))
    alike = {
        (spec.task.model_dump_json(), spec.model.model_dump_json(), spec.rollout.max_prompt_tokens): spec
        for spec in specs
    }
    for (task_json, *_), spec in alike.items():
        too_long = check_lengths(spec, splits[task_json], layout.home) if task_json in splits else None
        lines += [too_long] if too_long else []
    return list(dict.fromkeys(lines))


def _no_metal(spec: RunSpec) -> str:
    """Why a run that asks for the GPU of a Mac has none; empty where it asks for none, or has it."""
    if spec.backend.device != "mps":
        return ""
    from rpg.models.device import missing

    return missing("mps")
