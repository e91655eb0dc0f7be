"""`rpg report SWEEP --paper FOLDER`: tables, figures, references and a reproducibility appendix for a LaTeX paper."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import vl_convert

from rpg.metrics import shown as shown_metrics
from rpg.report import charts, curves, tables
from rpg.report.summary import MEAN, Summary, history, summarise
from rpg.report.sweep_report import POINTS as POINTS_PER_CURVE
from rpg.report.sweep_report import sweep_curves
from rpg.report.theme import specification, themed
from rpg.store import Layout, StoreError, atomic_write_bytes, atomic_write_text, queries
from rpg.store.database import connect

INCHES = {1: 5.5, 2: 6.75}
"""The width of the text, by the paper's columns; a column of two is 3.25 inches wide."""
POINTS = 72
"""Units of a PDF per inch: a chart of that width needs no scaling, and its letters keep their size."""


def write_paper(layout: Layout, sweep: str, folder: Path, columns: int = 2) -> list[Path]:
    """Write tables.tex, curves.pdf, differences.pdf, appendix.tex and references.bib; their paths. Vector graphics with
    their fonts inside. Raises StoreError: a file cannot be written.
    """
    with connect(layout) as db:
        summary = summarise(db, sweep, past=history(layout, sweep))
        curve_data = sweep_curves(db, summary, POINTS_PER_CURVE)
        files: dict[str, str | bytes] = {
            "tables.tex": tables.latex(summary, columns),
            "appendix.tex": appendix(db, summary),
            "references.bib": references(db, sweep),
        }
    labels = [summary.labels[variant] for variant in summary.variants]
    judged = tables.judged(summary)
    width = (3.25 if columns == 2 else INCHES[1]) * POINTS
    if len(judged):
        chart = charts.differences(judged, tables.baseline_label(summary), labels).properties(
            width=width - 30
        )
        files["differences.pdf"] = _pdf(specification(themed(chart)))
    if not curve_data.empty:
        across = 2 if columns == 2 else 3
        names = [MEAN, *summary.benchmarks, *shown_metrics()]
        panels = curves.panels(curve_data, labels, names, [MEAN, *summary.benchmarks])
        each = (INCHES[columns] * POINTS - 60 * across) / across
        drawn = [panel.properties(width=each, height=0.6 * each) for panel in panels]
        files["curves.pdf"] = _pdf(curves.still(specification(curves.figure(drawn, "", [], columns=across))))
    for name, content in files.items():
        write = atomic_write_bytes if isinstance(content, bytes) else atomic_write_text
        write(folder / name, content)  # type: ignore[arg-type]
    return [folder / name for name in files]


def _pdf(spec: dict[str, Any]) -> bytes:
    return bytes(vl_convert.svg_to_pdf(vl_convert.vegalite_to_svg(spec)))


def references(db: duckdb.DuckDBPyConnection, sweep: str) -> str:
    """BibTeX of what was compared, by the citations of its algorithms, and of this project."""
    entries = resources.files("rpg.report").joinpath("references.bib").read_text("utf-8").splitlines()
    known = {re.match(r"@\w+\{([^,]+)", line)[1]: line for line in entries}  # type: ignore[index]
    found = {"arxiv:2505.17508": known["arxiv:2505.17508"]}
    for run in queries.manifests(db, sweep).values():
        citation = str(run["spec"].get("algorithm", {}).get("citation", ""))
        for number in re.findall(r"arXiv (\d{4}\.\d{5})", citation):
            who = citation.partition(",")[0].replace(" et al.", " and others")
            fields = f"title = {{{citation}}}, author = {{{who}}}, eprint = {{{number}}}, archivePrefix = {{arXiv}}"
            found[f"arxiv:{number}"] = known.get(f"arxiv:{number}", f"@misc{{arxiv:{number}, {fields}}}")
        if citation.startswith("Williams"):
            found["williams1992"] = known["williams1992"]
    own = "@software{rpglab, title = {rpg-lab}, author = {{The rpg-lab maintainers}}, note = {Apache-2.0}}"
    return "\n".join([*found.values(), own]) + "\n"


def appendix(db: duckdb.DuckDBPyConnection, summary: Summary) -> str:
    """What somebody needs who repeats the runs: settings, seeds, compute, versions and digests."""
    manifests = queries.manifests(db, summary.sweep)
    if not manifests:
        raise StoreError(f"{summary.sweep}: no run has begun here, so there is nothing to describe")
    parts = [
        r"% needs \usepackage{booktabs,longtable}",
        rf"\section{{Reproducing {tables.tex(summary.sweep)}}}",
    ]
    parts += [tables.tex(summary.question)] if summary.question else []
    seeds = sorted({run["seed"] for run in manifests.values()})
    parts += [
        f"Seeds: {', '.join(map(str, seeds))}; variants with the same seed share data order and initial model."
    ]
    specs = [dict(_leaves(run["spec"])) for run in manifests.values()]
    common = {
        name: value for name, value in specs[0].items() if all(spec.get(name) == value for spec in specs)
    }
    common = {name: value for name, value in common.items() if name not in ("seed", "description")}
    parts += _long("ll", ("setting", "all runs"), sorted(common.items()))
    rows = []
    for variant in summary.variants:
        spec = next(
            (dict(_leaves(run["spec"])) for run in manifests.values() if run["variant"] == variant), {}
        )
        own = [
            f"{name}: {value}"
            for name, value in sorted(spec.items())
            if name not in common and name != "seed"
        ]
        own = [text for text in own if not text.startswith(("algorithm.citation", "algorithm.description"))]
        rows.append((summary.labels[variant], "; ".join(own)))
    parts += _long("lp{0.7\\textwidth}", ("variant", "its own settings"), rows)
    grid = tables.spending_table(summary)
    parts += tables.latex_table(summary.sweep, grid, "", ()) if grid else []
    ids = {name: str((queries.run(db, summary.sweep, name) or {}).get("run_id"))[:16] for name in manifests}
    runs = [
        (name, run["seed"], ids[name], str(run["identity"].get("data", ""))[:16])
        for name, run in manifests.items()
    ]
    parts += _long("llll", ("run", "seed", "run id", "digest of the data"), runs)
    records = [
        attempts[-1]
        for attempts in queries.provenance(db, summary.sweep).values()
        if attempts and attempts[-1]
    ]
    for name, text in dict(
        pair
        for one in records
        for pair in (("code", one.get("code")), ("revision", one.get("git_revision")))
        if pair[1]
    ).items():
        parts.append(f"{name}: {tables.tex(str(text))}." + r"\\")
    for what in ("versions", "machine"):
        values = {json.dumps(one.get(what, {}), sort_keys=True) for one in records if one.get(what)}
        parts += [f"{what}: {tables.tex(_plain(json.loads(text)))}." + r"\\" for text in sorted(values)]
    return "\n".join(parts) + "\n"


def _plain(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in _leaves(values))


def _leaves(values: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{inside}{name}.")
        else:
            yield f"{inside}{name}", value if isinstance(value, str) else json.dumps(value)


def _long(columns: str, header: tuple[str, ...], rows: Any) -> list[str]:
    lines = [" & ".join(tables.tex(str(cell)) for cell in row) + r" \\" for row in rows]
    head = " & ".join(map(tables.tex, header)) + r" \\"
    return [r"{\footnotesize", rf"\begin{{longtable}}{{{columns}}}", r"\toprule", head, r"\midrule", r"\endhead", *lines,
            r"\bottomrule", r"\end{longtable}}"]  # fmt: skip
