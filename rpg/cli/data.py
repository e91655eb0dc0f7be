"""The command `rpg data`: prepare and report on the problems of a run or sweep."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpg.cli.app import File, Home, Json, Set, app, columns, console, error_console, layout_at, say
from rpg.errors import plural

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec

Look = Annotated[bool, typer.Option("--look")]
_SHOWN = 8  # left-out problems of a reason that are printed; all are in dropped.jsonl


@app.command()
def data(
    file: File, set_: Set = [], home: Home = None, as_json: Json = False, look: Look = False
) -> None:
    """Prepare the problems of a run or sweep, and report what was left out and why: repeats, leaks
    into benchmarks.

    Args:
        look: Preview five problems: prompts as the model sees them, their lengths, gold answers.
    """
    from rpg.config.load import parse_assignments
    from rpg.config.sweep_spec import load_file
    from rpg.tasks.preparation import data_digest, prepare_data

    sweep = load_file(file, parse_assignments(set_), data_digest)
    if look:
        _look(sweep.runs[0].spec, layout_at(home).home)
        return
    prepared = {}
    for run in sweep.runs:
        digest = data_digest(run.spec)
        if digest not in prepared:
            with error_console.status("reading, comparing and writing problems ..."):
                prepared[digest] = prepare_data(run.spec, layout_at(home).home).train.parent
    # Data prepared by an older version is as good, but its report holds less.
    missing: dict[str, Any] = {"sources": [], "near_duplicates": [], "notes": []}
    reports = {
        digest: {
            "folder": str(folder),
            **missing,
            **json.loads((folder / "data.json").read_text("utf-8")),
        }
        for digest, folder in prepared.items()
    }
    if as_json:
        print(json.dumps(reports, indent=1, ensure_ascii=False))
        return
    for digest, report in reports.items():
        _print(digest, report)


def _look(spec: "RunSpec", home: Path) -> None:
    from rpg.models.initial_policy import preview_prompts

    with error_console.status("reading problems ..."):
        preview = preview_prompts(spec, home)
    for problem, text, tokens in preview[:5]:
        console.rule(f"{problem.id}: {tokens} tokens", align="left", characters="-")
        say(text)
        console.print("|- the response begins here", style="dim", markup=False)
        none = "no gold answer: the reward decides what is correct"
        say(f"gold {problem.answer!r}" if problem.answer else none)
        if problem.columns:
            say(f"columns for reward functions: {', '.join(problem.columns)}", "dim")
    console.rule(align="left", characters="-")
    limit = spec.rollout.max_prompt_tokens
    longest = max(tokens for *_, tokens in preview)
    told = (
        f"{plural(len(preview), 'problem')}; the longest prompt has {longest} tokens, "
        f"rollout.max_prompt_tokens is {limit}"
    )
    if longest > limit:
        say(f"! {told}", "yellow")
    else:
        say(told)


def _print(digest: str, report: dict[str, Any]) -> None:
    headings = ("problems", "from", "rows", "distinct", "left out", "kept", "digest")
    table = columns(*headings, right=("rows", "distinct", "kept"))
    for part in report["sources"]:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in part["dropped"].items())
        table.add_row(
            part["name"],
            part["source"],
            f"{part['rows']:,}",
            f"{part['distinct']:,}",
            dropped or "-",
            f"{part['kept']:,}",
            part["digest"],
        )
    if not report["sources"]:  # made by code, or prepared by an older version
        source = ", ".join(report["files"]) or "made by code"
        for name, count in report["problems"].items():
            table.add_row(name, source, "", "", "-", f"{count:,}", "")
    console.print(table, markup=False)
    folder = Path(report["folder"])
    if (folder / "dropped.jsonl").is_file():
        left_out = [json.loads(line) for line in (folder / "dropped.jsonl").open(encoding="utf-8")]
        for reason in ("leaked", "two answers"):  # the other reasons are what the file asks for
            problems = [problem for problem in left_out if problem["reason"] == reason]
            for problem in problems[:_SHOWN]:
                text = " ".join(problem["text"].split())[:70]
                say(f"{reason}: {problem['problem']}, {problem['detail']}: {text}")
            if len(problems) > _SHOWN:
                console.print(
                    f"{reason}: {len(problems) - _SHOWN} more in dropped.jsonl", style="dim"
                )
    for name, count in Counter(pair["benchmark"] for pair in report["near_duplicates"]).items():
        say(f"{name}: {count} pairs of its problems are near duplicates; all are kept", "dim")
    for note in report["notes"]:
        say(f"! {note}", "yellow")
    say(f"data {digest}: {folder}")
