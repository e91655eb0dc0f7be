"""`rpg report --paper`: what it writes can go into a paper as it is."""

import re

import rpg
from benchmarks.synthetic import Shape, write_sweep
from rpg.report.paper_files import citation_keys, references, write_paper
from rpg.store import queries
from rpg.store.database import build, connect

SHAPE = Shape(steps=8, eval_every=4, problems=24, samples=4)


def test_every_algorithm_of_the_catalogue_has_its_reference():
    entries = references(rpg.algorithms()).splitlines()
    keys = {key for algorithm in rpg.algorithms().values() for key in citation_keys(algorithm.citation)}
    assert {entry.partition("{")[2].partition(",")[0] for entry in entries} == {*keys, "rpglab"}
    assert all(entry.count("{") == entry.count("}") for entry in entries)
    assert references(["dapo", "mine"]).count("@") == 3  # what the catalogue does not know is left out


def test_figures_are_vectors_tables_give_no_advice_and_the_appendix_names_every_run(tmp_path):
    layout = write_sweep(tmp_path / "data", "demo", ("grpo", "dapo", "rpg-urkl"), (0, 1, 2), SHAPE)
    build(layout)
    files = {path.name: path for path in write_paper(layout, "demo", tmp_path / "paper", columns=2)}
    for name, inches in (("curves.pdf", 6.75), ("differences.pdf", 3.25)):
        figure = files[name].read_bytes()
        assert b"/FontFile" in figure and b"/Subtype /Image" not in figure
        [width] = {float(box) for box in re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+)", figure)}
        assert abs(width - inches * 72) <= 1
    table = files["tables.tex"].read_text()
    assert "RPG-URKL" in table and not re.search(r"resizebox|rpg |--axis|docs/", table)
    text = files["appendix.tex"].read_text()
    with connect(layout) as db:
        for name in queries.manifests(db, "demo"):
            assert str(queries.run(db, "demo", name)["run_id"])[:16] in text
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 3
    assert "Seeds: 0, 1, 2" in text
