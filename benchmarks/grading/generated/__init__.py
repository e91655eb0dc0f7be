"""Answers in the ways language models write them, made from gold answers, each with a
mathematician's verdict.

    cases(golds)        every class over these gold answers, in a fixed order
    real_golds()        the distinct gold answers of the real benchmarks ($RPG_DATA);
                        none where they are not there
    sample_golds()      answers of our own of every kind, so that every class is tested everywhere

Written before the grammar that reads answers, and on its own: nothing here imports the grader.
"""

from benchmarks.grading.generated.case import Case
from benchmarks.grading.generated.golds import Gold, real_golds, sample_golds
from benchmarks.grading.generated.hedges import HEDGES
from benchmarks.grading.generated.right import RIGHT
from benchmarks.grading.generated.wrappers import WRAPPERS
from benchmarks.grading.generated.wrong import WRONG

__all__ = ["Case", "Gold", "cases", "real_golds", "sample_golds"]

GROUPS = {"right": {**WRAPPERS, **RIGHT}, "hedge": HEDGES, "wrong": WRONG}


def cases(golds: list[Gold], most: int = 1, at_least: int = 120) -> list[Case]:
    """`most` answers of each class for each gold answer, and more where fewer than `at_least` would
    be made.

    Which are taken is drawn with a seed made of class and gold answer, so that the same ones come
    every time.
    """
    found: dict[tuple[str, str], Case] = {}
    for group, classes in GROUPS.items():
        for name, make in classes.items():
            written = {gold: list(dict.fromkeys(make(gold))) for gold in golds}
            written = {gold: some for gold, some in written.items() if some}
            take = max(most, -(-at_least // max(len(written), 1)))
            for gold, some in written.items():
                for response in gold.rng(name).sample(some, min(take, len(some))):
                    case = Case(gold.benchmark, gold.answer, group, name, response)
                    found.setdefault((gold.answer, response), case)
    return list(found.values())
