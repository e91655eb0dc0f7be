"""The command `rpg evaluate`: grade a model, grade stored samples again, or join an imported
run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rpg.cli.app import Home, app, columns, complain, console, layout_at, refuse, require_named, say
from rpg.cli.recorded import result
from rpg.errors import plural, see
from rpg.report.format import amount, with_interval
from rpg.store import Layout

if TYPE_CHECKING:
    from rpg.evaluation.standalone import Result
    from rpg.stats import Estimate

OWN_OF_JOIN = ("checkpoint", "join", "step", "revision", "home", "as_json")
"""Parameters that go with --join; everything else comes from the sweep."""


@app.command()
def evaluate(
    context: typer.Context,
    checkpoint: str,
    benchmarks: Annotated[str, typer.Option("--benchmarks", "-b")] = "aime24,aime25,amc23",
    engine: str = "local",
    k: Annotated[int | None, typer.Option("--k", min=1)] = None,
    preset: str | None = None,
    prompts: Annotated[int, typer.Option(min=1)] = 1,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    temperature: Annotated[float | None, typer.Option(min=0)] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0001, max=1)] = None,
    top_k: Annotated[int | None, typer.Option(min=1)] = None,
    min_p: Annotated[float | None, typer.Option(min=0, max=0.9999)] = None,
    stop: list[str] = [],
    max_response_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    max_prompt_tokens: Annotated[int, typer.Option(min=1)] = 2048,
    data: Path | None = None,
    training: str | None = None,
    out: Path | None = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Literal["cpu", "cuda"] = "cpu",
    dtype: Literal["float32", "bfloat16"] = "float32",
    revision: str | None = None,
    ray: str | None = None,
    workers: Annotated[int, typer.Option(min=1)] = 1,
    gpus: Annotated[float, typer.Option(min=0)] = 0.0,
    regrade: Annotated[bool, typer.Option("--regrade")] = False,
    rules: Literal["default", "recipe"] | None = None,
    join: str | None = None,
    step: Annotated[int | None, typer.Option(min=0)] = None,
    home: Home = None,
) -> None:
    """Grade a model on benchmarks: mean@k, pass@k and maj@k with standard errors. Every sample is
    kept.

    Run the same command again to do only what is missing. With --regrade, CHECKPOINT may also be
    the folder of an evaluation, of a run or of a sweep.

    Args:
        checkpoint: Hugging Face model: a folder, SWEEP/RUN/step-000040, a name that `rpg model`
            lists, or a hub id.
        benchmarks: Benchmarks: names or YAML files, separated by commas.
        engine: Engine: local or vllm.
        k: Samples per problem. Default: that of each benchmark.
        preset: Sampling as others evaluate: paper, sober, deepseek-r1, qwen3, quick, or a YAML
            file. Options given here take precedence.
        prompts: Ask every problem in this many ways, and report how much the accuracy varies.
        limit: Evaluate only this many problems of each benchmark.
        temperature: Sampling temperature; 0 is greedy decoding with one sample. Default: 1.
        top_p: Nucleus sampling: sample from the most probable tokens with this total probability.
            Default: 1.
        top_k: Sample from this many most probable tokens. Default: all.
        min_p: Sample from tokens at least this probable relative to the most probable one. Default:
            0.
        stop: Stop string: ends a response and remains part of it. Repeatable.
        max_response_tokens: Maximum length of a response, in tokens. Default: what the model's
            context allows, at most 32,768.
        max_prompt_tokens: Maximum length of a prompt, in tokens.
        data: Folder with local copies of benchmarks. Default: $RPG_DATA, then the hub.
        training: File of training problems; reports which of them occur in a benchmark.
        out: Folder for the results. Default: evaluations/ in the data folder.
        seed: Random seed.
        device: Device.
        dtype: Precision.
        revision: Commit or branch of the model on the hub.
        ray: Evaluate on a Ray cluster: auto, host:port or ray://host:port.
        workers: Number of copies of the model on the cluster.
        gpus: GPUs per copy on the cluster.
        regrade: Sample nothing: grade the stored samples by other rules; the first grades are kept.
        rules: With --regrade: recipe is verl's math_dapo. Default: those not used before.
        join: SWEEP/RUN of an imported run: evaluate the checkpoint like the sweep's own runs, and
            store the samples there. Needs --step; the sweep determines benchmarks, sampling and
            engine.
        step: With --join: the training step of the checkpoint.
    """
    layout = layout_at(home)
    if join is not None or step is not None:
        _join(context, layout, checkpoint, join, step, revision)
        return
    if regrade or rules is not None:
        _regrade(layout, checkpoint, out, regrade, rules)
        return
    from rpg.cli.archive import fetched
    from rpg.evaluation.standalone import default_folder
    from rpg.evaluation.standalone import evaluate as evaluate_model
    from rpg.evaluation.variation import load_preset
    from rpg.models.model_cache import pretrained_folder
    from rpg.models.truncated_sampling import Restriction
    from rpg.store.database import build

    checkpoint = fetched(layout, checkpoint)
    as_others = load_preset(preset) if preset else None

    def setting(name: str, option: Any, default: Any) -> Any:
        return option if option is not None else getattr(as_others, name, default)

    restriction = Restriction(
        setting("top_k", top_k, None),
        setting("top_p", top_p, 1.0),
        setting("min_p", min_p, 0.0),
        stop=tuple(text for text in stop if text),
    )
    results = evaluate_model(
        pretrained_folder(checkpoint, layout.home, complain),
        [part.strip() for part in benchmarks.split(",") if part.strip()],
        engine=engine,
        place=_place(ray, workers, gpus),
        out=out or default_folder(checkpoint, layout.home),
        data=data,
        training=training,
        samples_per_problem=setting("k", k, None),
        prompts=prompts,
        limit=limit,
        temperature=setting("temperature", temperature, 1.0),
        restriction=restriction,
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=setting("max_response_tokens", max_response_tokens, None),
        seed=seed,
        device=device,
        bfloat16=dtype == "bfloat16",
        revision=revision,
        home=layout.home,
        say=complain,
    )
    _show_results(results)
    if as_others is not None:
        say(f"Sampling: {as_others.source}.", "dim")
    build(layout)


def _place(ray: str | None, workers: int, gpus: float) -> dict[str, Any] | None:
    if ray is not None:
        return {"address": ray, "workers": workers, "gpus": gpus}
    if workers != 1 or gpus:
        refuse("--workers and --gpus are for a Ray cluster; name it with --ray, e.g. --ray auto")
    return None


def _join(
    context: typer.Context,
    layout: Layout,
    checkpoint: str,
    run: str | None,
    step: int | None,
    revision: str | None,
) -> None:
    """Evaluate a checkpoint like a sweep's own runs; its samples join an imported run."""
    if run is None or step is None:
        refuse(
            "--join and --step belong together, e.g. --join quickstart/trl-grpo-s0-1a2b3c4d "
            "--step 300"
        )
    source = context.get_parameter_source
    given = [name for name in context.params if getattr(source(name), "name", "") == "COMMANDLINE"]
    others = [f"--{name.replace('_', '-')}" for name in given if name not in OWN_OF_JOIN]
    if others:
        refuse(
            f"{', '.join(others)}: --join evaluates like the sweep's own runs; omit "
            f"{'it' if len(others) == 1 else 'them'}, or evaluate without --join"
        )
    from rpg.evaluation.join_imported import join
    from rpg.models.model_cache import pretrained_folder
    from rpg.next_steps import command
    from rpg.store.database import build

    sweep = run.partition("/")[0]
    require_named("sweep", sweep, layout.sweeps(), layout)
    model = pretrained_folder(checkpoint, layout.home, complain)
    samples = join(layout, run, model, step, revision=revision, say=complain)
    build(layout)
    result(samples=samples)
    for benchmark, path in samples.items():
        say(f"{benchmark}: {path}")
    say(f"the report contains them: {command('report', sweep, layout=layout)}", "dim")


