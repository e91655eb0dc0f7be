"""Sentences of docs/findings.md that compare have a number, a test and a command."""

import subprocess
import sys

import numpy
import pandas
import pytest

from benchmarks import tool_use
from benchmarks.findings import clips
from benchmarks.findings.claims import PAGE, claims
from benchmarks.findings.shared import ROOT, differences, plain

RESULTS = ROOT / "docs" / "results"

CHAPTER = """# Findings

## Does it?

**Found:** the first is ahead of the second.

| variant | against | difference | p, corrected |
|---|---|--:|--:|
| first | second | +0.123 [0.045, 0.201] | < 0.01 |

```sh
rpg sweep first --home lab
```
"""


def test_every_comparison_on_the_page_has_its_number_test_and_command():
    found = list(claims(PAGE.read_text()))
    assert len(found) > 100
    assert [claim.sentence for claim in found if not claim.is_whole] == []


def test_a_sentence_takes_what_it_lacks_from_the_tables_of_its_chapter():
    [claim] = claims(CHAPTER)
    assert claim.is_whole
    assert claim.command == "rpg sweep first --home lab"
    assert claim.numbers.startswith("+0.123")
    assert "one family" in claim.test


def test_a_comparison_without_numbers_a_test_or_a_command_is_found():
    bare = CHAPTER[: CHAPTER.index("| variant")]
    [claim] = claims(bare)
    assert not claim.is_whole
    assert (claim.numbers, claim.test, claim.command) == ("", "", "")


def test_the_command_of_a_chapter_is_the_one_that_makes_its_tables():
    others = "## Another\n\n`rpg sweep other` ran before.\n\n"
    results = "It follows [another](#another).\n\n<!-- results: first -->\n\n**Found:**"
    block = CHAPTER[CHAPTER.index("```sh") :]
    page = CHAPTER.replace(block, "").replace("**Found:**", results)
    [claim] = claims(page + others + block)
    assert claim.command == "rpg sweep first --home lab"


def test_questions_and_the_meaning_of_words_are_no_claims():
    asked = "**Question:** what does a clip cost?\n\n**Words.** *Found*: ahead by 0.5 or more.\n\n"
    [claim] = claims(CHAPTER.replace("**Found:**", asked + "**Found:**"))
    assert claim.sentence.startswith("**Found:**")


def test_a_sentence_that_names_no_test_has_that_of_its_tables():
    text = "A test of equivalence says nothing here.\n\n**Found:**"
    tests = [claim.test for claim in claims(CHAPTER.replace("**Found:**", text))]
    assert len(tests) == 1
    assert "one family" in tests[0]


def test_an_interval_that_ends_where_accuracies_do_has_both_of_its_bounds():
    row = {"label": "second", "seeds": 3, "last": 0.98, "low": 0.96, "high": 0.99}
    tested = {"p_corrected": 0.001, "verdict": "better", "difference": 0.2}
    bounds = {"difference_low": 0.17, "difference_high": 0.22}
    shown = plain(pandas.DataFrame([row | tested | bounds]))
    assert "| +0.200 [+0.170, +0.220] | < 0.01 | better |" in shown
    even = {"difference_low": 0.17, "difference_high": 0.23}
    assert "| +0.200 [+0.170, +0.230] |" in plain(pandas.DataFrame([row | tested | even]))


def test_the_tables_of_clips_are_those_of_the_kept_results():
    page = PAGE.read_text()
    assert clips.of_trainings() in page
    assert clips.of_gradients() in page
    text = " ".join(page.split())
    for row in clips.of_variances().splitlines()[2:]:
        ratio = row.split("|")[3].strip()
        assert ratio in text, row


def test_a_difference_has_no_p_where_too_few_problems_move():
    solved = numpy.ones((3, 40))
    hard = solved.copy()
    hard[:, :2] = 0.5
    half = numpy.full((3, 40), 0.5)
    tests = [("a", "b", [solved], [hard]), ("a", "c", [solved], [half])]
    _, _, few, many = differences(("variant", "against"), tests)
    assert few == "| a | b | +0.025 | too few problems move |"
    assert many.startswith("| a | c | +0.500 [") and "move" not in many


@pytest.mark.parametrize("name", ["tool-use", "tool-staleness", "old-samples-tools"])
def test_the_tables_of_calls_are_those_of_the_kept_results(name):
    kept = pandas.read_csv(RESULTS / f"{name}.csv")
    text = tool_use.tables(kept, name)
    assert text in PAGE.read_text(), text


def test_the_command_lists_them():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.findings.claims"],
        capture_output=True,
        text=True,
        check=True,
        cwd=PAGE.parents[1],
    )
    assert "comparative sentences, 0 without number, test or command" in run.stdout
