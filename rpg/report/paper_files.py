"""`rpg report SWEEP --paper FOLDER`: tables, figures, references and a reproducibility appendix for
a LaTeX paper."""

import json
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import vl_convert

from rpg.catalogue import algorithms
from rpg.metrics import shown as shown_metrics
from rpg.report import charts, curves, tables
from rpg.report.selection import MEAN
from rpg.report.summary import Summary, record_look, summarise, terms_of
from rpg.report.sweep_report import POINTS as POINTS_PER_CURVE
from rpg.report.sweep_report import sweep_curves
from rpg.report.theme import specification, themed
from rpg.store import Layout, StoreError, atomic_write_bytes, atomic_write_text, queries
from rpg.store.current import flat
from rpg.store.database import connect
from rpg.store.queries import Database

INCHES = {1: 5.5, 2: 6.75}
"""The width of the text, by the paper's columns; a column of two is 3.25 inches wide."""
ACROSS = 3
"""Panels in a row of curves.pdf."""
STYLE = {
    "axis": {"labelFontSize": 7.5, "titleFontSize": 8, "grid": False},
    "title": {"fontSize": 7.5, "fontWeight": "normal"},
    "legend": {"labelFontSize": 8, "symbolSize": 200},
}
POINTS = 72
"""Units of a PDF per inch: a chart of that width needs no scaling, and its letters keep their size.
"""


def write_paper(layout: Layout, sweep: str, folder: Path, columns: int = 2) -> list[Path]:
    """Write tables.tex, curves.pdf, differences.pdf, appendix.tex and references.bib; their paths.
    Vector graphics with their fonts inside. Raises StoreError: a file cannot be written.
    """
    with connect(layout) as db:
        terms = terms_of(layout, sweep)
        summary = summarise(db, sweep, terms=terms)
        record_look(layout, summary, terms)
        curve_data = sweep_curves(db, summary, POINTS_PER_CURVE)
        runs = queries.manifests(db, sweep).values()
        files: dict[str, str | bytes] = {
            "tables.tex": tables.latex(summary, columns),
            "appendix.tex": appendix(db, summary),
            "references.bib": references(
                run["spec"].get("algorithm", {}).get("name", "") for run in runs
            ),
        }
    width = (3.25 if columns == 2 else INCHES[1]) * POINTS
    chart = charts.differences(summary)
    if chart:
        files["differences.pdf"] = _pdf(
            specification(themed(chart.properties(width=width - 36))), width
        )
    if not curve_data.empty:
        names = [MEAN, *summary.benchmarks, *shown_metrics()]
        labels = list(summary.series.values())
        panels = curves.panels(curve_data, labels, names, [MEAN, *summary.benchmarks])
        each = (INCHES[columns] * POINTS - 60 * ACROSS) / ACROSS
        drawn = [panel.properties(width=each, height=0.6 * each) for panel in panels]
        figure = curves.still(specification(curves.figure(drawn, "", [], columns=ACROSS)))
        files["curves.pdf"] = _pdf(figure, INCHES[columns] * POINTS)
    for name, content in files.items():
        write = atomic_write_bytes if isinstance(content, bytes) else atomic_write_text
        write(folder / name, content)  # type: ignore[arg-type]
    return [folder / name for name in files]


def _pdf(spec: dict[str, Any], width: float) -> bytes:
    """Vectors, as wide as given: names that jut out of a chart made it wider."""
    config = {part: spec["config"].get(part, {}) | change for part, change in STYLE.items()}
    svg = ElementTree.fromstring(
        vl_convert.vegalite_to_svg(spec | {"config": spec["config"] | config})
    )
    drawn = float(svg.attrib["width"])
    height = float(svg.attrib["height"])
    svg.attrib |= {"width": f"{width:.2f}", "height": f"{height * width / drawn:.2f}"}
    return bytes(vl_convert.svg_to_pdf(ElementTree.tostring(svg, "unicode")))


def references(names: Iterable[str]) -> str:
    """BibTeX of this project, of the paper, and of the algorithms of these names that a paper
    describes."""
    lines = resources.files("rpg.report").joinpath("references.bib").read_text("utf-8").splitlines()
    entries = {re.match(r"@\w+\{([^,]+)", line)[1]: line for line in lines}  # type: ignore[index]
    catalogue = algorithms()
    cited = {key: entries[key] for key in ("rpglab", "arxiv:2505.17508")}
    for citation in (catalogue[name].citation for name in names if name in catalogue):
        for key in citation_keys(citation):
            # An algorithm of somebody's own may cite what references.bib lacks.
            cited[key] = entries.get(key, f"@misc{{{key}, title = {{{citation}}}}}")
    return "\n".join(cited.values()) + "\n"


