"""`rpg report --paper`: what it writes can go into a paper as it is."""

import re
import shutil
import subprocess

import pytest

import rpg
from benchmarks.synthetic import Shape, write_sweep
from rpg.report.paper_files import citation_keys, references, write_paper
from rpg.store.database import build, connect

SHAPE = Shape(steps=8, eval_every=4, problems=24, samples=4)


def test_every_algorithm_of_the_catalogue_has_its_reference():
    entries = references(rpg.algorithms()).splitlines()
    keys = {
        key for algorithm in rpg.algorithms().values() for key in citation_keys(algorithm.citation)
    }
    assert {entry.partition("{")[2].partition(",")[0] for entry in entries} == {*keys, "rpglab"}
    assert all("author = " in entry for entry in entries), "facts, not the fallback"
    assert (
        references(["dapo", "mine"]).count("@") == 3
    )  # what the catalogue does not know is left out


def test_an_algorithm_of_ones_own_is_cited_as_it_says(monkeypatch):
    own = rpg.algorithm("dapo").model_copy(update={"citation": "Own et al. 2031, arXiv 3101.00001"})
    monkeypatch.setattr("rpg.report.paper_files.algorithms", lambda: {"own": own})
    assert "@misc{arxiv:3101.00001, title = {Own et al. 2031, arXiv 3101.00001}}" in references(
        ["own"]
    )


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    place = tmp_path_factory.mktemp("papers")
    name = "50 % of {a_b} & 中文 #1 ~ ^ \\\\ $, too long for a column"
    layout = write_sweep(
        place / "data", "demo", ("grpo", "dapo", "rpg-urkl", name), (0, 1, 2), SHAPE
    )
    build(layout)
    return layout, {
        columns: write_paper(layout, "demo", place / str(columns), columns) for columns in (1, 2)
    }


@pytest.mark.skipif(
    not shutil.which("pdflatex"), reason="no pdflatex: install texlive-latex-recommended"
)
@pytest.mark.parametrize(("columns", "options"), [(1, "10pt"), (2, "10pt,a4paper,twocolumn")])
def test_latex_takes_all_files_and_nothing_juts_out_of_its_column(papers, columns, options):
    folder = papers[1][columns][0].parent
    (folder / "paper.tex").write_text(
        rf"\documentclass[{options}]{{article}}\usepackage{{array,booktabs,graphicx,longtable,tabularx}}\begin{{document}}"
        r"\nocite{*}\input{tables.tex}\par\noindent\includegraphics[width=\columnwidth]{differences.pdf}"
        r"\par\noindent\includegraphics[width=\columnwidth,height=9cm]{curves.pdf}"
        r"\bibliographystyle{plain}\bibliography{references}\appendix\input{appendix.tex}\end{document}"
    )
    for command in ("pdflatex -halt-on-error", "bibtex", "pdflatex -halt-on-error"):
        run = subprocess.run(
            [*command.split(), "paper"], cwd=folder, capture_output=True, text=True
        )
        assert run.returncode == 0 and "Warning--" not in run.stdout, run.stdout
    log = (folder / "paper.log").read_text("latin-1")
    assert not re.findall(
        r"^(?:Overfull .hbox|LaTeX Warning: .*(?:undefined|multiply)).*", log, re.MULTILINE
    )


def test_figures_are_vectors_tables_give_no_advice_and_the_appendix_names_every_run(papers):
    layout, files = papers[0], {path.name: path for path in papers[1][2]}
    for name, inches in (("curves.pdf", 6.75), ("differences.pdf", 3.25)):
        figure = files[name].read_bytes()
        assert b"/FontFile" in figure and b"/Subtype /Image" not in figure
        [width] = {float(box) for box in re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+)", figure)}
        assert abs(width - inches * 72) <= 1
    table = files["tables.tex"].read_text()
    assert "RPG-URKL" in table and not re.search(r"resizebox|rpg |--axis|docs/", table)
    text = files["appendix.tex"].read_text()
    with connect(layout) as db:
        found = db.execute("SELECT run_id FROM runs").fetchall()
    assert len(found) == 12 and all(run_id[:16] in text for (run_id,) in found)
    assert "Seeds: 0, 1, 2" in text and "where their models have the same settings" in text
