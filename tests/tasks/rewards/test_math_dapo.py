"""The recipe's own rule, against verl's function where verl is installed, and examples of what it
does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.grading.generated import cases, real_golds, sample_golds
from rpg.tasks.rewards import math_dapo


def verls(response, truth):
    found = pytest.importorskip("verl.utils.reward_score.math_dapo").compute_score(response, truth)
    return bool(found["acc"]), found["pred"]


def test_verl_is_the_version_that_is_named():
    verl = pytest.importorskip("verl")
    assert verl.__version__ == math_dapo.VERSION


def test_the_same_verdicts_as_verls_function():
    golds = sample_golds() + random.Random(0).sample(real_golds(), min(100, len(real_golds())))
    for case in cases(golds):
        ours = math_dapo.grade(case.response, case.gold)
        theirs, extracted = verls(case.response, case.gold)
        assert ours.correct is theirs, case
        assert (ours.extracted or "[INVALID]") == (extracted or "[INVALID]") or not extracted, case


PIECES = [
    "Answer:",
    "answer :",
    "\n",
    "\\boxed{",
    "}",
    "{",
    "$",
    "=",
    "5",
    "1,000",
    "\\frac12",
    "\\text{m}",
    " a ",
    "cm",
    "\\",
]


@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join),
    st.sampled_from(["5", "1/2", ""]),
)
@settings(max_examples=300, deadline=None)
def test_the_same_verdicts_on_any_text(response, truth):
    assert math_dapo.grade(response, truth).correct is verls(response, truth)[0]
