"""Evaluate a checkpoint that was trained elsewhere like a sweep's own checkpoints; its samples join
an imported run.

Problems, prompts, engine, sampling and grading are those of the sweep's runs, and the seed is the
imported run's, so that the report can pair them problem by problem.
"""

import difflib
from collections.abc import Callable
from pathlib import Path

from rpg.config.load import spec_of
from rpg.config.task import EnvironmentTask, chat_of
from rpg.errors import UserError
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.graded_samples import evaluate_problems, progress_lines
from rpg.models.device import configure_device
from rpg.models.hub_models import hub_commit
from rpg.models.reward_models import scorer_of
from rpg.models.tokenizer import changes_chat_template
from rpg.store.current import current_runs, is_imported
from rpg.store.layout import Layout
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import write_manifest
from rpg.store.samples import write_eval
from rpg.tasks import verifier_of
from rpg.tasks.preparation import prepare_data, read_problems
from rpg.tasks.rewards.graders import rules_name


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
    """Benchmark -> file with the samples of `checkpoint`, which is step `step` of the imported run
    `name` (SWEEP/RUN).

    Existing samples are replaced when all samples of a benchmark are drawn. Raises JoinError: there
    is no such imported run, or the sweep has no run whose evaluation to copy; UserError: the model,
    the problems or the engine cannot be used.
    """
    sweep, _, run = name.partition("/")
    folder = _imported(layout, sweep, run)
    manifest = folder.read_manifest()
    if step > manifest["steps"]:
        updates = manifest["imported"].get("updates", 1)
        in_log = ""
        if updates > 1:
            in_log = f" (step {updates * manifest['steps']} of its log: --updates {updates})"
        raise JoinError(
            f"--step {step}: {sweep}/{folder.name} ends at step "
            f"{manifest['steps']}{in_log}. Import a longer log first, or "
            "name the step of the run to which the checkpoint belongs"
        )
    # All runs that were trained here share their task and how they are evaluated.
    runs = (each for each in current_runs(layout, sweep) if each.manifest_path.exists())
    model_run = next((each for each in runs if not is_imported(each)), None)
    if model_run is None:
        why = (
            f"--join: {sweep} has no run that was trained here, and so no evaluation to copy; "
            "omit --join"
        )
        raise JoinError(why)
    spec = spec_of(model_run).model_copy(update={"seed": int(manifest["seed"])})
    if changes_chat_template(chat_of(spec.task)):
        raise JoinError(
            f"{name}: the sweep's task.chat has a template, options or a prefix, which the "
            "tokenizers of the sweep's "
            "checkpoints contain and this one does not; save the checkpoint with that chat "
            "template, or evaluate without "
            "joining"
        )
    if isinstance(spec.task, EnvironmentTask):
        why = (
            f"{name}: the sweep's task has an environment, with which only the sweep's own runs "
            "take turns"
        )
        raise JoinError(why)
    configure_device(spec.backend.device)
    prepared = prepare_data(spec, layout.home)
    if not Path(checkpoint).expanduser().is_dir():
        revision = hub_commit(str(checkpoint), revision)
    drawing = Drawing.of(spec)
    draws = drawing.draws(layout.home, checkpoint, revision)
    rules = rules_name(verifier_of(spec.task))
    written = {}
    rewards = model_run.read_manifest().get("rewards") or {}
    with (
        drawing.when_needed(checkpoint, revision, say) as engine,
        scorer_of(spec, rewards) as scorer,
    ):
        for benchmark in spec.benchmarks():
            rows = evaluate_problems(
                engine,
                read_problems(prepared.benchmarks[benchmark]),
                samples_per_problem=spec.evaluation.samples,
                seed=spec.seed,
                scorer=scorer,
                draws=draws,
                progress=progress_lines(benchmark, say),
            )
            written[benchmark] = write_eval(folder, benchmark, step, rows, rules, draws.about)
    benchmarks = [*manifest["benchmarks"], *(b for b in written if b not in manifest["benchmarks"])]
    write_manifest(folder, {**manifest, "benchmarks": benchmarks})
    return written


def _imported(layout: Layout, sweep: str, run: str) -> RunFolder:
    runs = current_runs(layout, sweep)
    imported = [folder for folder in runs if is_imported(folder)]
    named = [
        folder for folder in imported if run in (folder.name, folder.read_manifest()["variant"])
    ]
    if len(named) == 1:
        return named[0]
    names = [folder.name for folder in imported]
    if not run or named:
        reason = "name a run, SWEEP/RUN." if not run else f"it has {len(named)} seeds; name a run."
    elif run in (folder.name for folder in runs):
        reason = "this run was trained here; rpg sweep evaluates it."
    else:
        close = difflib.get_close_matches(run, names, n=1, cutoff=0.4)
        reason = f"no such imported run{f'; did you mean {close[0]!r}?' if close else '.'}"
    listed = ", ".join(f"{sweep}/{name}" for name in names) or "none (rpg import)"
    raise JoinError(f"--join {sweep}{f'/{run}' if run else ''}: {reason} Imported: {listed}")
