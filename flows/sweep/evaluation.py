"""Evaluation of a sweep's checkpoints as they appear, and what a run's end is: evaluated, or never
to be.

Where the evaluator needs no GPU of its own, one process beside the trainings evaluates everything.
Where it does, evaluators and trainings alternate on the GPUs: vLLM measures at its start how much
memory is free, refuses when that is too little (vllm/v1/worker/utils.py:414) and stops when it
grows meanwhile (vllm/v1/worker/gpu_worker.py:480), which it does whenever verl's own vLLM goes to
sleep. So an evaluator never shares a GPU with verl: it waits until one is free, evaluates the
checkpoints that are there, and releases it. Where a training has all GPUs of a machine, its
checkpoints are evaluated when it is over, on all of these GPUs, before the next training of the
sweep takes them; `backend.validation_samples` has verl itself evaluate meanwhile.
"""

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

from flows.machine import programs
from flows.machine.children import Children, Stopped
from flows.machine.slots import Held, Need
from flows.sweep.context import Context, StageFailed
from rpg.config.load import spec_of
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.atomic_files import read_json_object
from rpg.store.checkpoints import checkpoints_of
from rpg.store.current import current_runs
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import write_done, write_failed

EVALUATION_LOG = "evaluation.log"
EVALUATOR_TRIES = 3
POLL_SECONDS = 1.0
Evaluation = tuple[str, str, int]
"""(run, benchmark, step)."""


def evaluate_checkpoints(context: Context, trainings_over: Event) -> None:
    """Evaluate all checkpoints of a sweep as they appear, until `trainings_over` is set and none is
    left; StageFailed when the evaluator has failed several times, Stopped when the sweep is being
    stopped.
    """
    gpus = 0
    if context.machine.gpus:
        gpus = evaluator_gpus(context.layout, context.sweep)
    if gpus:
        alternate(context, trainings_over, gpus)
    else:
        folder = context.layout.sweep_folder(context.sweep)
        count = _most(
            context.layout, context.sweep, lambda s: getattr(s.evaluation.place, "processes", 1)
        )
        run_beside(folder, context.children, trainings_over, context.progress.tell, max(1, count))


