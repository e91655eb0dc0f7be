"""All runs: which settings tell them apart, groups, two runs side by side, and exported files."""

import pandas
import pytest

pytest.importorskip("streamlit")

from dashboard import exporting
from dashboard.problems_page import where_they_differ
from dashboard.runs_page import apart, differences, grouped

SETTINGS = {
    "s/a": {"algorithm.beta": 0.1, "seed": 0, "training.steps": 4},
    "s/b": {"algorithm.beta": 0.3, "seed": 1, "training.steps": 4},
}


def test_runs_are_told_apart_by_the_settings_in_which_they_differ():
    assert apart(SETTINGS) == ["algorithm.beta"]


def test_two_runs_side_by_side_show_only_what_differs():
    table = differences(SETTINGS)
    assert table.to_dict("list") == {
        "setting": ["algorithm.beta", "seed"],
        "s/a": ["0.1", "0"],
        "s/b": ["0.3", "1"],
    }


def test_a_group_has_the_mean_and_the_range_of_its_runs():
    runs = pandas.DataFrame(
        {
            "variant": ["a", "a", "b"],
            "state": ["done", "failed", "done"],
            "accuracy": [0.5, 0.7, 0.2],
            "hours": [1.0, 2.0, 3.0],
        }
    )
    [first, second] = grouped(runs, "variant").to_dict("records")
    assert (first["variant"], first["runs"], first["done"]) == ("a", 2, 1)
    assert first["accuracy"] == pytest.approx(0.6)
    assert (first["lowest"], first["highest"], second["hours"]) == (0.5, 0.7, 3.0)


def test_problems_open_on_samples_that_differ():
    wrong, right = {"correct": False}, {"correct": True}
    assert where_they_differ([wrong, right], [right, wrong, wrong]) == (1, 1)
    assert where_they_differ([wrong], [wrong, right]) == (0, 1)
    assert where_they_differ([], [right]) == (0, 0)


def test_a_table_is_exported_escaped():
    frame = pandas.DataFrame({"name": ["=1+1", "a_b"], "value": [0.123456, None]})
    assert exporting.made(frame, "runs", "CSV").splitlines()[1].startswith("'=1+1")
    assert r"a\_b" in exporting.made(frame, "runs", "LaTeX").replace(r"\allowbreak{}", "")
    assert exporting.file_name("table: GRPO / <b>") == "table-grpo-b"
