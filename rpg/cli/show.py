"""The command `rpg show`: the resolved form of a file, its runs and their cost."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rpg.cli.app import (
    File,
    Home,
    Json,
    Set,
    app,
    columns,
    complain,
    console,
    layout_at,
    refuse,
    say,
    size_text,
)
from rpg.errors import see

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec
    from rpg.config.sweep_spec import PlannedRun, Sweep
    from rpg.planning.gpu_estimate import Estimate, Machine
    from rpg.store import Layout

UNKNOWN = "not-known-yet"
"""Placeholder for an identity that depends on data that are neither here nor currently available.
"""


@app.command()
def show(
    file: File, set_: Set = [], home: Home = None, as_json: Json = False, gpu: str | None = None
) -> None:
    """Show the resolved form of a file: every value, the runs it expands to, their expected cost.
    Downloads nothing.

    Args:
        gpu: The GPU that the runs should fit: 24GB, rtx-4090, a100-80gb, h100. Default: an H100.
    """
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any package of the hub is imported
    import yaml
    from rich.markup import escape

    from rpg.config.load import parse_assignments
    from rpg.config.sweep_spec import load_file
    from rpg.planning.cost import cost, says
    from rpg.planning.gpu_estimate import machine_named
    from rpg.planning.preflight import mistakes, unchecked

    digest = DigestIfPresent()
    machine = machine_named(gpu) if gpu else None
    sweep = load_file(file, parse_assignments(set_), digest)
    specs = [run.spec for run in sweep.runs]
    lines = mistakes(specs, layout_at(home))
    if lines:
        refuse("\n".join(f"{file}: {line}" for line in lines))
    for line in unchecked(specs):
        complain(f"{file}: {line}", "yellow")
    if as_json:
        runs = []
        for r in sweep.runs:
            known = digest.is_known(r.spec)
            record = {"run": _folder(r, known), "run_id": r.run_id if known else None}
            runs.append(record | {"variant": r.variant, "spec": r.spec.model_dump(mode="json")})
        print(
            json.dumps(
                {"name": sweep.spec.name, "baseline": sweep.baseline, "runs": runs}, indent=1
            )
        )
        return
    first = sweep.runs[0].spec
    console.rule(
        f"first run, resolved ({escape(sweep.runs[0].variant)}, seed {first.seed})", align="left"
    )
    print(yaml.safe_dump(first.model_dump(mode="json"), sort_keys=False), end="")
    console.rule(f"{len(sweep.runs)} runs", align="left")
    table = columns(
        "variant", "seed", "rollouts", "updates", "folder", right=("seed", "rollouts", "updates")
    )
    for r in sweep.runs:
        c = cost(r.spec)
        table.add_row(
            r.variant,
            str(r.spec.seed),
            f"{c.rollouts:,}",
            f"{c.optimizer_steps:,}",
            _folder(r, digest.is_known(r.spec)),
        )
    console.print(table, markup=False)
    print_cost(sweep, layout_at(home), machine)
    text = says(sweep, layout_at(home))
    if text:
        console.rule("what it can find", align="left")
        say(text)
    for reason in dict.fromkeys(digest.absent.values()):
        complain(f"the data are not here, so identities are unknown (????????): {reason}", "yellow")


def _folder(run: PlannedRun, has_id: bool) -> str:
    """A run's folder, without the digits of its identity if that is unknown."""
    return run.folder if has_id else f"{run.folder[:-8]}????????"


