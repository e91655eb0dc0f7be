"""What a design can find, and how much error a comparison may still make when it is looked at
again."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from benchmarks import error_rates
from rpg import stats
from rpg.stats import power

DESIGN = stats.Design(variants=3, seeds=3, problems=(100,), samples=4)
SPREADS = stats.Spreads(0.02, 0.4, 0.05)


@pytest.mark.parametrize("variants", [2, 3, 7])
@pytest.mark.parametrize("seeds", [3, 6])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.03])
def test_what_is_said_to_be_detectable_is_found_in_about_four_sweeps_of_five(
    variants, seeds, spread
):
    rng = np.random.default_rng(6)
    spreads = stats.Spreads(spread, 0.4, 0.05)
    smallest = stats.detectable(stats.Design(variants, seeds, (100,), 4), spreads)
    scores = spreads.seeds * rng.standard_normal((150, variants, seeds, 1))
    scores = scores + 0.2 * rng.standard_normal((150, variants, seeds, 100))
    scores += 0.5 + spreads.problems * rng.standard_normal((150, variants, 1, 100))
    scores[:, 1:] += smallest
    found = stats.family([scores]).familywise_p() <= 0.05
    # Where seeds do not differ at all, no variance of seeds below that of answers costs power: 0.6.
    assert 0.55 < found.mean() < 0.92


def test_more_seeds_or_problems_find_smaller_differences():
    seeds = power.seeds_needed(DESIGN, SPREADS, 0.05)
    assert seeds > 3 and stats.detectable(DESIGN._replace(seeds=seeds), SPREADS) <= 0.05
    assert power.problems_needed(DESIGN, SPREADS._replace(seeds=0.2), 0.01) is None
    assert f"take about {seeds} seeds" in stats.sentence(DESIGN, SPREADS, 0.05)
    for seeds, words in ((2, "2 seeds give"), (1, "one seed gives")):
        assert stats.sentence(DESIGN._replace(seeds=seeds), SPREADS, 0.05).startswith(
            f"{words} differences"
        )
    assert "no difference is found" in stats.sentence(DESIGN, SPREADS._replace(seeds=0.9), 0.05)


def test_what_is_detectable_by_hand():
    """Where only problems make a difference vary it is a t test over these; two halves are as good
    as the whole."""
    for problems in ((5,), (5, 10**6)):  # those of the small benchmark decide
        found = stats.detectable(
            stats.Design(2, 100, problems, 10**6), stats.Spreads(0.0, 1e-6, 0.05)
        )
        expected = (
            scipy_stats.t(4).ppf([0.975, 0.8]).sum() * math.sqrt(2 * 0.05**2 / 5) / len(problems)
        )
        assert found == pytest.approx(expected, rel=1e-3)
    halves = stats.detectable(DESIGN._replace(problems=(50, 50)), SPREADS)
    assert halves == pytest.approx(stats.detectable(DESIGN, SPREADS), rel=1e-2)
    few_seeds = SPREADS._replace(seeds=0.01)
    needed = power.problems_needed(DESIGN, few_seeds, 0.08)
    counts = (needed, round(needed / 1.3))
    enough, fewer = (stats.detectable(DESIGN._replace(problems=(n,)), few_seeds) for n in counts)
    assert enough <= 0.08 < fewer


def test_spreads_are_recovered_from_scores():
    rng = np.random.default_rng(7)
    truth = 0.5 + 0.04 * rng.standard_normal((7, 10, 1)) + 0.05 * rng.standard_normal((7, 1, 500))
    scores = rng.binomial(4, np.clip(truth, 0, 1)) / 4
    assert stats.spreads([scores], samples=4) == pytest.approx((0.04, 0.5, 0.05), rel=0.2)
    few = [np.concatenate([scores[..., :9], np.ones((7, 10, 27))], -1)]
    assert "about 9 of 36" in stats.carried_by_few(few) and not stats.carried_by_few([scores])
    assert "of 502" in stats.carried_by_few([scores[..., :2], scores]), (
        "a benchmark of two is half of the mean"
    )


def test_looks_never_spend_more_than_six_percent():
    looks, levels = [], []
    for seeds in (2, 3, 4, 7, 8, 20, 50):
        runs = [str(run) for run in range(3 * seeds)]
        earlier, planned, level = stats.next_look(looks, "a", runs, 9)
        assert len(earlier) == len(looks) and planned == 9
        looks.append(stats.Look("a", tuple(runs), planned, len(looks) + 1, level, (), None, {}))
        levels.append(level)
    assert levels[0] == pytest.approx(0.05 * (2 / 3) ** 3) and sum(levels[:2]) == pytest.approx(
        0.05
    )
    assert all(level > 0 for level in levels) and sum(levels) < 0.06
    again = stats.next_look(looks, "a", looks[2].runs, 12)
    assert len(again[0]) == 2 and again[1:] == (9, levels[2]), "the same runs are no new look"
    assert stats.next_look(looks, "a", looks[0].runs[:5], 12)[1] == 9, (
        "what was planned at first stays"
    )


def test_seeds_that_are_added_one_by_one_do_not_add_up():
    ours, naive = error_rates.looked_at(
        error_rates.Cell(variants=3, problems=(50,), spread=0.4), 12, 150
    )
    assert ours < 0.06 + 0.04 < naive


def test_further_seeds_of_the_baseline_find_smaller_differences_for_fewer_runs():
    spreads = stats.Spreads(0.03, 0.4, 0.02)
    plain = stats.Design(7, 3, (100,), 8)
    more = power.more_of_the_baseline(plain)
    assert (more.baseline_seeds, more.further, more.runs) == (7, 4, 25)
    assert stats.detectable(more, spreads) < stats.detectable(plain, spreads)
    said = stats.baseline_sentence(plain, spreads)
    assert said.startswith("7 seeds of the baseline instead of 3 (25 runs) would find ")
    assert said.endswith(": `seeds: {baseline: 7, others: 3}`")
    assert stats.baseline_sentence(plain._replace(seeds=2), spreads) == ""
    many_problems = plain._replace(problems=(20_000,))
    only_answers = spreads._replace(seeds=0.0)
    assert 0.001 < stats.detectable(many_problems, only_answers) < 0.005
    assert stats.baseline_sentence(many_problems, only_answers) == "", "under a tenth of a point"
    nine = plain._replace(baseline_seeds=9)
    assert "3 seeds (9 of the baseline)" in stats.sentence(nine, spreads, 0.02)
    assert stats.baseline_sentence(nine, spreads) == ""


def test_spreads_without_seeds_and_answers_are_no_error():
    """All answers of a problem agree, and seeds do not differ: problems alone vary."""
    found = stats.detectable(DESIGN, stats.Spreads(0.0, 0.0, 0.05))
    assert 0 < found < 0.1
    assert stats.detectable(DESIGN, stats.Spreads(0.0, 0.0, 0.0)) == 0