def citation_keys(citation: str) -> list[str]:
    """Keys in references.bib: `arxiv:2402.03300`, or the first author and the year,
    `williams1992`."""
    numbers = re.findall(r"arXiv (\d{4}\.\d{5})", citation)
    author = re.split(r",| et al", citation)[0].lower()
    return [f"arxiv:{number}" for number in numbers] or [author.replace(" ", "-") + citation[-4:]]


def appendix(db: Database, summary: Summary) -> str:
    """What somebody needs who repeats the runs: settings, seeds, compute, versions and digests."""
    manifests = queries.manifests(db, summary.sweep)
    if not manifests:
        raise StoreError(
            f"{summary.sweep}: no run was trained here; --paper needs one with known settings"
        )
    seeds = ", ".join(map(str, sorted({run["seed"] for run in manifests.values()})))
    parts = [
        r"% In the preamble: \usepackage{array,booktabs,longtable,tabularx}. Long tables "
        r"take a single column.",
        r"\makeatletter\if@twocolumn\onecolumn\fi\makeatother",
        rf"\section{{Reproducing {tables.tex(summary.sweep)}}}",
    ]
    parts += [tables.tex(summary.question)] if summary.question else []
    shared = "share data order and, where their models have the same settings, the initial model"
    parts += [f"Seeds: {seeds}; variants with the same seed {shared}."]
    specs = {run["variant"]: _leaves(run["spec"]) for run in manifests.values()}
    for prose in ("seed", "description", "algorithm.citation", "algorithm.description"):
        for spec in specs.values():
            spec.pop(prose, None)
    first = next(iter(specs.values()))
    common = {
        name: text
        for name, text in first.items()
        if all(s.get(name) == text for s in specs.values())
    }
    parts += _long((0.45, 0.5), ("setting", "all runs"), sorted(common.items()))
    differing = []
    for variant, spec in specs.items():
        texts = [f"{name}: {spec[name]}" for name in sorted(spec.keys() - common.keys())]
        differing.append((summary.labels.get(variant, variant), "; ".join(texts)))
    parts += _long((0.2, 0.75), ("variant", "its own settings"), differing)
    grid = tables.spending_table(summary)
    if grid:
        parts += tables.latex_table(summary.sweep, grid._replace(key="spent-in-all"), columns=1)
    runs = [
        (
            name,
            run["seed"],
            str(run["run_id"])[:16],
            str(run.get("identity", {}).get("data", ""))[:16],
        )
        for name, run in manifests.items()
    ]
    parts += _long((0.38, 0.07, 0.2, 0.2), ("run", "seed", "run id", "digest of the data"), runs)
    records = [
        attempts[-1] for attempts in queries.provenance(db, summary.sweep).values() if attempts
    ]
    for what in ("code", "git_revision", "versions", "machine"):
        leaves = [_leaves(record[what]).items() for record in records if record.get(what)]
        shown = {", ".join(f"{name} {text}".strip() for name, text in each) for each in leaves}
        parts += [
            rf"{{\raggedright {what.replace('_', ' ')}: {tables.breakable(text)}.\par}}"
            for text in sorted(shown)
        ]
    return "\n".join(parts) + "\n"


def _leaves(values: Any) -> dict[str, str]:
    return {
        name: text if isinstance(text, str) else json.dumps(text)
        for name, text in flat(values).items()
    }


def _long(shares: tuple[float, ...], header: tuple[str, ...], rows: Any) -> list[str]:
    """A table over pages; `shares` of the text's width, whose rest is between the columns."""
    lines = [" & ".join(tables.breakable(str(cell)) for cell in row) + r" \\" for row in rows]
    head = " & ".join(map(tables.tex, header)) + r" \\"
    columns = "".join(
        rf">{{\raggedright\arraybackslash}}p{{{share}\linewidth}}" for share in shares
    )
    return [
        r"{\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\begin{{longtable}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        head,
        r"\midrule",
        r"\endhead",
        *lines,
        r"\bottomrule",
        r"\end{longtable}}",
    ]