def _regrade(
    layout: Layout, checkpoint: str, out: Path | None, regrade: bool, rules: str | None
) -> None:
    """Grade stored samples by other rules, and show what changes."""
    if not regrade:
        refuse(f"--rules {rules}: only goes with --regrade")
    from rpg.evaluation.regrade import regrade as grade_again
    from rpg.evaluation.standalone import default_folder

    folder = out or default_folder(checkpoint, layout.home)
    files = (
        "evaluation.json",
        "manifest.json",
        "sweep.json",
        "../manifest.json",
        "../../manifest.json",
    )
    if out is None and any((Path(checkpoint) / file).is_file() for file in files):
        folder = Path(checkpoint)  # of graded samples, not just of a model that was evaluated
    regraded = grade_again(folder, rules, say=complain)
    result(regraded=regraded)
    numbers = ("samples", "correct before", "correct now")
    table = columns("problem", *numbers, right=numbers)
    for file in regraded:
        rows = {file.what: file} | {f"  {change.problem_id}": change for change in file.changes}
        for name, row in rows.items():
            counts = map(str, (row.samples, row.right_before, row.right_after))
            table.add_row(name, *counts, style="bold" if row is file else None)
    console.print(table)
    problems = sum(len(file.changes) for file in regraded)
    for before, after in dict.fromkeys((file.before, file.after) for file in regraded):
        say(f"before: graded by {before}; now: by {after}.", "dim")
    say(f"{plural(problems, 'problem')} changed.", "dim")
    for file in regraded:
        say(f"grades: {file.grades}", "dim")


