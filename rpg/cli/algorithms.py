"""The commands `rpg list`, `rpg audit` and `rpg paper`: the catalogue, what its losses optimise,
the published tables."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from rpg.cli.app import Home, Json, Preset, app, complain, console, error_console, layout_at, refuse
from rpg.cli.recorded import result
from rpg.errors import see
from rpg.store import atomic_write_text

_WAITING = "auditing by enumeration ..."
_SAY_SECONDS = 60.0
"""How often a measurement reports its progress where there is no terminal."""
if TYPE_CHECKING:
    from rpg.backends.local.checkpoint_fidelity import Fidelity
    from rpg.catalogue.entry import Algorithm


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument()] = None,
    preset: Preset = "paper",
    tasks: Annotated[bool, typer.Option("--tasks")] = False,
) -> None:
    """List the algorithms with formula, objective and citation, or show one with all its settings.

    Args:
        name: Show all settings of this algorithm; with --tasks: part of the name of a data set.
        tasks: List the task types instead, each with an example.
    """
    from rpg.catalogue import algorithm, algorithms

    if tasks:
        _tasks(name)
        return
    if name is None:
        symbols = "w = π/old, v = ref/old, d = log(π/ref), R and A: advantage, sg: held constant"
        caption = f"{symbols}; clipped: exact only where nothing is clipped"
        table = _titled(f"Algorithms (preset {preset})", caption)
        table.add_column("name", no_wrap=True, style="bold")
        for heading in ("loss per sample", "objective", "source"):
            table.add_column(heading)
        entries = algorithms(preset)
        for key, entry in entries.items():
            table.add_row(key, entry.formula, entry.objective, entry.citation)
        result(algorithms=[{"name": key, **_values(entry)} for key, entry in entries.items()])
    else:
        algo = algorithm(name, preset)
        result(algorithms=[{"name": name, **_values(algo)}])
        table = _titled(f"{algo.display_name}: {algo.description}")
        table.show_header = False
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for field in ("formula", "objective", "citation"):
            table.add_row(field, getattr(algo, field))
        if algo.paper_rows:
            table.add_row("paper rows", "\n".join(algo.paper_rows))
        for field, value in algo.settings().items():
            several = isinstance(value, dict)
            table.add_row(
                field, ", ".join(f"{k} {v}" for k, v in value.items()) if several else str(value)
            )
    console.print(table)


def _values(algo: "Algorithm") -> dict[str, Any]:
    """An algorithm for programs."""
    about = {"formula": algo.formula, "objective": algo.objective, "citation": algo.citation}
    return {**about, "settings": algo.settings()}


def _titled(title: str, caption: str | None = None) -> Table:
    """An empty table with a title and a caption, both on the left, and a line below its
    headings."""
    from rich import box

    return Table(
        title=title,
        caption=caption,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        pad_edge=False,
    )


def _tasks(name: str | None) -> None:
    """Every task type, or the data sets of Reasoning Gym whose names contain `name`, with an
    example each."""
    from rpg.config.task import TASKS, GeneratedTask
    from rpg.tasks import load_problems
    from rpg.tasks.gym_problems import examples

    columns = ("task.type", "problem", "answer")
    table = Table(*columns, show_lines=True, caption=see("data").strip(" ()"))
    for kind, section in TASKS.items() if name is None else ():
        prompt = "your own"
        answer = ""
        if kind == "reasoning_gym":
            prompt = "the data sets below"
        elif issubclass(section, GeneratedTask):
            problem = load_problems(
                section(type=kind, train_problems=6, benchmark_problems=2)
            ).train[0]
            prompt = problem.prompt
            answer = problem.answer
        about = escape((section.__doc__ or "").partition("\n")[0])
        table.add_row(f"{kind}\n{about}", escape(prompt), escape(answer))
    for row in examples():
        if name is None or name in row["name"]:
            levels = f"levels 0 to {row['levels'] - 1}" if row["levels"] else "no levels"
            heading = f"reasoning_gym\n{row['name']}\n{levels}"
            table.add_row(heading, escape(row["text"]), escape(row["answer"]))
    if not table.row_count:
        refuse(
            f"no data set of Reasoning Gym has {name!r} in its name; rpg list --tasks lists "
            "them all"
        )
    console.print(table)


@app.command()
def audit(
    name: Annotated[str | None, typer.Argument()] = None,
    preset: Preset = "paper",
    as_json: Json = False,
    checkpoint: Path | None = None,
    staleness: Annotated[int, typer.Option(min=0)] = 1,
    beta: Annotated[float | None, typer.Option(min=0)] = None,
    blocks: Annotated[int, typer.Option(min=4)] = 16,
    prompts: Annotated[int, typer.Option(min=1)] = 16,
    config: Path | None = None,
    field: Annotated[bool, typer.Option("--field")] = False,
    turns: Annotated[bool, typer.Option("--turns")] = False,
    optimum: Annotated[bool, typer.Option("--optimum")] = False,
    output: Path | None = None,
    save: bool = True,
    home: Home = None,
) -> None:
    """Compute by exact enumeration what each loss optimises: its bias for every objective, and its
    variance.

    With --checkpoint, estimate on a real policy instead: compare each loss's gradient, from samples
    that are some rollouts old, with the on-policy gradient of the same objective.

    Args:
        name: Algorithm; the whole catalogue if omitted.
        checkpoint: Measure on a real policy instead: a checkpoint of the embedded trainer,
            RUN/STEP; RUN/0: its start.
        staleness: With --checkpoint: how many rollouts old its samples are; training continues for
            that many.
        beta: With --checkpoint: strength of every KL. Default: the run's, or 0.3.
        blocks: With --checkpoint: the number of independent blocks of samples.
        prompts: With --checkpoint: groups of responses per block.
        config: Say what the loss of a configuration of verl, TRL, prime-rl or open-instruct
            follows.
        field: Measure every loss as other trainers ship it, in one table.
        turns: Say which losses stay exact where an environment has turns (docs/losses/turns.md).
        optimum: Say where each loss ends if it is followed for ever on a policy that can be
            enumerated (docs/losses/optimum.md).
        output: Write a table (.md) instead; with --field also a page (.html), with --optimum a
            drawing (.svg).
        save: Save the result for the database and the dashboard.
    """
    from rpg.auditing import audit as audit_one
    from rpg.auditing import audit_catalogue
    from rpg.catalogue import algorithm

    asked = [config is not None, field, turns, optimum]
    foreign = any(asked)
    if output is not None and (as_json or not foreign):
        refuse("--output: only with --config FILE, --field, --turns or --optimum, without --json")
    if checkpoint is None and (staleness, beta, blocks, prompts) != (1, None, 16, 16):
        refuse("--staleness, --beta, --blocks and --prompts: only with --checkpoint RUN/STEP")
    if foreign:
        if sum([*asked, name is not None, checkpoint is not None]) > 1:
            refuse(
                "--config, --field, --turns and --optimum cannot be combined, nor with a name or "
                "--checkpoint"
            )
        _on_other_losses(config, turns, optimum, output, as_json)
        return
    if checkpoint is not None:
        settings = {"staleness": staleness, "beta": beta, "blocks": blocks, "prompts": prompts}
        _on_checkpoint(checkpoint, name, as_json, layout_at(home).home, settings)
        return
    chosen = algorithm(name, preset) if name else None
    with error_console.status(_WAITING):
        report = audit_one(chosen) if chosen else audit_catalogue()
    text = report.to_json()
    if as_json:
        print(text)
    else:
        console.print(report.table(console.width))
    if save:
        file = f"{name or 'catalogue'}{'-released' if preset == 'released' else ''}.json"
        atomic_write_text(layout_at(home).audits / file, text)


def _on_other_losses(
    config: Path | None, turns: bool, optimum: bool, output: Path | None, as_json: bool
) -> None:
    """Print, or write to `output`, what --config, --turns, --optimum or --field finds."""
    from rich.markdown import Markdown

    from rpg.auditing import audit_field, shipped, turn_audit
    from rpg.auditing import optimum as ends_of_flows
    from rpg.auditing.linter import lint

    _check_ending(output, drawn=optimum, only_table=turns or config is not None)
    with error_console.status(_WAITING):
        rows: Sequence[Any]
        if config is not None:
            rows = lint(config)
            text = "\n".join(f"- {line}" for line in rows)
        elif turns:
            rows = turn_audit.audit_turns()
            text = turn_audit.as_markdown(rows)
        elif optimum:
            rows = ends_of_flows.ends()
            text = ends_of_flows.as_markdown(rows)
        else:
            rows, corrections, absent = audit_field()
            text = f"{shipped.losses_markdown(rows)}\n{shipped.corrections_markdown(corrections)}"
            for peer, reason in absent.items():
                complain(f"! left out: {peer} ({reason})", "yellow")
    data = json.dumps(rows, default=asdict, ensure_ascii=False, allow_nan=False)
    if as_json:
        print(data)
    elif output is None:
        console.print(text if config else Markdown(text), markup=False, highlight=False)
    else:
        if output.suffix == ".html":
            from rpg.report.sweep_report import field_page

            text = field_page(data, [asdict(row) for row in corrections])
        elif output.suffix == ".svg":
            text = _drawing_of_ends(json.loads(data))
        atomic_write_text(output, text)
        complain(f"wrote {output}")


def _check_ending(output: Path | None, *, drawn: bool, only_table: bool) -> None:
    """Refuse an output of another kind than what is asked for has."""
    endings = [".md"]
    if drawn:
        endings.append(".svg")
    elif not only_table:
        endings.append(".html")
    if output is not None and output.suffix not in endings:
        refuse(f"--output {output}: the name must end in {' or '.join(endings)}")


def _drawing_of_ends(rows: Sequence[Mapping[str, Any]]) -> str:
    from rpg.auditing.optimum import reference_answers
    from rpg.report.exports import chart_svg
    from rpg.report.optimum_chart import ends_chart

    return chart_svg(ends_chart(reference_answers(), rows))


def _on_checkpoint(
    path: Path, name: str | None, as_json: bool, home: Path, settings: dict[str, Any]
) -> None:
    from rpg.backends.local.checkpoint_fidelity import Settings, fidelity
    from rpg.store.run_folder import RunFolder

    number = path.name.removeprefix("step-")
    folder = path.parent.parent if path.parent.name == "checkpoints" else path.parent
    if not number.isdecimal() or not (folder / "manifest.json").is_file():
        own = "the checkpoint's own folder, RUN/checkpoints/step-000040"
        refuse(f"--checkpoint {path}: expected the folder of a run and a step, RUN/40, or {own}")
    said = time.monotonic()
    with error_console.status("measuring ...") as status:

        def tell(line: str) -> None:
            nonlocal said
            status.update(line)
            if not error_console.is_terminal and time.monotonic() > said + _SAY_SECONDS:
                said = time.monotonic()
                complain(line)

        named = [name] if name else ()
        run = RunFolder(folder.absolute())
        measured = fidelity(run, int(number), home, Settings(names=named, **settings), say=tell)
    if as_json:
        print(json.dumps(asdict(measured), ensure_ascii=False).replace("NaN", "null"))
    else:
        console.print(_fidelity_table(measured))
    unclear = [row.name for row in measured.rows if row.unclipped.needs_more_samples]
    if unclear:
        more = f"--blocks {2 * settings['blocks']} --prompts {2 * settings['prompts']}"
        names = ", ".join(unclear[:3])
        if len(unclear) > 3:
            names += ", ..."
        why = (
            f"the cosines of {len(unclear)} of {len(measured.rows)} losses are too uncertain to "
            "conclude anything"
        )
        complain(f"! {why} ({names}); measure with more samples: {more}", "yellow")


def _fidelity_table(measured: "Fidelity") -> Table:
    table = _titled(
        f"{measured.run}: policy of step {measured.policy_step}, samples of step "
        f"{measured.sampler_step}, "
        f"KL(sampler‖policy) {measured.kl:.2g} nats per token (k3)",
        f"against the on-policy gradient of the same objective, β = {measured.beta:g}, "
        "reference: initial model; "
        f"{measured.responses} responses on either side in {measured.blocks} blocks, "
        f"{measured.coordinates:,} of "
        f"{measured.parameters:,} coordinates; 95 % bootstrap intervals. With a clip: the "
        "algorithm's own. "
        "bias: |gradient − on-policy gradient| / |on-policy gradient|",
    )
    table.add_column("loss", no_wrap=True)
    table.add_column("objective")
    for heading in ("cosine", "bias", "clip: cosine", "clip: bias"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in measured.rows:
        objective = "R" + ("" if row.divergence == "none" else f"−β{row.divergence.upper()}")
        estimates = [row.unclipped.cosine, row.unclipped.bias]
        if row.clipped is not None:
            estimates += [row.clipped.cosine, row.clipped.bias]
        shown = [
            "?" if math.isnan(at) else f"{at:.2f} [{low:.2f}, {high:.2f}]"
            for at, low, high in estimates
        ]
        table.add_row(row.name, objective, *shown)
    return table


@app.command()
def paper(what: Annotated[Literal["tables", "lint"], typer.Argument()] = "tables") -> None:
    """Show the published tables of the RPG paper, or check them for impossible values.

    Args:
        what: lint lists published values that cannot be correct.
    """
    from rpg.report.paper import lint
    from rpg.report.paper.lint import in_terminal
    from rpg.report.paper.published import tables

    console.print(tables() if what == "tables" else in_terminal(lint()))
