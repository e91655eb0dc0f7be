"""A spreadsheet that opens our CSV runs nothing."""

import pandas
import pytest

from rpg.report.csv_text import csv_text
from tests.report.sweeps import SHAPE


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝", "＠"])
def test_a_text_that_begins_like_a_formula_begins_with_an_apostrophe(start):
    formula = f'{start}HYPERLINK("http://example.org")'
    text = csv_text(pandas.DataFrame({"variant": [formula, "grpo"], "x": [1.5, -2.0]}))
    assert f"'{start}HYPERLINK" in text
    assert text.endswith("grpo,-2.0\n")


def test_numbers_missing_values_and_lists_stay_and_names_of_columns_are_texts_too():
    frame = pandas.DataFrame({"=a": ["-0.5", None], "n": [-1, 2], "list": [["=b"], []]})
    assert csv_text(frame) == "'=a,n,list\n-0.5,-1,['=b']\n,2,[]\n"


@pytest.mark.component
def test_files_of_the_whole_database_hold_no_formula_either(tmp_path, command_line):
    from benchmarks.synthetic import write_sweep

    write_sweep(tmp_path, "demo", ("@SUM(1)", "grpo"), (0, 1, 2), SHAPE)
    command_line("export", tmp_path / "files", "--to", "csv", "--home", tmp_path)

    runs = pandas.read_csv(tmp_path / "files" / "runs.csv")
    metrics = pandas.read_csv(tmp_path / "files" / "metrics.csv")
    assert set(runs["variant"]) == {"'@SUM(1)", "grpo"}
    assert set(runs["seed"]) == {0, 1, 2}
    assert len(metrics) > 0
    for path in (tmp_path / "files").glob("*.csv"):
        assert ",@SUM" not in path.read_text()


def test_the_tables_of_a_report_hold_no_formula(tmp_path):
    from benchmarks.synthetic import write_sweep
    from rpg.report.sweep_report import write_report
    from rpg.store.database import build

    layout = write_sweep(tmp_path, "demo", ("=1+cmd", "grpo"), (0, 1, 2), SHAPE)
    build(layout)
    write_report(layout, "demo")
    for name in ("table.csv", "curves.csv"):
        text = (layout.reports("demo") / name).read_text()
        assert "'=1+cmd" in text
        assert ",=1" not in text and "\n=1" not in text
