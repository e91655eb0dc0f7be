"""Sentences of docs/findings.md that compare have a number, a test and a command."""

import subprocess
import sys

from benchmarks.findings.claims import PAGE, claims

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


def test_the_command_lists_them():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.findings.claims"],
        capture_output=True,
        text=True,
        check=True,
        cwd=PAGE.parents[1],
    )
    assert "comparative sentences, 0 without number, test or command" in run.stdout