def print_cost(sweep: Sweep, layout: Layout, machine: Machine | None = None) -> None:
    """Print counts for all runs, then times as far as they are known; `machine` is the GPU to judge
    by."""
    from rpg.planning.cost import Cost, cost, measured, seconds_per_step

    total = Cost(*map(sum, zip(*(cost(run.spec) for run in sweep.runs), strict=True)))
    uncounted = ""
    if any(run.spec.algorithm.dynamic_sampling for run in sweep.runs):
        uncounted = " (refills of dynamic sampling not counted)"
    console.rule("cost", align="left")
    say(
        f"{total.rollouts:,} responses of at most {total.response_tokens_at_most:,} tokens in all"
        f"{uncounted}, "
        f"{total.optimizer_steps:,} optimizer steps, {total.checkpoints_evaluated:,} "
        "checkpoints to evaluate"
    )
    _print_disk(sweep)
    _print_memory(sweep, machine)
    measurements = measured(layout)
    times = [(seconds_per_step(measurements, r.spec), r.spec.training.steps) for r in sweep.runs]
    if all(m for m, _ in times):
        minutes = sum(m[0] * steps for m, steps in times if m) / 60
        runs_like = min(m[1] for m, _ in times if m)
        kind = "core-minutes" if sweep.runs[0].spec.backend.device == "cpu" else "minutes"
        measured_on = f"measured on {runs_like} or more finished runs of the same size here"
        console.print(f"about {minutes:.1f} {kind} of training, {measured_on}")
    elif any(
        run.spec.backend.type == "verl" and run.spec.backend.device == "cuda" for run in sweep.runs
    ):
        _print_estimates(sweep, machine)
    else:
        console.print("time: unknown until a run of this size has finished in this data folder")


def _print_disk(sweep: Sweep) -> None:
    from rpg.planning.gpu_estimate import Assumptions, problems_of
    from rpg.planning.space import disk, token_records

    sizes = [disk(run.spec, sum(problems_of(run.spec, Assumptions()))) for run in sweep.runs]
    disks = [size for size in sizes if size]
    if len(disks) < len(sizes):
        say("disk: unknown, because the size of the model is not known; give its local folder")
        return
    after = sum(d.after for d in disks)
    last = sum(d.if_last for d in disks)
    most = sum(d.most for d in disks)
    less = f" ({size_text(last)} if the last checkpoint is the best)" if last < after else ""
    say(
        f"about {size_text(after)} on disk afterwards{less}, at most {size_text(most)} if "
        "all train at once; "
        f"training.keep_checkpoints: {sweep.runs[0].spec.training.keep_checkpoints}"
    )
    records = sum(token_records(run.spec) for run in sweep.runs)
    if records:
        say(f"of which records of tokens (training.token_records) at most {size_text(records)}")


def _print_memory(sweep: Sweep, machine: Machine | None) -> None:
    """Print the memory of the run that needs most, if known, and whether it fits."""
    from rpg.planning.gpu_estimate import H100, hours, nearest_change
    from rpg.planning.model_shapes import shape_and_source
    from rpg.planning.preflight import total_memory
    from rpg.planning.space import evaluators_share, memory, with_backend

    cuda = sweep.runs[0].spec.backend.device == "cuda" or machine is not None
    gpu = machine or H100
    room = gpu.memory if cuda else total_memory()
    specs = [with_backend(run.spec, device="cuda") if cuda else run.spec for run in sweep.runs]
    needs = [(need, spec) for spec in specs if (need := memory(spec, room)) is not None]
    if not needs:
        return
    need, spec = max(needs, key=lambda item: item[0].most)
    total, fixed, rollout, update = map(
        size_text, (need.most, need.fixed, need.rollout, need.update)
    )
    parted = need.rows_at_once < spec.rollout_rows()
    rows = f" ({need.rows_at_once} of {spec.rollout_rows()} responses at a time)" if parted else ""
    parts = f"{fixed} for process and weights, {rollout} for rollouts{rows} or {update} for updates"
    line = f"memory of a training: about {total} ({parts})"
    again = memory(with_backend(spec, gradient_checkpointing=True), room)
    if again is not None and again.most < 0.9 * need.most:
        less = "backend.gradient_checkpointing: true and bit-identical results"
        line += f"; {size_text(again.most)} with {less}"
    say(line)
    if spec.model.type == "pretrained":
        say(f"sizes of {spec.model.path} from {shape_and_source(spec.model.path)[1]}")
    if not cuda:
        return
    share = evaluators_share(spec, room)
    if need.most + share <= room:
        each = hours(spec, gpu)
        time = (
            f"; about {each:.1f} hours of training each, calculated, not measured" if each else ""
        )
        say(f"fits into {gpu.name}{time}")
    else:
        change = nearest_change(spec, gpu)
        fits = f"fits with {change}" if change else "no change tried makes it fit"
        say(f"! does not fit into {gpu.name}; {fits}")
    _print_evaluators(spec, need.most, gpu)


