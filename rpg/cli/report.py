"""The commands `rpg status` and `rpg report`: the state of every run, and the comparison of
variants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rpg.cli.app import Home, app, complain, console, layout_at, require_named, say
from rpg.cli.recorded import result
from rpg.store.current import current_runs, is_imported, superseded
from rpg.store.damage import damage_notes
from rpg.store.notes import marked, titled

if TYPE_CHECKING:
    from flows.monitor import Watch
    from rpg.store import Layout, RunFolder


@app.command()
def status(
    sweep: Annotated[str | None, typer.Argument()] = None,
    home: Home = None,
    watch: Annotated[bool, typer.Option("--watch")] = False,
) -> int:
    """Show the state of every run, read from its files. Exit code 1 if one of them is damaged.

    Sweeps and runs tagged `hidden` are only named.

    Args:
        sweep: Name of the sweep; all sweeps if omitted.
        watch: Update until Ctrl-C.
    """
    import time

    from flows.monitor import Watch
    from rpg.next_steps import command
    from rpg.store.live_status import read_problems
    from rpg.store.run_provenance import provenance_notes

    layout = layout_at(home)
    for problem in read_problems(layout.home):
        complain(f"rpg serve: {problem}")
    for closed in layout.closed_sweeps().values():
        complain(f"! {closed}", "yellow")
    sweeps = layout.sweeps()
    if sweep:
        require_named("sweep", sweep, layout.sweeps(), layout)
    if not sweeps:
        start = command("sweep", "quickstart", layout=layout)
        say(f"no sweeps in {layout.home} yet; start one with: {start}")
        return 0
    aside = [name for name in sweeps if marked(layout.sweep_folder(name))[1] and name != sweep]
    runs = {
        name: current_runs(layout, name)
        for name in ([sweep] if sweep else sweeps)
        if name not in aside
    }
    hidden = {name: [run for run in runs[name] if marked(run.path)[1]] for name in runs}
    watches = {name: Watch([run for run in runs[name] if run not in hidden[name]]) for name in runs}
    computed = {
        name: provenance_notes(run for run in runs[name] if not is_imported(run)) for name in runs
    }
    while True:
        result(sweeps={name: watch_.views() for name, watch_ in watches.items()})
        for name, watch_ in watches.items():
            _print_sweep(layout, name, watch_, hidden[name], computed[name])
        if aside and not sweep:
            one = command("status", aside[0], layout=layout)
            say(f"hidden: {', '.join(aside)}; to see one: {one}", "dim")
        damage = [line for watch_ in watches.values() for line in watch_.damage()]
        damage += damage_notes(run for members in hidden.values() for run in members)
        for line in damage:
            complain(line)
        if not watch:
            return 1 if damage else 0
        time.sleep(2)


def _print_sweep(
    layout: Layout, name: str, watch: Watch, hidden: list[RunFolder], notes: list[str]
) -> None:
    """Its runs as they are now, but for those that are hidden."""
    from flows.monitor import headline, table

    views = watch.views()
    console.print(headline(titled(name, marked(layout.sweep_folder(name))[0]), views, "", None))
    console.print(table(views))
    if hidden:
        say(f"  hidden: {', '.join(run.name for run in hidden)}", "dim")
    jobs = layout.sweep_folder(name) / ".slurm"
    if jobs.is_dir():
        say(
            f"  Slurm's output of the jobs: {jobs}; a run's own output: log.txt in its folder",
            "dim",
        )
    for line in notes:
        say(f"  ! {line}", "yellow")
    for run, why in superseded(layout, name).items():
        say(f"  superseded: {run}: {why}", "dim")


@app.command()
def report(
    sweep: str,
    at: Literal["tokens", "seconds"] = "tokens",
    paper: Path | None = None,
    columns: Annotated[int, typer.Option(min=1, max=2)] = 2,
    home: Home = None,
) -> int:
    """Compare the variants of a sweep: last and best with intervals. Writes PNG, SVG, HTML,
    Markdown and LaTeX.

    The page *Compare* of the dashboard makes one HTML file of several sweeps, or of a selection.

    Args:
        sweep: Name of a sweep, e.g. quickstart.
        at: If spending is unequal: compare at equal tokens or at equal seconds, too.
        paper: Write tables, figures, BibTeX and a reproducibility appendix for LaTeX to this
            folder.
        columns: With --paper: columns of its page.
    """
    from rpg.report.sweep_report import as_values, print_summary, summary_of
    from rpg.report.upkeep import write
    from rpg.store.database import build

    layout = layout_at(home)
    require_named("sweep", sweep, layout.sweeps(), layout)
    build(layout)
    summary = summary_of(layout, sweep)
    write(layout, sweep, summary)
    print_summary(summary._replace(at=at), console)
    result(**as_values(summary))
    if paper:
        from rpg.report.paper_files import write_paper

        for path in write_paper(layout, sweep, paper, columns):
            complain(f"wrote {path}")
    damage = damage_notes(current_runs(layout, sweep))
    for line in damage:
        complain(line)
    return 1 if damage else 0
