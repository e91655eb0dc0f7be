"""The command `rpg doctor`: whether this machine has what a sweep needs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rpg.cli.app import Home, OptionalFile, Set, app, layout_at, say
from rpg.cli.execution import cores
from rpg.cli.missing_packages import command_for
from rpg.cli.recorded import result
from rpg.cli.show import DigestIfPresent
from rpg.errors import pip_install
from rpg.store import Layout

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec


@app.command()
def doctor(
    file: OptionalFile = None,
    set_: Set = [],
    backend: Literal["verl"] | None = None,
    home: Home = None,
) -> int:
    """Check that this machine has what a sweep needs: Python, packages, cores, GPUs, a writable
    data folder; with FILE also its data, models, gold answers, longest prompts, ports and disk. All
    problems are in one list, before anything starts.

    With --backend verl also check what verl needs: versions, flash attention, GPUs, shared memory,
    room for Ray's files.

    Args:
        file: A sweep or run file whose runs are checked, too, or the name of a shipped one.
        backend: Also check what runs on this back end need.
    """
    from rpg.config.load import parse_assignments
    from rpg.config.sweep_spec import load_file

    layout = layout_at(home)
    overrides = parse_assignments(set_)
    runs = load_file(file, overrides, DigestIfPresent()).runs if file else ()
    specs = [run.spec for run in runs]
    findings = list(_of_packages())
    findings += _of_machine(layout.home)
    findings += _of_gpus()
    if backend == "verl":
        findings += _of_verl(specs)
    if specs:
        findings += [(False, text) for text in _of_file(specs, layout)]
    findings += _of_prompts(specs, layout)
    wrong = {text for good, text in findings if good is False}
    findings = [(good, text) for good, text in findings if good is False or text not in wrong]
    if file is not None and not wrong:
        findings.append((True, f"{file}: no problems found"))
    result(findings=[{"good": good, "text": text} for good, text in findings])
    for good, text in findings:
        word, style = {True: ("ok ", None), None: ("-- ", "yellow"), False: ("NO ", "bold red")}[
            good
        ]
        say(f"{word} {text}", style)
    return 1 if wrong else 0


Finding = tuple[bool | None, str]
"""Whether it is good (None: worth knowing), and what it is."""
PACKAGES = "torch transformers safetensors schedulefree prefect duckdb altair streamlit".split()


def _of_packages() -> Iterator[Finding]:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield supported, f"Python {sys.version.split()[0]} (3.11 to 3.13 are supported)"
    for name in PACKAGES:
        try:
            yield True, f"{name} {version(name)}"
        except PackageNotFoundError:
            yield False, f"{name} is not installed; install it with: {command_for(name)}"
    yield from _of_releases()


def _of_releases() -> Iterator[Finding]:
    """Installed releases that the metadata excludes, and those that are newer than any tested
    one."""
    from rpg.system.tested_releases import outside_of_tested

    found = outside_of_tested()
    for one in found:
        if one.refused:
            repair = f"{pip_install()} {shlex.quote(one.package + one.tested.partition(' or ')[0])}"
            yield (
                False,
                f"{one.package} {one.installed} is excluded: {one.tested} was tested; "
                f"install it with: {repair}",
            )
    newer = [f"{one.package} {one.installed} ({one.tested})" for one in found if not one.refused]
    if newer:
        yield None, f"newer than what was tested: {', '.join(newer)}"


def _of_machine(folder: Path) -> Iterator[Finding]:
    yield True, f"{cores()} cores: that many trainings at a time"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free / 2**30
        yield free > 1, f"data folder {folder} is writable, {free:.0f} GB free"
    except OSError as error:
        yield (
            False,
            f"data folder {folder}: {error.strerror}; set RPG_HOME or --home to a writable folder",
        )
    url = os.environ.get("PREFECT_API_URL")
    yield True, f"Prefect server: {url or 'a private one on loopback for each sweep'}"


def _of_gpus() -> Iterator[Finding]:
    """NVIDIA's driver, the GPUs, and whether torch computes on them."""
    from rpg.backends.verl.readiness import facts, gpu_problem, torch_problem

    here = facts()
    if not here.gpus and not here.no_driver:
        yield True, "no NVIDIA GPU: the embedded trainer computes on the CPU"
    elif problem := gpu_problem(here) or torch_problem(here):
        yield None, problem
    for number, gpu in enumerate(here.gpus):
        sizes = f"{gpu.total / 2**30:.0f} GiB, compute capability {gpu.capability}"
        driver = f"driver {here.driver}, which runs CUDA {here.driver_cuda}"
        yield True, f"GPU {number}: {gpu.name}, {sizes}; {driver}"


