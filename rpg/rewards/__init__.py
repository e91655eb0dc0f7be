"""Grading of mathematical answers: what was extracted, whether it is right, and why.

    from rpg.rewards import Grader
    with Grader(workers=2) as grader:
        grader.grade([("... Answer: 1/2", "0.5")])   # [Grade(extracted="1/2", correct=True, reason="answer line: ...")]

docs/grading.md states the rules and how they compare with math-verify's own.
"""

from rpg.rewards.comparison_pool import GradingError
from rpg.rewards.graders import Grader, Grading, Item, MarkerGrader, extract, grader_for
from rpg.rewards.marker import Grade

__all__ = ["Grade", "Grader", "Grading", "GradingError", "Item", "MarkerGrader", "extract", "grader_for"]
