"""A checkpoint that was trained elsewhere, evaluated as a sweep evaluates its own: its samples join an imported run.

Same problems, prompts, engine, sampling and grading as the sweep's runs, and the imported run's seed, so that the report
can pair it with them problem by problem.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from rpg.backends.manifest import spec_of
from rpg.config.model import bfloat16
from rpg.config.task import chat_of
from rpg.errors import UserError
from rpg.evaluation.engines.start import start_engine
from rpg.evaluation.evaluator import sampling_of
from rpg.evaluation.graded_samples import Progress, evaluate_problems
from rpg.models.device import configure_device
from rpg.models.reward_models import scorer_of
from rpg.models.tokenizer import dresses
from rpg.rewards.graders import rules_name
from rpg.store.current import current_runs, is_imported
from rpg.store.layout import Layout
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import write_manifest
from rpg.store.samples import write_eval
from rpg.tasks import verifier_of
from rpg.tasks.preparation import prepare_data, read_problems


class JoinError(UserError):
    """A checkpoint that cannot join a run; `str(error)` is one line."""


def join(
    layout: Layout,
    name: str,
    checkpoint: str | Path,
    step: int,
    *,
    revision: str | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Path]:
    """Benchmark -> file of the samples of `checkpoint`, which is step `step` of the imported run `name` (SWEEP/RUN).

    What is there already is replaced, once all samples of a benchmark are drawn.

    Raises:
        JoinError: there is no such imported run, or no run of the sweep's own to evaluate like.
        UserError: a model, problems or an engine that cannot be used.
    """
    sweep, _, run = name.partition("/")
    folder = _imported(layout, sweep, run)
    manifest = folder.read_manifest()
    if step > manifest["steps"]:
        updates = manifest["imported"].get("updates", 1)
        said = (
            "" if updates == 1 else f" (step {updates * manifest['steps']} of its log: --updates {updates})"
        )
        raise JoinError(
            f"--step {step}: {sweep}/{folder.name} ends at step {manifest['steps']}{said}. Import a longer log first, or "
            "say which of its steps the checkpoint is"
        )
    own = _like(layout, sweep)
    spec = spec_of(own).model_copy(update={"seed": int(manifest["seed"])})
    if dresses(chat_of(spec.task)):
        raise JoinError(
            f"{name}: the sweep's task.chat has a template, options or a prefix, which are part of its own checkpoints' "
            "tokenizers and not of this one's; save the checkpoint with that chat template, or evaluate without joining"
        )
    configure_device(spec.backend.device)
    prepared = prepare_data(spec, layout.home)
    place = spec.evaluation.place
    engine = start_engine(
        spec.evaluation.engine, sampling_of(spec), spec.backend.device, bfloat16(spec.model), place, say
    )
    written = {}
    try:
        engine.load(checkpoint, revision)
        with scorer_of(spec, own.read_manifest().get("rewards") or {}) as scorer:
            for benchmark in spec.benchmarks():
                rows = evaluate_problems(
                    engine,
                    read_problems(prepared.benchmarks[benchmark]),
                    samples_per_problem=spec.evaluation.samples_per_problem,
                    seed=spec.seed,
                    scorer=scorer,
                    progress=_teller(benchmark, say),
                )
                written[benchmark] = write_eval(
                    folder, benchmark, step, rows, rules_name(verifier_of(spec.task))
                )
    finally:
        engine.close()
    known = [*manifest["benchmarks"], *(b for b in written if b not in manifest["benchmarks"])]
    write_manifest(folder, {k: v for k, v in manifest.items() if k != "format"} | {"benchmarks": known})
    return written


def _imported(layout: Layout, sweep: str, run: str) -> RunFolder:
    all_of_them = current_runs(layout, sweep)
    there = [folder for folder in all_of_them if is_imported(folder)]
    named = [folder for folder in there if run in (folder.name, folder.read_manifest()["variant"])]
    if len(named) == 1:
        return named[0]
    names = ", ".join(f"{sweep}/{folder.name}" for folder in there)
    if not run:
        why = "say which run, SWEEP/RUN."
    elif named:
        why = f"it has {len(named)} seeds; say which run."
    elif run in (folder.name for folder in all_of_them):
        why = "it was trained here, and is evaluated by rpg sweep."
    else:
        close = difflib.get_close_matches(run, [folder.name for folder in there], n=1, cutoff=0.4)
        why = f"no such imported run{f'; did you mean {close[0]!r}?' if close else '.'}"
    raise JoinError(
        f"--join {'/'.join(filter(None, (sweep, run)))}: {why} Imported: {names or 'none (rpg import)'}"
    )


def _like(layout: Layout, sweep: str) -> RunFolder:
    """A run of the sweep's own; they share their task and how they are evaluated."""
    for folder in current_runs(layout, sweep):
        if folder.manifest_path.exists() and not is_imported(folder):
            return folder
    raise JoinError(
        f"--join: {sweep} has no run of its own to be evaluated like; without --join it stands alone"
    )


def _teller(benchmark: str, say: Callable[[str], None]) -> Callable[[Progress], None]:
    said = [0.0]

    def tell(progress: Progress) -> None:
        if progress.seconds - said[0] > 15:
            said[0] = progress.seconds
            say(f"{benchmark}: {progress}")

    return tell
