"""The published tables are complete, and the lint finds by rule what cannot be."""

import io

from rich.console import Console

from rpg.report.paper import Entry, frame, lint, match, published
from rpg.report.paper.lint import attainable, in_terminal
from rpg.report.paper.published import tables


def entry(**changes):
    return Entry("Table 0", "M", "2K", "A", "AIME24", 30, 32, 0.2656, 0.501)._replace(**changes)


def rules(findings):
    return [(one.rule, one.table, one.row, one.benchmark, one.column) for one in findings]


def test_the_tables_are_complete():
    counts = (
        frame().groupby("table", sort=False).agg(rows=("row", "nunique"), values=("last", "size"))
    )
    assert counts["rows"].to_dict() == {
        "Table 3": 6,
        "Table 5": 8,
        "Table 6": 6,
        "Table 7": 8,
        "Table 8": 12,
    }
    assert counts["values"].sum() == 6 * 3 + 8 * 3 + 6 * 2 + 8 * 2 + 12 * 3
    assert ((frame()["last"] > 0) & (frame()["best"] < 1)).all()


def test_published_values_are_those_that_the_paper_prints():
    printed = {(one.table, one.row, one.benchmark): (one.last, one.best) for one in published()}
    assert printed["Table 3", "RPG-UFKL", "AIME24"] == (0.5938, 0.6177)
    assert printed["Table 5", "RPG-REINFORCE-URKL", "AMC23"] == (0.9313, 0.9352)
    assert printed["Table 6", "DAPO", "AIME25"] == (0.2792, 0.2844)
    assert printed["Table 7", "REINFORCE++", "OlympiadBench"] == (0.4778, 0.6202)
    assert printed["Table 8", "RPG-RKL", "AIME25"] == (0.0677, 0.1240)


def test_the_three_impossible_values_of_mean_at_32_are_found_by_rule():
    found = rules(lint())
    assert ("unattainable", "Table 3", "RPG-URKL", "AIME25", "last") in found
    assert ("last above best", "Table 3", "RPG-URKL", "AIME25", "last, best") in found
    assert ("unattainable", "Table 3", "RPG-UFKL", "AMC23", "best") in found
    assert ("unattainable", "Table 5", "REINFORCE++", "AIME25", "last") in found
    aime_and_amc = [one for one in found if one[0] == "unattainable" and one[1] != "Table 7"]
    assert len(aime_and_amc) == 3


def test_table_7_has_one_sample_per_problem_and_three_values_rounded_wrongly():
    """Table 7 is measured with one sample per problem, and three of its values are rounded
    wrongly."""
    found = {(one.rule, one.benchmark): one.message for one in lint() if one.table == "Table 7"}
    assert set(found) == {
        ("unattainable", "Minerva-Math"),
        ("unchecked", "OlympiadBench"),
        ("coarser", "Minerva-Math"),
        ("coarser", "OlympiadBench"),
    }
    assert "15 of 16 values are multiples of 1/272" in found["coarser", "Minerva-Math"]
    assert "14 of 16 values are multiples of 1/674" in found["coarser", "OlympiadBench"]
    assert "REINFORCE++ last 0.4778, GRPO best 0.5594" in found["coarser", "OlympiadBench"]


def test_an_accuracy_that_no_count_of_samples_gives_is_impossible():
    assert not attainable(0.3340, 30, 32) and not attainable(0.5, 1, 1)
    # 1/32 = 0.03125 rounds to 0.0312 or 0.0313.
    assert all(attainable(value, 1, 32) for value in (0.0, 0.0312, 0.0313, 1.0))


def test_every_possible_value_passes():
    for samples, problems in ((32, 30), (32, 40), (4, 50)):
        total = samples * problems
        assert all(
            attainable(float(f"{count / total:.4f}"), problems, samples)
            for count in range(total + 1)
        )


def test_each_rule_finds_what_it_is_for():
    assert lint([entry()]) == []
    above = lint([entry(last=0.501, best=0.2656)])
    assert rules(above) == [("last above best", "Table 0", "A", "AIME24", "last, best")]
    assert rules(lint([entry(), entry(row="B")])) == [
        ("repeated", "Table 0", "A", "AIME24", "last, best")
    ]
    assert lint([entry(), entry(row="B", best=0.751)]) == []
    other_copy = lint([entry(problems=675)])
    assert rules(other_copy) == [("unchecked", "Table 0", "all rows", "AIME24", "last, best")]
    [found] = lint([entry(last=0.2505)])
    assert "240/960 = 0.2500 and 241/960 = 0.2510" in found.message


def test_few_values_on_a_coarse_grid_are_no_finding():
    assert lint([entry(last=0.3, best=0.6)]) == []
    grid = [entry(row=str(place), last=place / 30, best=(place + 1) / 30) for place in range(12)]
    grid = [one._replace(last=round(one.last, 4), best=round(one.best, 4)) for one in grid]
    assert [one.rule for one in lint(grid)] == ["coarser"]


def test_rows_match_whatever_their_spelling():
    assert {one.table for one in match("rpg-ufkl", "aime24")} == {
        "Table 3",
        "Table 5",
        "Table 6",
        "Table 8",
    }
    assert {one.row for one in match("REINFORCE++", "amc23")} == {"REINFORCE++"}
    assert match("rpg-ufkl", "chain-easy") == []


def test_the_printed_tables_name_impossible_values():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(tables())
    console.print(in_terminal(lint()))
    console.print(in_terminal([]))
    text = console.export_text()
    assert (
        "0.5938 / 0.6177" in text
        and "last 0.5261 is above best 0.4938" in text
        and "no findings" in text
    )
    assert "by about 0.015" in text, "sampling alone"
