"""The command `rpg study`: variants tuned with equal effort, registered, and compared on seeds that
were not tuned on."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rpg.cli.app import Home, app, columns, complain, console, layout_at, refuse, require_named, say
from rpg.cli.execution import Workers, conduct_study, stopped
from rpg.cli.recorded import result
from rpg.next_steps import command, this_again
from rpg.store import Layout


@app.command()
def study(
    words: Annotated[list[str], typer.Argument(metavar="FILE | status NAME")],
    only: Literal["tune", "register", "report"] | None = None,
    register_again: Annotated[bool, typer.Option("--register-again")] = False,
    home: Home = None,
    workers: Workers = None,
) -> int:
    """Tune every variant with equal effort, register what will be compared, then compare it on
    other seeds.

    Run it again and it goes on with the same trials. `rpg study status NAME` says how far a study
    is.

    Args:
        words: Study file (YAML), or the name of a shipped one, e.g. first-study.
        only: Only this step; default: all three.
        register_again: Register the changed file; the former record stays, and reports say so.
    """
    from rpg.config.shipped import find
    from rpg.study.spec import load_study

    layout = layout_at(home)
    if words[0] == "status" and len(words) == 2:
        _status(layout, words[1])
        return 0
    if len(words) != 1 or words[0] == "status":
        refuse(f"study {' '.join(words)}: expected a study file, or: status NAME")
    loaded = load_study(find(Path(words[0])))
    try:
        error = conduct_study(loaded, layout, workers, only, register_again)
    except KeyboardInterrupt:
        return stopped()
    _status(layout, loaded.spec.name)
    if only in (None, "report") and not error:
        _write_report(layout, loaded.spec.name)
    if error:
        complain(f"error: {error}")
        complain(f"not finished; try again with: {this_again()}")
    return 1 if error else 0


def _write_report(layout: Layout, name: str) -> None:
    """Write the study's report, unless it is newer than the reported runs."""
    from rpg.study.registration import registration

    record = registration(layout, name)
    page = layout.study_folder(name) / "report" / "report.html"
    done = [layout.run(record.sweep, run).done_path for run in record.runs] if record else []
    newest = max((path.stat().st_mtime for path in done if path.exists()), default=0.0)
    if not page.exists() or page.stat().st_mtime < newest:
        from rpg.store.database import build
        from rpg.study.study_report import write_study_report

        with console.status(f"{name}: writing the report"):
            build(layout)
            write_study_report(layout, name)
    say(f"the report: {page}")


def _status(layout: Layout, name: str) -> None:
    """Every variant's trials, what is registered, and how far the reported runs are."""
    from rpg.study.registration import is_at_a_look, registration, runs_done
    from rpg.study.status import headings, sentences, state
    from rpg.study.trials import studies

    require_named("study", name, studies(layout), layout)
    table = columns(*headings, right=headings[1:6])
    rows = state(layout, name)
    result(study=name, variants=[dict(zip(headings, row, strict=True)) for row in rows])
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in sentences(layout, name):
        say(f"! {line}", "yellow")
    record = registration(layout, name)
    if record is None:
        say("nothing is registered yet")
        return
    done = runs_done(layout, record)
    result(registered=record.digest, deviations=record.deviations, runs_done=len(done))
    badge = "changed since" if record.deviations else "unchanged since"
    say(f"registered, digest {record.digest}: {badge}")
    for line in record.deviations:
        say(f"! {line}", "yellow")
    say(f"{len(done)} of {len(record.runs)} reported runs are done")
    if is_at_a_look(layout, record):
        say(f"compare the variants with: {command('report', record.sweep, layout=layout)}")
