"""Tables and figures in docs/ that come from results, made from the results that are kept in
docs/results/.

    python -m benchmarks.documented                          # write them again, from what is kept
    # keep the results of these sweeps first
    python -m benchmarks.documented --keep rpg-data kl-weight ...

Kept are all files of a sweep but weights and logs. A page says where a table belongs:

    <!-- results: kl-weight -->
    ... (written by this command, held to the results by tests/docs/test_documented.py)
    <!-- end of results -->

`results: quickstart, whole` has all tables and notes of `rpg report`, otherwise it is the first
one; docs/NAME.png is the figure of a sweep that has a page of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpg.report import curves, tables
from rpg.report.selection import MEAN
from rpg.report.summary import summarise
from rpg.report.sweep_report import curve_data, library, sweep_curves, write_report
from rpg.report.theme import on_dark, specification, themed
from rpg.store import Layout, atomic_write_bytes, atomic_write_json, atomic_write_text
from rpg.store.database import build, connect

DOCS = Path(__file__).resolve().parents[1] / "docs"
KEPT = DOCS / "results"
FIGURES = KEPT / "figures.json"
"""{figure: {data, file}}: digests of what it shows and of the picture."""
_PLACE = re.compile(
    r"(<!-- results: ([\w.-]+)(, whole)? -->\n)(.*?)(<!-- end of results -->)", re.DOTALL
)
P_VALUE = re.compile(r"(?<=\| )\d\.\d{3}(?= \| (?:better|worse|within noise) \|)")


def below(p: float) -> str:
    """The level that a p-value is below: its digits differ from one processor to another."""
    return next((f"< {level:g}" for level in (0.001, 0.01, 0.05) if p < level), "0.05 or more")


def keep(home: Path, sweep: str) -> None:
    """Put the results of a finished sweep into docs/results/."""
    folder = Layout.at(home).sweep_folder(sweep)

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(entry.name).name
        if name in (
            "checkpoints",
            "log.txt",
            "lease.json",
            "waiting.json",
            "flow-run.json",
            "prepare.log",
        ):
            return None
        return None if name.startswith(".") else entry

    KEPT.mkdir(exist_ok=True)
    with tarfile.open(KEPT / f"{sweep}.tar.xz", "w:xz") as archive:
        archive.add(folder, sweep, filter=chosen)


def unpack(home: Path) -> Layout:
    """All kept results as a data folder with its database."""
    layout = Layout.at(home)
    for path in sorted(KEPT.glob("*.tar.xz")):
        with tarfile.open(path) as archive:
            # Python 3.11.2, which is Debian's, has none.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(layout.runs)
    build(layout)
    return layout


def written(layout: Layout, text: str) -> str:
    """A page with its tables as the results are."""
    with connect(layout) as db:

        def made(place: re.Match[str]) -> str:
            summary = summarise(db, place[2])
            if place[3]:
                lines = tables.markdown(summary).split("\n", 2)[2]
            else:
                lines = "\n".join(tables.markdown_grid(tables.main_table(summary))) + "\n"
            lines = P_VALUE.sub(lambda p: below(float(p[0])).replace("<", r"\<"), lines)
            return f"{place[1]}{lines}{place[5]}"

        return _PLACE.sub(made, text)


def pages() -> dict[Path, list[str]]:
    """Page -> sweeps whose results it shows."""
    found = {
        path: [place[2] for place in _PLACE.finditer(path.read_text("utf-8"))]
        for path in DOCS.rglob("*.md")
    }
    return {path: sweeps for path, sweeps in sorted(found.items()) if sweeps}


def shown(layout: Layout, sweep: str) -> str:
    """Digest of what a sweep's figure shows."""
    with connect(layout) as db:
        data = sweep_curves(db, summarise(db, sweep))
    return hashlib.sha256(data.round(9).to_csv(index=False).encode()).hexdigest()[:16]


