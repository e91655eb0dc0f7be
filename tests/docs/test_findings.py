"""Sentences of docs/findings.md that compare have a number, a test and a command."""

import subprocess
import sys

import pandas

from benchmarks.findings import clips
from benchmarks.findings.claims import PAGE, claims
from benchmarks.findings.shared import plain

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
    assert claim.is_whole and claim.command == "rpg sweep first --home lab"
    assert claim.numbers.startswith("+0.123") and "one family" in claim.test


def test_a_comparison_without_numbers_a_test_or_a_command_is_found():
    bare = CHAPTER[: CHAPTER.index("| variant")]
    [claim] = claims(bare)
    assert not claim.is_whole and (claim.numbers, claim.test, claim.command) == ("", "", "")


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
    assert len(tests) == 1 and "one family" in tests[0]


def test_an_interval_that_ends_where_accuracies_do_has_both_of_its_bounds():
    row = {"label": "second", "seeds": 3, "last": 0.98, "low": 0.96, "high": 0.99}
    tested = {"p_corrected": 0.001, "verdict": "better", "difference": 0.2}
    bounds = {"difference_low": 0.17, "difference_high": 0.22}
    shown = plain(pandas.DataFrame([row | tested | bounds]))
    assert "| +0.200 [+0.170, +0.220] | < 0.01 | better |" in shown
    even = {"difference_low": 0.17, "difference_high": 0.23}
    assert "| +0.200 ± 0.030 |" in plain(pandas.DataFrame([row | tested | even]))


def test_the_table_of_clips_is_that_of_the_kept_results():
    assert clips.of_trainings() in PAGE.read_text()


def test_the_command_lists_them():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.findings.claims"],
        capture_output=True,
        text=True,
        check=True,
        cwd=PAGE.parents[1],
    )
    assert "comparative sentences, 0 without number, test or command" in run.stdout
