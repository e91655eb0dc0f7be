"""The command `rpg publish`: a sweep, a study or the nights of a set as a page to give away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rpg.cli.app import Home, app, layout_at, refuse, require_named, say, size_text
from rpg.cli.recorded import result
from rpg.errors import plural

if TYPE_CHECKING:
    from rpg.report.publishing import Publication
    from rpg.store import Layout

SHIPPED = "nightly"
"""Name of the set of nights of the shipped sweeps, configs/nightly."""


@app.command()
def publish(
    name: str,
    out: Path | None = None,
    samples: Annotated[float, typer.Option(min=0.0, max=500.0)] = 5.0,
    kind: Literal["sweep", "study", "nights"] | None = None,
    home: Home = None,
) -> int:
    """Write a page to give away: it opens from a file or any web host, needs no server and loads
    nothing from elsewhere.

    It shows what the report shows, with interactive charts, every run, tables to save, and graded
    samples. It replaces an earlier page as a whole.

    Args:
        name: Name of a sweep, of a study, or of a set of nights (nightly: the shipped set).
        out: Folder to write to. Default: published/NAME.
        samples: Megabytes of samples; 0: none.
        kind: Whether a sweep, a study or nights are meant, if several have this name.
    """
    from rpg.report.published_samples import MEGABYTE
    from rpg.report.publishing import INDEX, write
    from rpg.store.database import build

    layout = layout_at(home)
    build(layout)
    of = kind or _kind(layout, name)
    publication = _publication(layout, of, name, round(samples * MEGABYTE))
    folder = Path("published") / name if out is None else out
    files = write(publication, folder, layout)
    size = sum(path.stat().st_size for path in files)
    count = len(publication.samples.rows)
    result(kind=of, name=name, page=folder / INDEX, files=files, samples=count, bytes=size)
    say(f"{folder / INDEX}: {plural(len(files), 'file')}, {size_text(size)}")
    if publication.samples.total:
        say(f"with {publication.samples.count}: the last checkpoint of one seed of each variant")
    return 0


def _kind(layout: Layout, name: str) -> str:
    """What there is of this name. Raises ConfigError: nothing, or several."""
    from rpg.study.trials import studies

    named = {
        "sweep": layout.sweeps(),
        "study": studies(layout),
        "nights": _sets(layout),
    }
    kinds = [kind for kind, names in named.items() if name in names]
    if len(kinds) > 1:
        refuse(f"{name!r} is the name of a {' and of '.join(kinds)}; add --kind {kinds[0]}")
    if not kinds:
        everything = [each for names in named.values() for each in names]
        require_named("sweep, study or set of nights", name, everything, layout)
    return kinds[0]


def _sets(layout: Layout) -> list[str]:
    """Names of the sets with nights."""
    home = layout.home / "nightly"
    shipped = [SHIPPED] if any(home.glob("*.json")) else []
    return shipped + sorted({path.parent.name for path in home.glob("*/*.json")})


def _publication(layout: Layout, kind: str, name: str, budget: int) -> Publication:
    from rpg.report.nightly_bands import read_nights
    from rpg.report.publishing import of_nights, of_sweep
    from rpg.store.database import connect
    from rpg.study.study_report import publication

    if kind == "sweep":
        require_named("sweep", name, layout.sweeps(), layout)
        with connect(layout) as db:
            return of_sweep(layout, db, name, budget)
    if kind == "study":
        return publication(layout, name, budget)
    home = layout.home / "nightly"
    nights = read_nights(home if name == SHIPPED else home / name, "")
    if not nights:
        refuse(f"no nights of a set {name!r} in {home}; there are: {', '.join(_sets(layout))}")
    return of_nights(name, nights)
