"""The public address of `rpg.tasks.rewards`: from responses to grades."""

from rpg.tasks.rewards import Grade, Grader, Grading, GradingError, Item, grader_for

__all__ = ["Grade", "Grader", "Grading", "GradingError", "Item", "grader_for"]