def _print_evaluators(spec: RunSpec, training: float, gpu: Machine) -> None:
    """Say what evaluators on the GPU of the training take, where there are some."""
    from rpg.planning.space import evaluators_least, evaluators_share

    share = evaluators_share(spec, gpu.memory)
    least = evaluators_least(spec)
    if share >= least > 0:
        where = "evaluation.place.gpu_memory"
        say(f"evaluators on the same GPU have {size_text(share)} of it ({where})")
    elif share:
        needed = f"at least {size_text(least)}, and have {size_text(share)}"
        say(f"! evaluation.place.gpu_memory: evaluators need {needed}")
    elif spec.evaluator_gpus():
        say("evaluators take turns with trainings on the GPU")
    elif least:
        together = training + least
        fits = "fits" if together <= gpu.memory else "does not fit"
        say(
            f"! not counted: evaluators on the same GPU, at least {size_text(least)}; together "
            f"{size_text(together)}, which {fits}; evaluation.place.gpu_memory gives them a share"
        )


def _print_estimates(sweep: Sweep, machine: Machine | None) -> None:
    from rpg.planning.gpu_estimate import GB, H100, Assumptions, estimate

    packed = find_spec("flash_attn") is not None
    usual = Assumptions(machine=machine if machine and machine.flops else H100, packed=packed)
    room = (machine or usual.machine).memory
    misfit = False
    groups: dict[tuple[Estimate | None, Estimate | None], list[PlannedRun]] = {}
    for run in sweep.runs:
        low = estimate(run.spec, usual)
        high = estimate(run.spec, replace(usual, response_share=1.0))
        groups.setdefault((low, high), []).append(run)
    if all(low is None for low, _ in groups):
        console.print(
            "time: unknown, because the size of the model is not known; give its local folder"
        )
        return
    numbers = (
        "GPUs",
        "hours each",
        "evaluator",
        "GPU hours each",
        "at most",
        "memory",
        "disk each",
    )
    table = columns("runs", *numbers, right=numbers)
    total = 0.0
    most = 0.0
    for (low, high), runs in groups.items():
        names = ", ".join(dict.fromkeys(run.spec.algorithm.name for run in runs))
        if low is None or high is None:
            table.add_row(f"{len(runs)} ({names})", *["unknown"] * 7)
            continue
        need = max(low.memory_rollout, low.memory_update)
        fits = "" if need <= room else " !"
        misfit = misfit or need > room
        table.add_row(
            f"{len(runs)} ({names})",
            str(low.gpus),
            f"{low.hours:.0f}",
            f"{low.evaluation_hours:.0f}",
            f"{low.gpu_hours:,.0f}",
            f"{high.gpu_hours:,.0f}",
            f"{need / GB:.0f} GB{fits}",
            f"{low.disk_bytes / GB:.0f} GB",
        )
        total = total + low.gpu_hours * len(runs)
        most = most + high.gpu_hours * len(runs)
    console.print(table)
    say(
        f"about {total:,.0f} GPU hours in total, {most:,.0f} if every response has the "
        "maximum length: calculated for "
        f"{usual.machine.name}, not measured{see('paper')}."
    )
    if misfit:
        say(f"! does not fit into {(machine or usual.machine).name}")


class DigestIfPresent:
    """`data_digest` for `rpg show` and `rpg render`; `absent` maps tasks without known digest to
    the reason.

    A missing local file is a mistake (rpg.planning.preflight), not absent data.
    """

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}

    def __call__(self, spec: RunSpec) -> str:
        from rpg.config.errors import ConfigError
        from rpg.tasks import DataError
        from rpg.tasks.preparation import data_digest

        task = spec.task.model_dump_json()
        if task not in self.absent:
            try:
                return data_digest(spec)
            except DataError as error:
                if isinstance(error.__cause__, ConfigError):
                    raise
                self.absent[task] = str(error)
        return UNKNOWN

    def is_known(self, spec: RunSpec) -> bool:
        """Whether the identity of a run is known."""
        return spec.task.model_dump_json() not in self.absent
