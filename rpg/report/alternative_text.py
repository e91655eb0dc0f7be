"""What a chart shows, in words, for those who cannot see it: Vega gives the text to screen readers,
and the files of charts keep it."""

from collections.abc import Callable
from operator import itemgetter

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
    known = data.dropna(subset=[x, y])
    points: dict[str, list[tuple[float, float, bool]]] = {}
    columns = (known["label"], known[x], known[y], resolution.is_below(known))
    for label, at, value, is_below in zip(*columns, strict=True):
        points.setdefault(label, []).append((at, value, is_below))
    told = []
    for label, line in points.items():
        ordered = sorted(line, key=itemgetter(0))
        ends = ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]
        places = [
            f"{BELOW_ROUNDING if is_below else show(value)} at {measured(at)}"
            for at, value, is_below in ends
        ]
        told.append(f"{label} {', '.join(places)}")
    return sentence(f"{heading} over {across}" if across else heading, told)


def sentence(heading: str, parts: list[str]) -> str:
    """The heading and the first parts, with how many are left out."""
    more = [f"and {len(parts) - MOST} more"] if len(parts) > MOST else []
    return f"{heading}: {'; '.join([*parts[:MOST], *more]) or 'no data'}"
