"""Evaluation that takes GPUs for itself: in turns with the trainings, an evaluator per free GPU.

vLLM measures at its start how much memory is free, refuses when that is too little (vllm/v1/worker/utils.py:414) and
stops when it grows meanwhile (vllm/v1/worker/gpu_worker.py:480), which it does whenever verl's own vLLM goes to sleep. Two
on one GPU disturb each other at any time, not only at their start. So an evaluator never shares a GPU with verl: it waits
until one is free, evaluates the checkpoints that are there, and gives it back. Where a training has all GPUs of a machine,
its checkpoints are evaluated when it is over, on all of these GPUs, before the next training of the sweep takes them;
`backend.validation_samples` has verl itself look meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from pydantic import ValidationError

from flows.machine import programs
from flows.machine.children import Stopped
from flows.machine.slots import Held, Need
from flows.sweep.context import Context, StageFailed
from flows.sweep.evaluation import EVALUATION_LOG, EVALUATOR_TRIES, last_line
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError
from rpg.store import Layout, RunFolder
from rpg.store.current import current_runs
from rpg.store.run_folder import pending_evaluations

LOOK_SECONDS = 1.0
Owed = tuple[str, str, int]


def takes_turns(layout: Layout, sweep: str, context: Context) -> int:
    """GPUs of this machine for one turn of a sweep's evaluator; 0 where it needs none of its own."""
    found = [0]
    for folder in current_runs(layout, sweep):
        # An unreadable manifest is reported when its run's turn comes.
        with contextlib.suppress(UserError, ValidationError, KeyError):
            found.append(RunSpec.model_validate(folder.read_manifest()["spec"]).evaluator_gpus())
    return max(found) if max(found) and context.machine.gpus else 0


def evaluate_in_turns(
    layout: Layout,
    sweep: str,
    context: Context,
    over: threading.Event,
    count: int,
    tell: Callable[[str], None],
) -> None:
    """Evaluate what the runs of a sweep owe, whenever there is something and GPUs are free, until no more will come.

    Raises:
        StageFailed: the evaluator ended badly several times. Stopped: the sweep is being stopped.
    """
    tried: set[Owed] = set()
    failures = 0
    while True:
        last = over.is_set()  # first: what was saved before is then seen below
        if owed := _owed(layout, sweep) - tried:
            with _gpus(context, count, sweep, tell) as held:
                owed = _owed(layout, sweep) - tried  # there may be more of them by now
                _more(context, count, sweep, held, len(owed))
                code = _turn(layout, sweep, context, held, tell)
            if code == 0:
                tried |= owed  # what is still owed then, cannot be done: it has its error beside it
            elif (failures := failures + 1) == EVALUATOR_TRIES:
                log = layout.sweep_folder(sweep) / EVALUATION_LOG
                raise StageFailed(
                    f"evaluation ended with code {code} {EVALUATOR_TRIES} times; its log: {log}"
                )
        elif last:
            return
        elif over.wait(LOOK_SECONDS):
            continue
        if context.children.stopping.is_set():
            raise Stopped


def _owed(layout: Layout, sweep: str) -> set[Owed]:
    """Evaluations whose checkpoints are there."""
    found: set[Owed] = set()
    for folder in current_runs(layout, sweep):
        if folder.manifest_path.exists():
            found |= _of(folder)
    return found


def _of(folder: RunFolder) -> set[Owed]:
    there = set(folder.checkpoint_steps())
    return {(folder.name, name, step) for name, step in pending_evaluations(folder) if step in there}


@contextlib.contextmanager
def _gpus(context: Context, count: int, sweep: str, tell: Callable[[str], None]) -> Iterator[list[Held]]:
    """GPUs for an evaluator. While they are waited for, no further training of this sweep takes any."""
    need, held, gate = Need("gpu", count), None, None
    context.evaluation_waits.set()
    try:
        while held is None:
            gate = gate or context.machine.gate(need)
            try:
                held = context.machine.take(need, f"{sweep}/evaluation") if gate else None
            except UserError as error:
                raise StageFailed(f"evaluation.engine.tensor_parallel: {error}") from None
            if held is None:
                tell(f"evaluation {context.machine.why(need)}")
                if context.children.stopping.wait(LOOK_SECONDS):
                    raise Stopped
    finally:
        context.evaluation_waits.clear()
        if gate is not None:
            gate.close()
    all_held = [held]
    try:
        yield all_held
    finally:
        for one in all_held:
            one.close()


def _more(context: Context, count: int, sweep: str, held: list[Held], most: int) -> None:
    """Further GPUs that are free now and that nobody waits for: each gets an evaluator with a share of the work."""
    need = Need("gpu", count)
    gate = context.machine.gate(need)
    if gate is None:
        return
    try:
        while len(held) < most and (one := context.machine.take(need, f"{sweep}/evaluation")):
            held.append(one)
    finally:
        gate.close()


def _turn(layout: Layout, sweep: str, context: Context, held: list[Held], tell: Callable[[str], None]) -> int:
    """One evaluator for each of `held`, to the end of what is there; the exit code of the first that failed, or 0."""
    folder, log = layout.sweep_folder(sweep), layout.sweep_folder(sweep) / EVALUATION_LOG
    running = [
        context.children.start(
            programs.EVALUATOR, folder, "--drain", "--share", f"{number}/{len(held)}", log=log,
            keep=one.fds, extra=one.environment,
        )
        for number, one in enumerate(held, 1)
    ]  # fmt: skip
    while any(child.poll() is None for child in running):
        time.sleep(0.2)
        tell(last_line(log))
    return next((code for code in map(context.children.wait, running) if code), 0)
