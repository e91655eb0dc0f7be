"""The command that grades a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import Home, app, complain, console, say

if TYPE_CHECKING:
    from rpg.evaluation.standalone import Result
    from rpg.stats import Estimate
    from rpg.store import Layout


@app.command(
    epilog="Examples: rpg evaluate Qwen/Qwen3-4B --benchmarks aime24,amc23 --engine vllm --device cuda · "
    "rpg evaluate Qwen/Qwen3-4B --regrade --rules recipe · "
    "rpg evaluate checkpoint-300 --join quickstart/trl-grpo-s0-1a2b3c4d --step 300"
)
def evaluate(
    context: typer.Context,
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Hugging Face model: a folder (any checkpoint of a run), a name that `rpg model` lists, or a hub id."
        ),
    ],
    benchmarks: Annotated[
        str, typer.Option("--benchmarks", "-b", help="Benchmarks: names or YAML files, separated by commas.")
    ] = "aime24,aime25,amc23",
    engine: Annotated[str, typer.Option(help="Engine: local, huggingface or vllm.")] = "local",
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Samples per problem. Default: the benchmark's own.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first so many problems of each benchmark.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0, help="Sampling temperature; 0 is greedy decoding with one sample.")
    ] = 1.0,
    top_p: Annotated[
        float,
        typer.Option(min=0.0001, max=1, help="Draw from the fewest tokens with this probability together."),
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Draw from this many most probable tokens. Default: all.")
    ] = None,
    min_p: Annotated[
        float,
        typer.Option(
            min=0, max=0.9999, help="Draw from tokens at least this probable beside the most probable."
        ),
    ] = 0.0,
    stop: Annotated[
        list[str],
        typer.Option("--stop", help="A text that ends a response, of which it stays part. Repeatable."),
    ] = [],
    max_response_tokens: Annotated[int, typer.Option(min=1, help="Length limit of a response.")] = 2048,
    max_prompt_tokens: Annotated[int, typer.Option(min=1, help="Length limit of a prompt.")] = 2048,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with local copies of benchmarks. Default: $RPG_DATA, then the hub."),
    ] = None,
    training: Annotated[
        str | None, typer.Option(help="File of training problems; reports which of them are in a benchmark.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: evaluations/ in the data folder.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda or mps.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="Precision: float32 or bfloat16.")] = "float32",
    revision: Annotated[str | None, typer.Option(help="Commit or branch of the model on the hub.")] = None,
    ray: Annotated[
        str | None, typer.Option(help="Evaluate on a Ray cluster: auto, host:port or ray://host:port.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of copies of the model on the cluster.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs per copy on the cluster.")] = 0.0,
    regrade: Annotated[
        bool,
        typer.Option(
            "--regrade",
            help="Draw nothing: grade the stored samples again under other rules, beside the first grades.",
        ),
    ] = False,
    rules: Annotated[
        str | None,
        typer.Option(
            help="With --regrade: default or recipe (verl's math_dapo); without it, the other ones."
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            help="SWEEP/RUN of an imported run: evaluate as that sweep evaluates its own runs, and put the samples there. "
            "With --step; benchmarks, sampling and engine are the sweep's."
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="With --join: the training step of the checkpoint.")
    ] = None,
    home: Home = None,
) -> int:
    """Grade a model on benchmarks: mean@k, pass@k and maj@k with standard errors. Every sample is kept.

    Run the same command again and it does only what is missing. With --regrade, CHECKPOINT may also be the
    folder of an evaluation, of a run or of a sweep.
    """
    from rpg.config.errors import ConfigError
    from rpg.evaluation.standalone import default_folder
    from rpg.evaluation.standalone import evaluate as evaluate_model
    from rpg.models.model_cache import pretrained_folder
    from rpg.models.truncated_sampling import Restriction
    from rpg.store import Layout

    for value, known, option in (
        (device, ("cpu", "cuda", "mps"), "device"),
        (dtype, ("float32", "bfloat16"), "dtype"),
    ):
        if value not in known:
            raise ConfigError(f"--{option} {value!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    if (join is None) != (step is None):
        raise ConfigError(
            "--join and --step belong together, e.g. --join quickstart/trl-grpo-s0-1a2b3c4d --step 300"
        )
    if join is not None and step is not None:
        _refuse_own(context)
        return _join(Layout.at(home), join, checkpoint, step, revision)
    if rules is not None and (not regrade or rules not in ("default", "recipe")):
        raise ConfigError(f"--rules {rules!r}: expected default or recipe, together with --regrade")
    if regrade:
        folder = out or default_folder(checkpoint, Layout.at(home).home)
        _show_regraded(Path(checkpoint) if out is None and _is_stored(Path(checkpoint)) else folder, rules)
        return 0
    if ray is None and (workers != 1 or gpus):
        raise ConfigError("--workers and --gpus are for a Ray cluster; name it with --ray, e.g. --ray auto")
    results = evaluate_model(
        pretrained_folder(checkpoint, Layout.at(home).home, complain),
        [part.strip() for part in benchmarks.split(",") if part.strip()],
        engine=engine,
        place=None if ray is None else {"address": ray, "workers": workers, "gpus": gpus},
        out=out or default_folder(checkpoint, Layout.at(home).home),
        data=data,
        training=training,
        samples_per_problem=k,
        limit=limit,
        temperature=temperature,
        restriction=Restriction(top_k, top_p, min_p, stop=tuple(text for text in stop if text)),
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=max_response_tokens,
        seed=seed,
        device=device,
        bfloat16=dtype == "bfloat16",
        revision=revision,
        say=complain,
    )
    _show(results)
    return 0


_WITH_JOIN = ("checkpoint", "join", "step", "revision", "home")


def _refuse_own(context: typer.Context) -> None:
    """Raises ConfigError: options of an evaluation that --join takes from the sweep."""
    from rpg.config.errors import ConfigError

    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name not in _WITH_JOIN and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: --join evaluates as the sweep evaluates its own runs; leave "
            f"{'it' if len(given) == 1 else 'them'} out, or evaluate without --join"
        )


def _join(layout: Layout, run: str, checkpoint: str, step: int, revision: str | None) -> int:
    from rpg.cli.app import require_sweep
    from rpg.evaluation.join_imported import join
    from rpg.models.model_cache import pretrained_folder
    from rpg.store.database import build

    require_sweep(run.partition("/")[0], layout)
    model = pretrained_folder(checkpoint, layout.home, complain)
    found = join(layout, run, model, step, revision=revision, say=complain)
    build(layout)
    for benchmark, path in found.items():
        say(f"{benchmark}: {path}")
    say(f"they stand in: rpg report {run.partition('/')[0]}", "dim")
    return 0


def _is_stored(folder: Path) -> bool:
    """Whether a folder holds graded samples itself, and is not only a model that was evaluated."""
    marks = ("evaluation.json", "manifest.json", "sweep.json", "../manifest.json", "../../manifest.json")
    return folder.is_dir() and any((folder / mark).is_file() for mark in marks)


def _show_regraded(folder: Path, rules: str | None) -> None:
    from rich.table import Table

    from rpg.evaluation.regrade import regrade

    found = regrade(folder, rules, say=complain)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("problem", "samples", "right before", "right now"):
        table.add_column(heading, justify="left" if heading == "problem" else "right")
    for one in found:
        table.add_row(one.what, str(one.samples), str(one.right_before), str(one.right_after), style="bold")
        for change in one.changes:
            counts = (change.samples, change.right_before, change.right_after)
            table.add_row(f"  {change.problem_id}", *map(str, counts))
    console.print(table)
    problems = sum(len(one.changes) for one in found)
    for before, after in dict.fromkeys((one.before, one.after) for one in found):
        say(f"before: graded by {before}; now: by {after}.", "dim")
    say(f"{problems} problem{'s' * (problems != 1)} changed.", "dim")
    for one in found:
        say(f"grades: {one.grades}", "dim")


def _show(results: list[Result]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("benchmark", "problems", "k", "mean@k", "pass@k", "maj@k", "tokens", "cut off"):
        table.add_column(heading, justify="left" if heading == "benchmark" else "right")
    for result in results:
        for label, s in ((result.benchmark, result.summary), ("  without leaks", result.without_leaks)):
            if s is not None:
                shares = (_share(e) for e in (s.mean_at_k, s.pass_at_k, s.majority_at_k))
                cut, tokens = s.truncation_rate, s.response_tokens
                table.add_row(
                    label, str(s.problems), str(s.k), *shares,
                    f"{tokens.mean:.0f} ± {tokens.standard_error:.0f}", _share(cut),
                )  # fmt: skip
    console.print(table)
    say("[low, high] is a 95 % interval over problems; ± of tokens is one standard error.", "dim")
    rules = dict.fromkeys(result.rules or "rules that were not recorded" for result in results)
    console.print(f"Graded by {', '.join(rules)} (docs/grading.md).", style="dim")
    lines = [line for result in results for line in (*result.notes, *_checked(result))]
    lines += [f"samples: {result.samples}" for result in results]
    for line in lines:
        say(line, "dim")


def _share(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _checked(result: Result) -> list[str]:
    """What the checks of the problems found, where they found something."""
    checks, problems = result.checks, result.summary.problems
    lines = []
    if checks.near_duplicates:
        lines.append(
            f"{result.benchmark}: {len(checks.near_duplicates)} pairs of problems are nearly the same"
        )
    if checks.training is not None:
        leaked = len({leak.problem for leak in checks.leaks})
        lines.append(f"{result.benchmark}: {leaked} of {problems} problems are in {checks.training}")
    return lines