def _show_results(results: list["Result"]) -> None:
    values = [
        {"benchmark": each.benchmark, "samples": each.samples, **each.as_json()} for each in results
    ]
    result(evaluations=values)
    numbers = ("problems", "k", "mean@k", "pass@k", "maj@k", "tokens", "cut off")
    table = columns("benchmark", *numbers, right=numbers)
    for each in results:
        for label, s in (
            (each.benchmark, each.summary),
            ("  without leaks", each.without_leaks),
        ):
            if s is not None:
                tokens = s.response_tokens
                table.add_row(
                    label,
                    str(s.problems),
                    str(s.k),
                    _share(s.mean_at_k),
                    _share(s.pass_at_k),
                    _share(s.majority_at_k),
                    with_interval(tokens.mean, tokens.low, tokens.high, amount),
                    _share(s.truncation_rate),
                )
    console.print(table)
    say("[low, high] is a 95 % interval over problems.", "dim")
    rules = dict.fromkeys(each.rules or "unrecorded rules" for each in results)
    console.print(f"Graded by {', '.join(rules)}{see('grading')}.", style="dim")
    lines: list[str] = []
    for each in results:
        lines += each.notes
        lines += _checked(each)
    lines += [f"samples: {each.samples}" for each in results]
    for line in lines:
        say(line, "dim")


def _share(estimate: "Estimate") -> str:
    return with_interval(estimate.mean, estimate.low, estimate.high)


def _checked(evaluated: "Result") -> list[str]:
    """Repeated problems and leaks, if there are any."""
    checks = evaluated.checks
    benchmark = evaluated.benchmark
    problems = evaluated.summary.problems
    lines = []
    pairs = len(checks.near_duplicates)
    if pairs:
        lines.append(f"{benchmark}: {pairs} pairs of problems are near duplicates")
    if checks.training is not None:
        leaked = {leak.problem for leak in checks.leaks if leak.tier != "renamed"}
        alike = len({leak.problem for leak in checks.leaks} - leaked)
        also = f"; {alike} more do with other letters or numbers" if alike else ""
        share = f"{len(leaked)} of {problems} problems"
        lines.append(f"{benchmark}: {share} occur in {checks.training}{also}")
    return lines