def charts(layout: Layout, sweep: str) -> dict[str, dict[str, Any]]:
    """A sweep's mean accuracy against `step` and against `tokens`, in Vega-Lite: marks show their
    numbers, and a click on a name in the legend brings its curve forward."""
    drawn = {}
    with connect(layout) as db:
        summary = summarise(db, sweep)
        for x in ("step", "tokens"):
            data = curve_data(db, summary.series, [MEAN], (), x)
            labels = list(summary.series.values())
            style = curves.Style(height=300)
            panel = curves.panel(data, labels, name=MEAN, x=x, points=True, style=style)
            spec = specification(themed(panel)) | {
                "width": "container",
                "title": {"text": "Mean accuracy", "color": "#333333"},
            }
            spec["config"] |= {
                "background": "transparent",
                "legend": {"orient": "bottom", "labelLimit": 170, "labelColor": "#333333"},
            }
            bands, *_, marks = spec["layer"]
            marks["params"] = [
                {
                    "name": "named",
                    "select": {"type": "point", "fields": ["label"]},
                    "bind": "legend",
                }
            ]
            marks["encoding"]["tooltip"][1:1] = [
                {"field": "x", "title": curves.X_TITLES[x], "format": ",.0f"}
            ]
            for layer in spec["layer"]:
                shown = 0.08 if layer is bands else 1
                layer["encoding"]["opacity"] = {
                    "condition": {"param": "named", "value": shown},
                    "value": shown / 10,
                }
            drawn[x] = spec
    return drawn


def script(layout: Layout, sweep: str) -> str:
    """JavaScript that draws `charts` into the element `chart` of the site's start page, in its
    colours and its width, with the axis that is chosen there. Library and numbers are in it:
    nothing is asked of anywhere."""
    light = charts(layout, sweep)
    return (
        f"(async () => {{ {library()}\nconst charts = "
        f"{json.dumps([light, on_dark(light)])};\n{_DRAW}}})();\n"
    )


CHART = """<div id="chart">
<label><input type="radio" name="axis" value="step" checked> against steps</label>
<label><input type="radio" name="axis" value="tokens"> against tokens drawn</label>
<div style="width: 100%; min-height: 400px"></div>
<noscript><img src="quickstart.png" alt="The figure that make quickstart draws"></noscript>
<small>Point at a mark for its numbers; click on a name to bring it forward.
Lines: mean over three seeds; bands: 95 % intervals over seeds and problems.
The numbers are those of <a href="results/quickstart.tar.xz">the stored results</a>;
<code>make quickstart</code> computes them again,
<a href="demo/index.html">the page that rpg publish makes of them</a> has every panel
and samples.</small>
</div>
<script src="assets/chart.js" defer></script>"""
"""What the start page has in place of the picture that README.md shows elsewhere."""
_DRAW = """\
const place = document.getElementById("chart"), plot = place.querySelector("div");
const draw = () => {
  const dark = document.body.dataset.mdColorScheme === "slate";
  const spec = structuredClone(charts[dark ? 1 : 0][place.querySelector("input:checked").value]);
  spec.config.legend.columns = Math.max(1, Math.floor(plot.clientWidth / 170));
  const tooltip = {theme: dark ? "dark" : "light"};
  vegaEmbed(plot, spec, {renderer: "svg", actions: false, tooltip});
};
place.addEventListener("change", draw);
new MutationObserver(draw).observe(document.body, {attributeFilter: ["data-md-color-scheme"]});
let width = 0;
new ResizeObserver(() => {
  if (plot.clientWidth !== width) { width = plot.clientWidth; draw(); }
}).observe(plot);
"""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--keep", nargs="+", metavar=("HOME", "SWEEP"), help="a data folder, and sweeps in it"
    )
    options = parser.parse_args(arguments)
    for sweep in (options.keep or [])[1:]:
        keep(Path(options.keep[0]), sweep)
    with tempfile.TemporaryDirectory() as folder:
        layout = unpack(Path(folder))
        for page, _ in pages().items():
            atomic_write_text(page, written(layout, page.read_text("utf-8")))
            print(page)
        figures = {}
        for path in sorted(DOCS.glob("*.png")):
            write_report(layout, path.stem)
            atomic_write_bytes(path, (layout.reports(path.stem) / "report.png").read_bytes())
            figures[path.name] = {"data": shown(layout, path.stem), "file": digest(path)}
            print(path)
        atomic_write_json(FIGURES, figures)


if __name__ == "__main__":
    main()
