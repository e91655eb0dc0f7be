"""Samples as they are read: mathematics typeset, everything else as it is written."""

import pandas
import pytest
from markdown_it import MarkdownIt

from dashboard import samples
from tests.dashboard.driver import HOSTILE

PLAIN = MarkdownIt("gfm-like", {"html": True, "linkify": False})


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "# no heading\n- no list\n> no quote\n    no code\n```\nno fence\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "https://example.org and www.example.org and <a href=javascript:1>x</a>",
        "1. first\n2. *second* _third_ ~~fourth~~ `fifth` [x]: y &amp; &#60;",
        "costs $5 and $7 more\\",
    ],
)
def test_what_is_no_mathematics_stands_there_as_it_is_written(text):
    shown = PLAIN.parse(samples.typeset_markdown(text.replace("$x$", "")))
    kinds = {token.type for token in shown} | {
        child.type for token in shown for child in token.children or ()
    }
    assert kinds <= {
        "paragraph_open",
        "paragraph_close",
        "inline",
        "text",
        "hardbreak",
        "text_special",
    }
    read = "\n".join(
        "".join("\n" if child.type == "hardbreak" else child.content for child in token.children)
        for token in shown
        if token.type == "inline"
    )
    written = "\n".join(line.lstrip() for line in text.replace("$x$", "").split("\n"))
    assert read.replace("\u2060", "") == written.rstrip("\n")


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        (r"so $x^2$ it is", "so $x^2$ it is"),
        (r"so \(x_1 + *y*\) it is", "$x_1 + *y*$"),
        (r"so \[\frac{1}{2}\] it is", "\n$$\n\\frac{1}{2}\n$$\n"),
        ("so $$a\n<b$$ it is", "\n$$\na <b\n$$\n"),
    ],
)
def test_mathematics_is_handed_on(text, formula):
    assert formula in samples.typeset_markdown(text)


def test_samples_are_filtered_and_ordered():
    table = pandas.DataFrame(
        {
            "problem_id": ["a", "b", "c"],
            "problem": "how many?",
            "response": ["one", "two", "three"],
            "answer": "1",
            "extracted": ["1", "2", None],
            "correct": [True, False, False],
            "reason": ["equal", "different", "no answer"],
            "truncated": [False, False, True],
            "tokens": [5, 2, 9],
        }
    )
    assert list(samples.matching(table, "truncated", "")["problem_id"]) == ["c"]
    assert list(samples.matching(table, "wrong", "TWO")["problem_id"]) == ["b"]
    assert list(samples.ordered(table, "longest first")["tokens"]) == [9, 5, 2]
    assert list(samples.ordered(table, "shortest first")["tokens"]) == [2, 5, 9]
    assert list(samples.ordered(table, "as stored")["tokens"]) == [5, 2, 9]
