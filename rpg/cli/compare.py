"""The command `rpg compare`: models compared from the files of any evaluation harness."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from rpg.cli.app import app, columns, complain, console, say
from rpg.cli.recorded import result
from rpg.errors import visible

if TYPE_CHECKING:
    from rpg.interop.compare.judging import Comparison
    from rpg.interop.compare.words import Grid


@app.command()
def compare(
    models: Annotated[list[str], typer.Argument(metavar="A B ...", show_default=False)],
    metric: str = "",
    clusters: Annotated[Path | None, typer.Option(show_default=False)] = None,
    matters: Annotated[float, typer.Option(min=0.1, max=100.0)] = 2.0,
    out: Annotated[Path | None, typer.Option(show_default=False)] = None,
) -> int:
    """Compare models from files of graded samples of lm-eval, Inspect, lighteval, verl, rpg, or
    CSV and JSON lines with the columns problem and score. The first is the baseline.

    Args:
        models: A file or folder for each model, or NAME=FILE; NAME=FILE,FILE: a file for each
            training. A table with a column model has several.
        metric: The metric that is compared, if the files have several; default: their first.
        clusters: A CSV file with the columns problem and cluster, for problems that tend to be
            solved together.
        matters: Smallest difference that matters, in points; the output says how many problems and
            samples would find it.
        out: Write a page and a figure to this folder.
    """
    from rpg.interop.compare import judging, pairing, words
    from rpg.interop.compare.rows import Choice
    from rpg.interop.compare.sources import sources_of, with_clusters

    sources = sources_of(models, Choice(metric))
    if clusters is not None:
        sources = with_clusters(sources, clusters)
    comparison = judging.compare(pairing.pair(sources), matters / 100)
    formats = {source.name: source.kind for source in sources}
    sentences = words.conclusion(comparison)
    result(comparison=comparison, formats=formats, conclusion=sentences)
    for line in sentences:
        console.print(line, style="bold", markup=False)
    for grid in words.grids(comparison):
        console.print()
        _print(grid)
    console.print()
    for line in (comparison.varies, comparison.power, words.METHOD):
        say(line)
    for note in comparison.notes:
        say(f"! {note}", "yellow")
    if out is not None:
        _write(comparison, out)
    return 0


def _write(comparison: Comparison, folder: Path) -> None:
    from rpg.interop.compare.page import write_files

    for path in write_files(comparison, folder):
        complain(f"wrote {path}")


def _print(grid: Grid) -> None:
    numbers = [name for name in grid.header if name not in ("Model", "Benchmark")]
    table = columns(*grid.header, right=numbers)
    table.title = grid.title
    for row in grid.rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(table)
