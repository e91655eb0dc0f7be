"""The commands `rpg status` and `rpg report`: the state of every run, and the comparison of variants."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rpg.cli.app import Home, app, complain, console, layout_at, require_sweep, say


@app.command()
def status(
    sweep: Annotated[str | None, typer.Argument()] = None,
    home: Home = None,
    watch: Annotated[bool, typer.Option("--watch")] = False,
) -> None:
    """Show the state of every run, read from its files.

    Args:
        sweep: Name of the sweep; all sweeps if omitted.
        watch: Update until Ctrl-C.
    """
    import time

    from flows.monitor import Watch, headline, table
    from rpg.next_steps import command
    from rpg.store.current import current_runs, is_imported, superseded
    from rpg.store.live_status import read_problems
    from rpg.store.run_provenance import provenance_notes

    layout = layout_at(home)
    for problem in read_problems(layout.home):
        complain(f"rpg serve: {problem}")
    sweeps = layout.sweeps()
    if sweep:
        require_sweep(sweep, layout)
    if not sweeps:
        start = command("sweep", "quickstart", layout=layout)
        say(f"no sweeps in {layout.home} yet; start one with: {start}")
        return
    watches = {name: Watch(current_runs(layout, name)) for name in ([sweep] if sweep else sweeps)}
    computed = {
        name: provenance_notes(folder for folder in current_runs(layout, name) if not is_imported(folder))
        for name in watches
    }
    while True:
        for name, watch_ in watches.items():
            views = watch_.views()
            console.print(headline(name, views, "", None))
            console.print(table(views))
            if (jobs := layout.sweep_folder(name) / ".slurm").is_dir():
                say(f"  Slurm's words about its jobs: {jobs}; what a run says: log.txt in its folder", "dim")
            for line in computed[name]:
                say(f"  ! {line}", "yellow")
            for run, why in superseded(layout, name).items():
                say(f"  superseded: {run}: {why}", "dim")
        if not watch:
            return
        time.sleep(2)


@app.command()
def report(
    sweep: str,
    at: Literal["tokens", "seconds"] = "tokens",
    paper: Path | None = None,
    columns: Annotated[int, typer.Option(min=1, max=2)] = 2,
    home: Home = None,
) -> None:
    """Compare the variants of a sweep: last and best with intervals. Writes PNG, SVG, HTML, Markdown and LaTeX.

    The page *Compare* of the dashboard makes one HTML file of several sweeps, or of a selection.

    Args:
        sweep: Name of a sweep, e.g. quickstart.
        at: If spending is unequal: compare at equal tokens or at equal seconds, too.
        paper: Write tables, figures, BibTeX and a reproducibility appendix for LaTeX to this folder.
        columns: With --paper: columns of its page.
    """
    from rpg.report.paper_files import write_paper
    from rpg.report.sweep_report import print_report, write_report
    from rpg.store.database import build

    layout = layout_at(home)
    require_sweep(sweep, layout)
    build(layout)
    write_report(layout, sweep)
    print_report(layout, sweep, console, at)
    for path in write_paper(layout, sweep, paper, columns) if paper else ():
        complain(f"wrote {path}")
