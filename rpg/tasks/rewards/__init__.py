"""From responses to grades and rewards.

    from rpg.tasks.rewards import Grader
    with Grader(workers=2) as grader:
        # [Grade(extracted="1/2", correct=True, reason="answer line: ...")]
        grader.grade([("... Answer: 1/2", "0.5")])

docs/grading.md states the rules of grading, docs/rewards.md what a reward is made of.
"""

from rpg.tasks.rewards.comparison_pool import GradingError
from rpg.tasks.rewards.graders import Grader, grader_for
from rpg.tasks.rewards.grades import Grade, Grading, Item

__all__ = ["Grade", "Grader", "Grading", "GradingError", "Item", "grader_for"]
