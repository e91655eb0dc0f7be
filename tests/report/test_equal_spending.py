"""A verdict at equal tokens does not depend on how often checkpoints were evaluated."""

import numpy as np
import pytest

from benchmarks.spacings import Simulated, simulate
from rpg.report import equal_spending, verdicts
from rpg.report.equal_spending import Bracket, around, bracket, compare


@pytest.mark.component
def test_no_spacing_says_the_opposite_of_every_step():
    for found in simulate(12, (4, 10), seed=11):
        assert found.opposite == 0
        assert found.against_noise <= 0.05 * found.pairs
        assert found.refused < 2 / 3 * found.pairs, "most is decided"


def test_a_straight_line_from_the_start_gives_no_verdict():
    """A concave curve lies far above it: the variant that spends more looked as bad as its first
    steps."""
    runs = {"base": {0: "b"}, "ours": {0: "o"}}
    spent = {"b": {0: 0.0, 10: 100.0}, "o": {0: 0.0, 10: 400.0}}
    accuracies = {"b": {0: 0.1, 10: 0.5}, "o": {0: 0.1, 10: 0.8}}
    variants = {name: around(of, spent, accuracies, 100.0) for name, of in runs.items()}
    differences, refused = compare(Simulated({}, []), variants, "base", ["only"], 0.05)
    assert not differences
    assert refused == {"ours": "spent before its first checkpoint, step 10"}
    assert variants["ours"].spacing() == 1


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0.0, Bracket(0, 0)),
        (100.0, Bracket(4, 4)),
        (125.0, Bracket(4, 8, 0.25)),
        (200.0, Bracket(8, 8)),
    ],
)
def test_the_bracket_of_a_budget(budget, expected):
    assert bracket({0: 0.0, 4: 100.0, 8: 200.0}, budget) == expected


def test_checkpoints_between_which_accuracy_changes_much_are_too_far_apart():
    spent = {"run": {0: 0.0, 20: 100.0, 40: 200.0}}
    near = around({0: "run"}, spent, {"run": {0: 0.1, 20: 0.50, 40: 0.58}}, 150.0)
    far = around({0: "run"}, spent, {"run": {0: 0.1, 20: 0.50, 40: 0.75}}, 150.0)
    assert (near.far_apart, far.far_apart) == (
        "",
        "accuracy changes by 25.0 points between steps 20 and 40",
    )
    assert far.spacing() == 4, "five parts of 20 steps, of 5 points each"


def test_an_interval_holds_whatever_happened_between_the_checkpoints():
    """It is that of the interpolation, and those at both ends."""
    rng = np.random.default_rng(3)
    shift = rng.normal(0, 0.02, (3, 60))
    ease = rng.uniform(0.2, 0.6, 60)
    values = []
    index = {}
    for seed in range(3):
        for run, step, mean in (("b", 4, 0.0), ("o", 2, 0.20), ("o", 4, 0.26)):
            index[f"{run}{seed}", step] = len(values)
            values.append(ease + mean + shift[seed])
    spent = {f"b{seed}": {0: 0.0, 4: 100.0} for seed in range(3)}
    spent |= {f"o{seed}": {0: 0.0, 2: 80.0, 4: 160.0} for seed in range(3)}
    accuracies = {
        run: {0: 0.1, **{step: values[at].mean() for (of, step), at in index.items() if of == run}}
        for run in spent
    }
    runs = {name: {seed: f"{name[0]}{seed}" for seed in range(3)} for name in ("base", "ours")}
    variants = {name: around(of, spent, accuracies, 100.0) for name, of in runs.items()}
    problems = Simulated(index, values)
    differences, _ = compare(problems, variants, "base", ["only"], 0.05)
    found = differences["ours"]
    ends = []
    for place in (variants["ours"].lowest, variants["ours"].highest):
        pairs = {"ours": (place, variants["base"].lowest)}
        ends.append(verdicts.compare(problems, pairs, {"": ["only"]})["ours", ""])
    assert found.difference == pytest.approx(0.20 + 0.06 / 4)
    assert (found.low, found.high) == (ends[0].low, ends[1].high)
    assert found.verdict == "better"
    assert equal_spending.CLOSE > 0.06