def mark_done(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Write DONE.json for each run that is trained and evaluated; returns those that are done or
    failed."""
    for folder in folders:
        if _over(folder) or folder.state() == "running":
            continue
        if not _trained(folder) or pending_evaluations(folder):
            continue
        seconds = sum(row.get("seconds_step", 0.0) for row in folder.read_metrics())
        with contextlib.suppress(StoreError, OSError):  # `rpg gc` does it another time
            checkpoints_of(folder).prune(newest=1)
        write_done(folder, seconds=seconds, attempts=len(folder.attempts()))
    return [folder for folder in folders if _over(folder)]


def mark_unevaluated(folders: Sequence[RunFolder]) -> None:
    """When no evaluation will come any more, a trained run that still lacks one has failed, and
    says why."""
    for folder in folders:
        if _over(folder) or not _trained(folder):
            continue
        missing = pending_evaluations(folder)
        if not missing:
            continue
        benchmark, step = missing[0]
        record = folder.eval_path(benchmark, step).with_suffix(".error.json")
        try:
            why = read_json_object(record)["error"]
        except (StoreError, KeyError):
            why = f"step {step} was not evaluated on {benchmark}"
        write_failed(folder, str(why), step=step, log=str(folder.path.parent / EVALUATION_LOG))


def _over(folder: RunFolder) -> bool:
    return folder.done_path.exists() or folder.failed_path.exists()


def _trained(folder: RunFolder) -> bool:
    return folder.checkpoint(folder.read_manifest()["steps"]).exists()


def run_beside(
    folder: Path,
    children: Children,
    trainings_over: Event,
    note: Callable[[str], None],
    count: int = 1,
) -> None:
    """`count` evaluators for all runs of a sweep's folder; closing their input tells them that no
    more checkpoints come. `note` gets the last line of their log now and then.
    """
    log = folder / EVALUATION_LOG
    for _ in range(EVALUATOR_TRIES):
        running = [
            children.start(
                programs.EVALUATOR,
                folder,
                f"--share={number}/{count}",
                log=log,
                stdin=subprocess.PIPE,
            )
            for number in range(1, count + 1)
        ]
        while all(child.poll() is None for child in running) and not trainings_over.wait(0.2):
            note(programs.last_line(log))
        for child in running:
            assert child.stdin is not None
            child.stdin.close()
        code = next(filter(None, children.watch(running, log, note)), 0)
        if code == 0:
            return
    raise _evaluation_failed(folder, code)


def _evaluation_failed(folder: Path, code: int) -> StageFailed:
    log = folder / EVALUATION_LOG
    return StageFailed(f"evaluation ended with code {code} {EVALUATOR_TRIES} times; its log: {log}")


def evaluator_gpus(layout: Layout, sweep: str) -> int:
    """How many GPUs an evaluator of this sweep needs for itself."""
    return _most(layout, sweep, RunSpec.evaluator_gpus)


def _most(layout: Layout, sweep: str, of: Callable[[RunSpec], int]) -> int:
    """The largest number that a run of this sweep asks for."""
    numbers = [0]
    for folder in current_runs(layout, sweep):
        # An unreadable manifest is reported when its run is trained.
        with contextlib.suppress(UserError, KeyError):
            numbers.append(of(spec_of(folder)))
    return max(numbers)


def alternate(context: Context, trainings_over: Event, gpus: int) -> None:
    """Evaluate what is pending whenever `gpus` GPUs are free, until no more checkpoints will
    come."""
    tried: set[Evaluation] = set()
    failures = 0
    while True:
        last = trainings_over.is_set()  # first: what was saved before is then seen below
        if pending(context) - tried:
            with _held_gpus(context, gpus, tried) as held:
                evaluations = pending(context) - tried  # there may be more of them by now
                code = _run_evaluators(context, held)
            if code == 0:
                # what is still pending then, cannot be done: it has its error beside it
                tried |= evaluations
            else:
                failures += 1
                if failures == EVALUATOR_TRIES:
                    raise _evaluation_failed(context.layout.sweep_folder(context.sweep), code)
        elif last:
            return
        elif trainings_over.wait(POLL_SECONDS):
            continue
        if context.children.stopping.is_set():
            raise Stopped


def pending(context: Context) -> set[Evaluation]:
    """Evaluations whose checkpoints are there."""
    waiting = set()
    for folder in current_runs(context.layout, context.sweep):
        if not folder.manifest_path.exists():
            continue
        saved = set(folder.checkpoint_steps())
        for benchmark, step in pending_evaluations(folder):
            if step in saved:
                waiting.add((folder.name, benchmark, step))
    return waiting


@contextlib.contextmanager
def _held_gpus(context: Context, gpus: int, tried: set[Evaluation]) -> Iterator[list[Held]]:
    """GPUs for evaluators, at most one evaluator for each evaluation that is pending and not
    `tried`. Until they are taken, no further training of this sweep takes any."""
    held: list[Held] = []
    context.evaluation_waits.set()
    try:
        held.append(_wait(context, gpus))
        _take_more(context, gpus, held, len(pending(context) - tried))
        context.evaluation_waits.clear()
        yield held
    finally:
        context.evaluation_waits.clear()
        for slots in held:
            slots.close()


def _wait(context: Context, gpus: int) -> Held:
    """GPUs for one evaluator, once they are free. Raises StageFailed: this machine has fewer."""
    who = f"{context.sweep}/evaluation"
    tell = context.progress.tell
    stopping = context.children.stopping
    try:
        return context.machine.wait(
            Need("gpu", gpus), who, lambda why: tell(f"evaluation {why}"), stopping
        )
    except UserError as error:
        raise StageFailed(f"evaluation.engine.tensor_parallel: {error}") from None


def _take_more(context: Context, gpus: int, held: list[Held], most: int) -> None:
    """Further GPUs that are free now and that nobody waits for: each gets an evaluator with a share
    of the work."""
    need = Need("gpu", gpus)
    who = f"{context.sweep}/evaluation"
    gate = context.machine.gate(need, who)
    if gate:
        with gate:
            while len(held) < most and (slots := context.machine.take(need, who, gate)):
                held.append(slots)


def _run_evaluators(context: Context, held: Sequence[Held]) -> int:
    """One evaluator for each of `held`, until all that is pending is done; the exit code of the
    first that failed, or 0."""
    folder = context.layout.sweep_folder(context.sweep)
    log = folder / EVALUATION_LOG
    running = [
        context.children.start(
            programs.EVALUATOR,
            folder,
            "--drain",
            f"--share={number}/{len(held)}",
            log=log,
            keep=slots.fds,
            extra=slots.environment,
        )
        for number, slots in enumerate(held, 1)
    ]
    codes = context.children.watch(running, log, context.progress.tell)
    return next((code for code in codes if code), 0)
