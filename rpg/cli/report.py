"""The commands `rpg status` and `rpg report`: the state of every run, and the comparison of variants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rpg.cli.app import Home, app, complain, console, layout_at, refuse, require_sweep, say


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
        say(
            f"no sweeps in {layout.home} yet; start one with: {command('sweep', 'quickstart', layout=layout)}"
        )
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
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP...")],
    superseded: Annotated[bool, typer.Option("--superseded")] = False,
    variant: list[str] = [],
    panel: list[str] = [],
    baseline: str | None = None,
    at: Literal["tokens", "seconds"] = "tokens",
    html: Path | None = None,
    paper: Path | None = None,
    columns: Annotated[int, typer.Option(min=1, max=2)] = 2,
    home: Home = None,
) -> None:
    """Compare the variants of a sweep: last and best with intervals. Writes PNG, SVG, HTML, Markdown and LaTeX.

    Several sweeps, or a selection of variants and panels, become one HTML file that can be shared.

    Args:
        sweeps: Names of sweeps, e.g. quickstart.
        superseded: Also show superseded runs, as separate variants.
        variant: Only this variant. Repeatable.
        panel: Only this benchmark (mean: the mean of all) or metric. Repeatable.
        baseline: Compare with this variant instead of the sweep's baseline.
        at: If spending is unequal: compare at equal tokens or at equal seconds, too.
        html: Write the selection to this self-contained file.
        paper: Write tables, figures, BibTeX and a reproducibility appendix for LaTeX to this folder.
        columns: With --paper: columns of its page.
    """
    from rpg.report.paper_files import write_paper
    from rpg.report.shared_page import Choice, default_path, print_shared, write_shared
    from rpg.report.sweep_report import print_report, write_report
    from rpg.store.database import build

    layout = layout_at(home)
    sweeps = list(dict.fromkeys(sweeps))
    for name in sweeps:
        require_sweep(name, layout)
    chosen = len(sweeps) > 1 or bool(variant or panel or baseline or html)
    if html is not None and html.suffix not in (".html", ".htm"):
        refuse(f"--html {html}: the name must end in .html")
    build(layout)
    if not chosen:
        write_report(layout, sweeps[0])
        print_report(layout, sweeps[0], console, superseded, at)
        for path in write_paper(layout, sweeps[0], paper, columns) if paper else ():
            complain(f"wrote {path}")
        return
    if paper is not None:
        refuse("--paper takes one sweep as a whole")
    choice = Choice(tuple(sweeps), tuple(variant), tuple(panel), baseline, superseded=superseded)
    path = write_shared(layout, choice, (html or default_path(layout, choice)).absolute())
    print_shared(layout, choice, console)
    say(f"wrote {path}")
