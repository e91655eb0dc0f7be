"""A comparison as one HTML file with its figure."""

import math
from importlib import resources
from pathlib import Path

import altair as alt
import jinja2
import markupsafe
import vl_convert

from rpg import stats
from rpg.interop.compare import words
from rpg.interop.compare.judging import Comparison
from rpg.report.theme import COLOURS, specification, themed


def write_files(comparison: Comparison, folder: Path) -> list[Path]:
    """Write compare.html, compare.svg and compare.png; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawing = vl_convert.vegalite_to_svg(figure(comparison))
    html = folder / "compare.html"
    svg = folder / "compare.svg"
    png = folder / "compare.png"
    html.write_text(page(comparison, drawing), "utf-8")
    svg.write_text(drawing, "utf-8")
    png.write_bytes(vl_convert.svg_to_png(drawing, scale=2))
    return [html, svg, png]


def page(comparison: Comparison, drawing: str) -> str:
    """One HTML file that asks nothing of a network; all names in it are escaped."""
    template = resources.files("rpg.interop.compare").joinpath("page.html").read_text("utf-8")
    made = jinja2.Environment(autoescape=True).from_string(template)
    return made.render(
        title=" and ".join(comparison.models),
        conclusion=words.conclusion(comparison),
        grids=words.grids(comparison),
        figure=markupsafe.Markup(drawing),
        lines=[comparison.varies, comparison.power, words.METHOD],
        notes=comparison.notes,
    )


def figure(comparison: Comparison) -> dict[str, object]:
    """Differences with both intervals, in Vega-Lite: thick for these problems, thin for others."""
    rows = []
    for each in comparison.differences:
        label = each.model
        if len(comparison.benchmarks) > 1:
            label = f"{each.model}, {each.benchmark}"
        row = {"label": label, "model": each.model, "difference": 100 * each.difference}
        for name, verdict in (("others", each.others), ("these", each.these)):
            if not math.isnan(verdict.low):
                row[f"{name}_low"] = 100 * verdict.low
                row[f"{name}_high"] = 100 * verdict.high
        rows.append(row)
    models = comparison.models[1:]
    colours = [COLOURS[1 + place % (len(COLOURS) - 1)] for place in range(len(models))]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("label:N", sort=None, title=None),
        color=alt.Color("model:N", scale=alt.Scale(domain=models, range=colours), legend=None),
    )
    title = f"Points above {comparison.models[0]} (95 %; thick: {stats.THESE})"
    x = alt.X("others_low:Q", title=title)
    thin = base.mark_rule(strokeWidth=1.5).encode(x=x, x2="others_high:Q")
    thick = base.mark_rule(strokeWidth=4, opacity=0.6).encode(x="these_low:Q", x2="these_high:Q")
    points = base.mark_point(filled=True, size=80, opacity=1).encode(x="difference:Q")
    zero = alt.Chart(alt.Data(values=[{}])).mark_rule(strokeDash=[3, 3]).encode(x=alt.datum(0.0))
    chart = alt.layer(zero, thin, thick, points).properties(width=460)
    return specification(themed(chart))