def _of_verl(specs: list[RunSpec]) -> list[Finding]:
    """What verl needs, for those of these runs that train on it; without any, for a run on all GPUs
    of this machine."""
    from rpg.backends.verl.readiness import facts, findings
    from rpg.config.backend import VerlBackend, VllmRollout

    host = facts()
    sections = [spec.backend for spec in specs if isinstance(spec.backend, VerlBackend)]
    if not specs and host.gpus:
        rollout = VllmRollout(type="vllm")
        sections = [
            VerlBackend(type="verl", device="cuda", gpus_per_node=len(host.gpus), rollout=rollout)
        ]
    if not sections:
        sections = [VerlBackend(type="verl")]
    return list(
        dict.fromkeys(finding for section in sections for finding in findings(section, host))
    )


def _of_prompts(specs: list[RunSpec], layout: Layout) -> Iterator[Finding]:
    """The first prompt of each model and task with its special tokens marked, and what ends a
    response."""
    from rpg.errors import UserError
    from rpg.models.initial_policy import tokens_of_prompt
    from rpg.tasks import load_problems

    alike = {(spec.task.model_dump_json(), spec.model): spec for spec in specs}
    for spec in alike.values():
        with suppress(UserError, OSError):  # what is wrong is said elsewhere
            prompt = load_problems(spec.task).train[0].given()
            for line in tokens_of_prompt(spec, prompt, layout.home):
                is_warning = line.startswith("tokens: warning: ")
                yield None if is_warning else True, line


def _of_file(specs: list[RunSpec], layout: Layout) -> list[str]:
    """What is wrong with the runs of a file: paths, packages, lengths, disk, GPUs, ports, and its
    problems."""
    from flows.machine.slots import machine, need_of
    from rpg.backends.verl.readiness import facts, gpu_problem
    from rpg.models.initial_policy import check_lengths
    from rpg.models.model_loading import ModelError
    from rpg.planning.preflight import preflight, unreachable
    from rpg.tasks import DataError, load_problems

    lines = preflight(specs, layout)
    host = machine()
    for spec in specs:
        need = need_of(spec.backend, host) if spec.backend.device == "cuda" else None
        if need is not None and (need.kind != "gpu" or need.count > len(host.gpus)):
            wanted = spec.backend.workers_here() or 1
            lines.append(f"backend: needs {wanted} GPUs, but this machine has {len(host.gpus)}")
        if need is not None and (problem := gpu_problem(facts())):
            lines.append(problem)
    lines += unreachable(specs)
    splits = {}
    for task in {spec.task.model_dump_json(): spec.task for spec in specs}.values():
        try:
            splits[task.model_dump_json()] = problems = load_problems(task)
            lines += problems.notes
        except DataError as error:
            lines.append(str(error))
    alike = {(spec.task.model_dump_json(), spec.model, spec.rollout): spec for spec in specs}
    for (task_json, *_), spec in alike.items():
        with suppress(ModelError, OSError):  # loading the model says what is wrong
            too_long = (
                check_lengths(spec, splits[task_json], layout.home) if task_json in splits else None
            )
            lines += [too_long] if too_long else []
    return list(dict.fromkeys(lines))
