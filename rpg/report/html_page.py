"""Tables and charts as one HTML file that needs no other file and no network."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
import markupsafe
import vl_convert

from rpg.report import charts, tables
from rpg.report.summary import Summary
from rpg.report.theme import specification, themed
from rpg.store import StoreError, atomic_write_text, user_cache


@dataclass(frozen=True)
class Section:
    """A part of a page. `charts`: (title, specification)."""

    title: str
    grids: Sequence[tables.Grid] = ()
    charts: Sequence[tuple[str, dict[str, Any]]] = ()
    caption: Sequence[str] = ()
    notes: Sequence[str] = ()
    lines: Sequence[str] = ()
    """Sentences before everything else."""


def section(summary: Summary, specs: Sequence[tuple[str, dict[str, Any]]] = (), title: str = "") -> Section:
    """The tables of a sweep, the chart of its differences from the baseline, and the charts `specs`."""
    judged = tables.judged(summary)
    drawn = list(specs)
    if len(judged):
        chart = charts.differences(judged, tables.baseline_label(summary))
        drawn.insert(0, ("What is real", specification(themed(chart))))
    lines = [summary.spending] if summary.spending else []
    if summary.table.empty:
        lines = ["No checkpoint has been evaluated on all benchmarks yet."]
    return Section(
        title,
        tables.grids(summary),
        drawn,
        tables.caption(summary),
        summary.notes,
        lines,
    )


def document(title: str, sections: Sequence[Section]) -> str:
    """The page. All of it is escaped, except for the library that draws the charts."""
    template = jinja2.Environment(autoescape=True).from_string(
        resources.files("rpg.report").joinpath("page.html").read_text("utf-8")
    )
    parts, count = [], 0
    for part in sections:
        numbered = [(count + i, name, _script(spec)) for i, (name, spec) in enumerate(part.charts, 1)]
        count += len(numbered)
        parts.append((part, numbered))
    code = markupsafe.Markup(library().replace("</script", "<\\/script"))
    return template.render(title=title, sections=parts, count=count, library=code)


def library() -> str:
    """The JavaScript that draws charts; cached, because bundling it takes more than a second."""
    cache = user_cache() / f"vega-{vl_convert.__version__}.js"  # type: ignore[attr-defined]  # lacks in its stubs
    if cache.is_file():
        return cache.read_text("utf-8")
    code: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stubs ask for an optional argument
    with contextlib.suppress(OSError, StoreError):  # the cache cannot be written: bundled again each time
        atomic_write_text(cache, code)
    return code


def _script(spec: dict[str, Any]) -> markupsafe.Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(spec, separators=(",", ":"))
    return markupsafe.Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
