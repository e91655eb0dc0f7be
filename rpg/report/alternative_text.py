"""What a chart shows, in words, for those who cannot see it: Vega gives the text to screen readers,
and the files of charts keep it."""

from collections.abc import Callable

import pandas

from rpg.metrics import BELOW_ROUNDING
from rpg.report import resolution
from rpg.report.format import measured

MOST = 12
"""Lines of a chart that are told."""


def lines(
    heading: str,
    data: pandas.DataFrame,
    x: str = "x",
    y: str = "mean",
    across: str = "",
    show: Callable[[float], str] = measured,
) -> str:
    """The first and the last point of every line: `Accuracy over step: GRPO 0.531 at 0, 0.660 at
    15`; `show` writes the values of `y`.

    `data` has columns label, `x` and `y`, a row per point, and those of rpg.report.resolution;
    `across` is what `x` measures.
    """
    told = []
    for label, part in data.dropna(subset=[x, y]).groupby("label", sort=False):
        points = part.sort_values(x)
        ends = points.iloc[[0]] if len(points) == 1 else points.iloc[[0, -1]]
        below = resolution.is_below(ends)
        places = [
            f"{BELOW_ROUNDING if below[row] else show(end[y])} at {measured(end[x])}"
            for row, end in ends.iterrows()
        ]
        told.append(f"{label} {', '.join(places)}")
    return sentence(f"{heading} over {across}" if across else heading, told)


def sentence(heading: str, parts: list[str]) -> str:
    """The heading and the first parts, with how many are left out."""
    more = [f"and {len(parts) - MOST} more"] if len(parts) > MOST else []
    return f"{heading}: {'; '.join([*parts[:MOST], *more]) or 'no data'}"
