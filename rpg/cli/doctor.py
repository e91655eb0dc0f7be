"""The command `rpg doctor`: is everything here that a sweep needs?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpg.cli.app import Home, Set, app, say

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec
    from rpg.store import Layout


@app.command(
    epilog="Examples: rpg doctor · rpg doctor configs/sweeps/quickstart.yaml · rpg doctor --backend verl · "
    "rpg doctor --backend verl --ray http://head:8265"
)
def doctor(
    file: Annotated[
        Path | None, typer.Argument(help="A sweep or run file, to check what its runs need as well.")
    ] = None,
    set_: Set = [],
    backend: Annotated[
        str | None, typer.Option("--backend", help="Also check what runs on this back end need here: verl.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", help="With --backend verl: a Ray cluster to look at, e.g. http://head:8265."),
    ] = None,
    home: Home = None,
) -> int:
    """Check that everything a sweep needs is here: Python, packages, cores, a writable data folder; with FILE its data,
    models, gold answers, longest prompts, GPUs, ports and disk: all that is wrong in one list, before anything starts.

    With --backend verl also what verl needs: versions, flash attention, GPUs, shared memory, network, a Ray cluster.
    """
    import os
    import shutil
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    from rpg.cli.missing_packages import install_command
    from rpg.config.load import parse_assignments
    from rpg.store import Layout

    if backend not in (None, "verl"):
        raise typer.BadParameter(f"{backend!r}; accepted: verl", param_hint="--backend")
    bad = 0

    def line(good: bool | None, text: str) -> None:
        nonlocal bad
        bad += good is False
        word, style = {True: ("ok ", None), None: ("-- ", "yellow"), False: ("NO ", "bold red")}[good]
        say(f"{word} {text}", style)

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
    if backend == "verl":
        for good, text in _of_verl(file, parse_assignments(set_), ray):
            line(good, text)
    if file is not None:
        for text in _of_file(file, parse_assignments(set_), Layout.at(home)):
            line(False, text)
        if not bad:
            line(True, f"{file}: nothing is wrong that can be seen before it starts")
    return 1 if bad else 0


def _of_verl(file: Path | None, overrides: dict[str, Any], ray: str | None) -> list[tuple[bool | None, str]]:
    """What verl needs, for the runs of a file that train on it, else for a run with all GPUs of this machine."""
    from rpg.backends.verl.readiness import facts, judge, of_cluster
    from rpg.cli.data_digest import DigestIfPresent
    from rpg.config.backend import LocalRay, RayAddress, VerlBackend, VllmRollout
    from rpg.config.sweep_spec import load_file

    here = facts()
    sections: list[VerlBackend] = []
    if file is not None:
        runs = load_file(file, overrides, DigestIfPresent()).runs
        sections = [run.spec.backend for run in runs if isinstance(run.spec.backend, VerlBackend)]
    elif here.gpus:
        gpus, place = len(here.gpus), RayAddress(type="address", address=ray) if ray else LocalRay()
        rollout = VllmRollout(type="vllm")
        sections = [VerlBackend(type="verl", device="cuda", gpus_per_node=gpus, rollout=rollout, ray=place)]
    if not sections:
        sections = [VerlBackend(type="verl")]
    found = [one for section in sections for one in judge(section, here)]
    for section in sections:
        address = ray or getattr(section.ray, "address", None)
        found += of_cluster(section, address) if address else []
    return list(dict.fromkeys((one.good, one.text) for one in found))


def _of_file(file: Path, overrides: dict[str, Any], layout: Layout) -> list[str]:
    """What is wrong with the runs of a file: paths, packages, lengths, disk, GPUs, ports, and its problems themselves."""
    from flows.machine.slots import machine, need_of
    from rpg.cli.data_digest import DigestIfPresent
    from rpg.config.sweep_spec import load_file
    from rpg.models.initial_policy import check_lengths
    from rpg.planning.preflight import preflight, unreachable
    from rpg.tasks import DataError, load_problems

    specs = [run.spec for run in load_file(file, overrides, DigestIfPresent()).runs]
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
