"""Estimates agree with hand computation, with scipy, and with what they promise when the truth is known."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special
from scipy import stats as scipy_stats

from benchmarks import error_rates
from rpg import stats
from rpg.stats import comparisons


def test_pass_at_k_by_counting_subsets():
    from itertools import combinations

    n, c = 7, 3
    right = [1] * c + [0] * (n - c)
    for k in range(1, n + 1):
        subsets = list(combinations(right, k))
        expected = sum(any(subset) for subset in subsets) / len(subsets)
        assert stats.pass_at_k([n], [c], k)[0] == pytest.approx(expected)
    assert stats.pass_at_k([4, 4], [0, 4], 4).tolist() == [0, 1]


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_refuses_what_it_cannot_know(n, c, k):
    with pytest.raises(ValueError, match="pass@"):
        stats.pass_at_k([n, 9], [c, 0], k)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["1", "1", "2"], [True, True, False], 1),
        (["2", "2", "1"], [False, False, True], 0),
        (["1", "2"], [True, False], 0.5),
        ([None, None, "1"], [False, False, True], 1),
        ([None, None], [False, False], 0),
    ],
)
def test_majority(answers, correct, expected):
    assert stats.majority_at_k(answers, correct) == expected


def test_crossed_by_its_formula():
    table = np.array([[1, 2, 3], [3, 2, 7], [2, 5, 3], [0, 1, 1]])
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    parts = [table.mean(0).var(ddof=1) / 3, table.mean(1).var(ddof=1) / 4, (rest**2).sum() / 6 / 12]
    variance = parts[0] + parts[1] - parts[2]
    found = stats.crossed([table])
    assert (found.mean, found.standard_error) == pytest.approx((30 / 12, math.sqrt(variance)))
    assert found.df == pytest.approx(
        variance**2 / sum(v**2 / df for v, df in zip(parts, (2, 3, 6), strict=True))
    )


@pytest.mark.parametrize("table", [[[1, 0], [2, 3]], [[1, 2], [0, 3]]], ids=["seeds", "problems"])
def test_no_interaction_takes_the_variance_below_that_of_seeds_or_problems(table):
    """V of the one kind is 1, of the other 0, of their interaction 1/4: 1 + 0 - 1/4 is below the first alone."""
    assert stats.crossed([table]).standard_error == pytest.approx(1.0)


def test_benchmarks_weigh_the_same_and_their_spread_is_no_noise():
    easy, hard = np.full((2, 50), 0.9), np.full((2, 10), 0.1)
    found = stats.crossed([easy, hard])
    assert found.mean == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(0)
    assert found.problems == 60


def test_when_nothing_varies_the_interval_is_that_of_a_proportion():
    found = stats.accuracy([np.ones((2, 40))])
    assert (found.mean, found.high) == (1, 1)
    assert found.low == pytest.approx(scipy_stats.binomtest(40, 40).proportion_ci(0.95, "exact").low)
    found = stats.accuracy([np.zeros((1, 40))])
    assert found.high == pytest.approx(scipy_stats.binomtest(0, 40).proportion_ci(0.95, "exact").high)


def test_an_accuracy_stays_within_its_range():
    found = stats.accuracy([[[1, 1, 1, 0], [1, 1, 1, 1]]])
    assert 0 < found.low < found.mean < found.high < 1


def test_one_problem_says_nothing_about_others():
    assert stats.accuracy([[[0.5], [0.5]]])[3:5] == (0.0, 1.0)


def test_the_interval_of_right_and_wrong_answers_is_wilsons():
    """One sample of each of many problems is a plain proportion."""
    for right in (3, 100, 399):
        found = stats.accuracy([[np.arange(400) < right]])
        expected = scipy_stats.binomtest(right, 400).proportion_ci(0.95, "wilson")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.01)


@pytest.mark.parametrize("strata", [[], [[[]]], [[1, 2]], [[[1, 2]], [[1], [2]]]])
def test_arrays_that_are_no_seeds_by_problems_are_refused(strata):
    with pytest.raises(ValueError, match="seeds"):
        stats.crossed(strata)


@pytest.mark.parametrize(
    ("difference", "p", "words"),
    [(0.1, 0.01, "better"), (-0.1, 0.01, "worse"), (0.1, 0.06, "within noise"), (0.1, 0.05, "better")],
)
def test_verdict(difference, p, words):
    assert stats.verdict(difference, p) == words


def share(function, repeats=1500):
    rng = np.random.default_rng(7)
    return np.mean([function(rng) for _ in range(repeats)])


def scores(rng, seeds, problems, k, seed_spread, problem_spread=1.2):
    """Mean@k scores (S, P) from the logistic model: problems differ, seeds differ, samples are coin flips."""
    logits = rng.normal(0, problem_spread, problems) + rng.normal(0, seed_spread, (seeds, 1))
    return rng.binomial(k, 1 / (1 + np.exp(-logits))) / k


@pytest.mark.parametrize("k", [1, 8, 32])
def test_mean_at_k_covers_the_mean_over_problems(k):
    def covers(rng):
        found = stats.accuracy([scores(rng, 1, 30, k, 0)])
        return found.low <= 0.5 <= found.high

    assert 0.93 < share(covers) < 0.97


# Seeds that differ as much as problems make the mean differ; two seeds are the hardest case. The bounds are those that
# docs/statistics.md promises.
@pytest.mark.parametrize(
    ("seeds", "seed_spread", "low"),
    [(2, 0.0, 0.95), (2, 0.2, 0.93), (2, 0.6, 0.87), (3, 0.2, 0.94), (3, 0.6, 0.91), (5, 0.6, 0.92)],
)
def test_the_interval_over_seeds_and_problems_covers(seeds, seed_spread, low):
    def covers(rng):
        found = stats.accuracy([scores(rng, seeds, 50, 8, seed_spread)])
        return found.low <= 0.5 <= found.high

    assert low < share(covers) < 0.995


# --- differences of several variants to one baseline ------------------------------------------------------------------


def of(*variants):
    """Scores of one family: each (S, P) array is a variant, the baseline first."""
    return [np.stack([np.asarray(scores, float) for scores in variants])[None]]


def normal(rng, variants, seeds, problems, spread=0.0):
    return (
        0.5
        + spread * rng.standard_normal((variants, seeds, 1))
        + 0.2 * rng.standard_normal((variants, seeds, problems))
    )


def test_one_seed_is_a_t_test_over_problems():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.1, 0.3, (1, 20))
    found = stats.family(of(np.full((1, 20), 0.5), differences + 0.5))
    expected = scipy_stats.ttest_1samp(differences[0], 0)
    assert 0.7 * expected.pvalue < found.p_values().item() < 1.1 * expected.pvalue
    low, high = (bound.item() for bound in found.intervals(0.05))
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval(0.95)), abs=0.002)


def test_where_seeds_alone_vary_many_of_them_are_a_t_test():
    """With ten seeds and no noise from answers, the route that looks at this variant alone is Student's test."""
    rng = np.random.default_rng(1)
    seeds = rng.normal(0, 0.05, (2, 10, 1)) + 0.5
    found = stats.family(of(*np.broadcast_to(seeds, (2, 10, 40))))
    expected = scipy_stats.ttest_rel(seeds[1, :, 0], seeds[0, :, 0])
    assert 0.7 * expected.pvalue < found.p_values().item() < 1.1 * expected.pvalue


def test_from_ten_seeds_on_the_degrees_of_freedom_are_satterthwaites():
    """Seeds and problems both vary, so the degrees of freedom are neither's own."""
    rng = np.random.default_rng(6)
    of_problems, of_seeds = rng.normal(0.1, 0.2, (1, 30)), rng.normal(0, 0.05, (10, 1))
    apart = of_problems + of_seeds + rng.normal(0, 0.05, (10, 30))
    found = stats.family(
        of(0.5 - apart / 2, 0.5 + apart / 2)
    )  # of all problems the mean is 0.5: slopes are equal
    seeds, problems = apart.mean(1).var(ddof=1) / 10, apart.mean(0).var(ddof=1) / 30
    rest = apart - apart.mean(0) - apart.mean(1, keepdims=True) + apart.mean()
    excess = problems - (rest**2).sum() / (9 * 29) / 300
    df = (seeds + excess) ** 2 / (seeds**2 / 9 + excess**2 / 29)
    expected = 2 * scipy_stats.t.sf(abs(apart.mean()) / math.sqrt(seeds + excess), df)
    assert found.p_values().item() == pytest.approx(expected, rel=0.02)


def test_differences_are_paired_and_the_seeds_shared_part_cancels():
    rng = np.random.default_rng(2)
    scores = normal(rng, 3, 3, 30)
    common = rng.normal(0, 0.3, (1, 3, 1))
    before, after = stats.family(of(*scores)), stats.family(of(*(scores + common)))
    assert after.difference == pytest.approx(before.difference)
    assert after.difference[0] == pytest.approx([(scores[v] - scores[0]).mean() for v in (1, 2)])
    assert after.p_values() == pytest.approx(before.p_values(), rel=0.2)  # the mean accuracy moves a little


def test_the_other_variants_seeds_say_how_much_seeds_differ():
    """Beside six variants whose seeds differ little, the same difference means more than alone."""
    rng = np.random.default_rng(3)
    scores = normal(rng, 7, 3, 100, 0.02)
    scores[1] += 0.12
    together, alone = stats.family(of(*scores)), stats.family(of(*scores[:2]))
    assert together.p_values()[0, 0] < alone.p_values()[0, 0] / 2


def test_intervals_are_the_truths_that_are_not_rejected_and_never_impossible():
    rng = np.random.default_rng(5)
    found = stats.family(of(*np.clip(normal(rng, 4, 3, 12, 0.3), 0, 1)))
    low, high = found.intervals(0.01)
    assert (low >= -1).all() and (high <= 1).all()
    assert (low < found.difference).all() and (found.difference < high).all()
    for bound in (low, high):
        inside = np.abs(bound) < 1
        assert found.p_values(bound)[inside] == pytest.approx(0.01, rel=0.01)


def pooled_by_loops(means, noise, level):
    """(weights, variances) of the pooled route, by the formulas of docs/statistics.md, one number at a time."""
    variants, seeds = means.shape
    every, grid = range(variants), [math.log(1e-3) + step * 2 * math.log(1e3) / 19 for step in range(20)]
    relative = [max(each / max(level), 0.03) ** 2 for each in level]

    def around_the_shared_part(precision):
        share = [each / sum(precision) for each in precision]
        rest = means - means.mean(1, keepdims=True)
        shared = [sum(share[v] * rest[v, s] for v in every) for s in range(seeds)]
        squares = [sum((rest[v, s] - shared[s]) ** 2 for s in range(seeds)) for v in every]
        return squares, [(seeds - 1) * (1 - each) for each in share]

    def kernel(width, t, k):
        density = [math.exp(-0.5 * ((grid[i] - grid[k]) / width) ** 2) for i in range(20)]
        return density[t] / sum(density)

    squares, freedom = around_the_shared_part([1.0] * variants)
    of_all = sum(squares) / sum(f * r for f, r in zip(freedom, relative, strict=True))
    scale, usual = (
        max(of_all, float(np.mean(noise))),
        [(width, k) for width in (0.3, 1.0, 2.5) for k in range(20)],
    )
    total = [[scale * math.exp(point) * relative[v] + noise[v] for point in grid] for v in every]
    others = np.array([[kernel(width, t, k) for width, k in usual] for t in range(20)])
    first = np.array([[kernel(2.5, t, k) for _, k in usual] for t in range(20)])
    prior = [scale * math.exp(grid[k]) / (scale * math.exp(grid[k]) + np.mean(noise)) for _, k in usual]
    for step in range(4):
        log = np.array(
            [[-0.5 * (freedom[v] * math.log(x) + squares[v] / x) for x in total[v]] for v in every]
        )
        likelihood = np.exp(log - log.max(1, keepdims=True))
        evidence = [likelihood[v] @ (others if v else first) for v in every]
        common = np.prod(evidence, axis=0) * np.array(prior) ** 0.2
        common /= common.sum()
        if step < 3:
            seen = [likelihood[v] * (others @ (common / evidence[v])) for v in every]
            squares, freedom = around_the_shared_part([sum(seen[v] / total[v]) for v in every])
    left = first * common / evidence[0] * likelihood[0][:, None]
    right = [others / evidence[v] * likelihood[v][:, None] for v in every[1:]]
    sums = [[(x + y) / seeds for x in total[0] for y in total[v]] for v in every[1:]]
    return [(left @ each.T).ravel() for each in right], sums


@pytest.mark.parametrize(("seeds", "noise"), [(3, 1e-4), (12, 0.0)])
def test_the_pooled_route_is_bayes_rule_on_a_grid(seeds, noise):
    rng = np.random.default_rng(4)
    means = 0.4 + np.array([[0.02], [0.05], [0.01]]) * rng.standard_normal((3, seeds))
    noises, level = np.array([1.0, 2.0, 0.5]) * noise, np.array([0.24, 0.1, 0.002])
    weights, variances, _ = comparisons.posterior_pooled(means[None], noises[None], level[None])
    expected = pooled_by_loops(means, noises, level)
    assert weights[0] == pytest.approx(np.array(expected[0]), rel=1e-6, abs=1e-12)
    assert variances[0] == pytest.approx(np.array(expected[1]))
    assert weights.sum(-1) == pytest.approx(np.ones((1, 2)))


def test_hundreds_of_seeds_are_numbers_too():
    means = 0.4 + 0.01 * np.random.default_rng(9).standard_normal((1, 3, 300))
    weights, *_ = comparisons.posterior_pooled(means, np.zeros((1, 3)), np.full((1, 3), 0.24))
    assert weights.sum(-1) == pytest.approx(np.ones((1, 2)))


def test_a_family_pools_spreads_in_logits_and_assumes_more_at_the_edges():
    rng = np.random.default_rng(8)
    strata = [rng.binomial(4, p, (1, 3, 3, 20)) / 4 for p in (0.8, 0.4)]
    strata[0][:, 1] = 1.0
    found, shares = stats.family(strata), [array.mean(axis=(2, 3)) for array in strata]
    means = np.mean([array.mean(axis=3) for array in strata], axis=0)
    level = np.mean([share * (1 - share) for share in shares], axis=0)
    rest, _ = comparisons.without_shifts(strata)
    weights, *_ = comparisons.posterior_pooled(means, comparisons.noise_of_answers(rest), level)
    assert found.pooled[0] == pytest.approx(weights)
    middles = [(share[0, 1:] + share[0, 0]) / 2 for share in shares]
    assert found.edge[0] == pytest.approx(sum(0.15 * (1 - 4 * m * (1 - m)) / 20 for m in middles) / 4)


def test_a_variant_that_is_always_wrong_says_nothing_about_what_seeds_share():
    """Seeds move all variants together by 0.1, and each by 0.01: only the latter is an error of differences."""
    rng = np.random.default_rng(12)
    together, alone = 0.1 * rng.standard_normal((1, 5, 1)), 0.01 * rng.standard_normal((4, 5, 1))
    scores = (0.5 + together + alone + rng.normal(0, 0.05, (4, 1, 40)))[None]
    wrong = np.concatenate([scores, np.zeros((1, 1, 5, 40))], axis=1)

    def spread(strata):
        weights, variances, _ = stats.family([strata]).pooled
        return (weights * variances).sum(axis=2)[0, :3]

    assert spread(wrong) == pytest.approx(spread(scores), rel=0.3)


def test_the_smaller_p_of_the_two_routes_pays_for_the_choice():
    """Normal errors on both routes, four differences, five seeds: shares 0.65 and 0.85, and a factor for the crowd."""
    pooled, pairwise = (
        (np.ones((1, 4, 1)), np.full((1, 4, 1), error**2), math.inf) for error in (0.04, 0.05)
    )
    none, apart = np.zeros((1, 4)), np.full((1, 4), 0.1)
    found = comparisons.Family(apart, pooled, pairwise, (none, none, none), np.ones((1, 4)), none, 5)
    expected = 2 * scipy_stats.norm.sf(2.5) / 0.65 * 2**0.1
    assert found.p_values() == pytest.approx(np.full((1, 4), expected), rel=1e-4)


def test_a_difference_that_is_a_shift_in_logits_is_as_sure_with_problems_that_it_hardly_moves():
    """Two problems of three are too hard or too easy to move: that says nothing against the shift, but how large it is."""
    moves = np.tile([0.25, 0.0, 0.0], 10)
    baseline = np.tile([0.5, 0.0, 1.0], 10) - 0.1 * moves
    seeds = 0.004 * np.array([[-1.0], [0.0], [1.0]])
    found = stats.family(of(baseline - seeds * moves, baseline + 0.2 * moves + seeds * moves))
    assert found.due_to_problems().item() == pytest.approx(0.0, abs=1e-12)
    slopes = 3 * moves / moves.max()
    truth = 0.02
    residuals = 0.2 * moves - (found.difference.item() - truth) * slopes
    assert found.due_to_problems(truth).item() == pytest.approx(residuals.var(ddof=1) / 30, rel=1e-6)


def test_problems_on_which_a_difference_is_of_the_other_sign_do_count():
    rng = np.random.default_rng(10)
    apart = np.where(np.arange(30) % 3, 0.2, -0.2)
    scores = of(
        np.full((3, 30), 0.5) - apart / 2, np.full((3, 30), 0.5) + apart / 2 + rng.normal(0, 0.01, (3, 30))
    )
    assert stats.family(scores).due_to_problems().item() == pytest.approx(apart.var(ddof=1) / 30, rel=0.05)


def test_nothing_varies():
    same = stats.family(of(np.full((3, 5), 0.5), np.full((3, 5), 0.5)))
    assert same.p_values().item() == 1 and stats.verdict(0.0, 1.0) == "within noise"
    other = stats.family(of(np.zeros((3, 5)), np.ones((3, 5))))
    assert other.p_values().item() == 0 and stats.verdict(1.0, 0.0) == "better"
    single = stats.family(of(np.full((3, 1), 0.5), np.full((3, 1), 0.7)))
    assert math.isnan(single.p_values().item()) and stats.verdict(0.2, math.nan) == "not testable"


def test_a_variant_that_is_always_wrong_says_nothing_about_the_others():
    """Its seeds do not differ at all, which is unlike all others: no number is too small to compute with."""
    rng = np.random.default_rng(8)
    chances = 0.2 + 0.08 * rng.standard_normal((50, 1, 10, 1)) + 0.04 * rng.standard_normal((50, 7, 10, 1))
    scores = rng.binomial(4, np.broadcast_to(np.clip(chances, 0.02, 1), (50, 7, 10, 192))) / 4
    scores[:, 6] = 0
    p_values = stats.family([scores]).p_values()
    assert np.isfinite(p_values).all()
    assert (p_values[:, :5].min(axis=1) < 0.01).mean() < 0.1 and (p_values[:, 5] < 0.01).all()


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, math.nan, 0.03]) == pytest.approx(
        [0.03, 0.06, math.nan, 0.06], nan_ok=True
    )
    assert stats.holm([[0.6, 0.9], [0.01, 0.02]]).tolist() == [[1, 1], [0.02, 0.02]]
    assert stats.holm([]).tolist() == []


@pytest.mark.parametrize(
    "cell",
    [
        error_rates.Cell(variants=7, seeds=3, spread=0.2),
        error_rates.Cell(variants=3, seeds=3, spread=0.8),
        error_rates.Cell(variants=7, seeds=3, spread=0.1, unequal="baseline 3 x"),
        error_rates.Cell(variants=7, seeds=5, spread=0.3, unequal="one variant 3 x"),
        error_rates.Cell(variants=7, seeds=3, problems=30, samples=1, accuracy=0.05, spread=0.4),
    ],
    ids=lambda cell: f"{cell.variants}-{cell.seeds}-{cell.spread}-{cell.unequal}",
)
def test_a_slice_of_the_error_rates(cell):
    """400 sweeps: three standard errors above 0.06 and below 0.94. The whole grid: python -m benchmarks.error_rates."""
    equal = error_rates.simulated(cell, 400, 0, np.zeros(cell.variants))
    assert equal.false.mean() < 0.06 + 0.036 and equal.covered.mean() > 0.94 - 0.036


def test_a_real_difference_is_found_more_often_than_by_the_former_test():
    cell = error_rates.Cell(variants=7, seeds=3, problems=100, spread=0.1)
    apart = error_rates.simulated(cell, 100, 0, np.array([0.0] + [0.06] * 6))
    assert apart.found.mean() > apart.former_found.mean() + 0.1


def test_the_benchmark_judges_levels_and_coverage_beyond_the_error_of_its_simulation():
    def measured(false, covered, sweeps=1000, seeds=3):
        events = [1 * (np.arange(sweeps) < share * sweeps) for share in (0.0, false, covered, 0.5, 0.5)]
        outcomes = error_rates.Outcomes(*events, np.zeros((sweeps, 6)))
        return error_rates.Measured(error_rates.Cell(seeds=seeds), outcomes, outcomes)

    good = [measured(0.05, 0.95)] * 20
    assert error_rates.judgement([*good, measured(0.07, 0.93)])[1], "within the error of 1,000 sweeps"
    assert not error_rates.judgement([*good, measured(0.07, 0.95, 10_000)])[1]
    assert not error_rates.judgement([*good, measured(0.05, 0.93, 10_000)])[1]
    assert error_rates.judgement([*good, measured(0.3, 0.7, seeds=2)])[1], "two seeds give no verdicts"


def test_the_documented_error_rates_are_those_of_the_cells():
    """By kind, with what is said of the worst of them, on one page; every cell on the other."""
    docs = Path(error_rates.__file__).parents[1] / "docs"
    cells, summary = ((docs / name).read_text("utf-8") for name in ("error-rates.md", "statistics.md"))
    lines = [line for line in cells.splitlines() if re.match(r"\| .*\d \|", line)]
    rows = [[cell.strip() for cell in line[1:-2].split("|")] for line in lines]
    assert [row[:6] for row in rows] == [cell.title for cell in error_rates.grid()]
    for row in error_rates.by_kind(rows).itertuples(index=False):
        assert f"| {' | '.join(row)} |" in summary


def test_no_benchmark_tests_differences_in_a_way_of_its_own():
    """Within the package only few rooms may use scipy (tests/rooms.yaml); three benchmarks simulate and judge with it."""
    folder = Path(error_rates.__file__).parent
    own = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"(?m)^ *(from|import) scipy", path.read_text("utf-8"))
    }
    assert own == {"error_rates.py", "compute_fits.py", "study_error_rates.py"}, (
        "rpg.stats.family tests differences"
    )


def test_a_shift_of_the_logits_leaves_nothing_of_itself_and_moves_benchmarks_by_one_on_average():
    logits = np.random.default_rng(0).normal(size=(2, 40))
    shift = (
        1e-4 * np.arange(3)[:, None, None]
    )  # of each variant; so small that it acts in proportion to p (1 - p)
    arrays = [special.expit(hard + shift)[None] for hard in logits[:, None, None]]
    rest, slopes = comparisons.without_shifts(arrays)
    assert np.mean([slope.mean() for slope in slopes]) == pytest.approx(1)
    moved = [array[:, 1:] - array[:, :1] for array in rest]
    assert np.abs(moved).max() < 1e-3 * np.abs([array[:, 1:] - array[:, :1] for array in arrays]).max()


# --- power and looks ---------------------------------------------------------------------------------------------------

DESIGN = stats.Design(variants=3, seeds=3, problems=(100,), samples=4)
SPREADS = stats.Spreads(0.02, 0.4, 0.05)


@pytest.mark.parametrize(
    ("variants", "seeds", "spread"),
    [(2, 3, 0.03), (2, 6, 0.0), (3, 3, 0.0), (3, 6, 0.03), (7, 3, 0.01), (7, 6, 0.01)],
)
def test_what_is_said_to_be_detectable_is_found_in_about_four_sweeps_of_five(variants, seeds, spread):
    rng = np.random.default_rng(6)
    spreads = stats.Spreads(spread, 0.4, 0.05)
    smallest = stats.detectable(stats.Design(variants, seeds, (100,), 4), spreads)
    scores = spreads.seeds * rng.standard_normal((150, variants, seeds, 1))
    scores = scores + 0.2 * rng.standard_normal((150, variants, seeds, 100))
    scores += 0.5 + spreads.problems * rng.standard_normal((150, variants, 1, 100))
    scores[:, 1:] += smallest
    found = stats.family([scores]).p_values() <= 0.05 / (variants - 1)
    assert 0.65 < found.mean() < 0.92


def test_more_seeds_or_problems_find_smaller_differences():
    smallest = stats.detectable(DESIGN, SPREADS)
    assert stats.detectable(DESIGN._replace(seeds=6), SPREADS) < 0.75 * smallest
    assert stats.detectable(DESIGN._replace(problems=(400,)), SPREADS) < smallest
    seeds = stats.seeds_needed(DESIGN, SPREADS, 0.05)
    assert seeds > 3 and stats.detectable(DESIGN._replace(seeds=seeds), SPREADS) <= 0.05
    assert stats.problems_needed(DESIGN, SPREADS._replace(seeds=0.2), 0.01) is None
    assert f"take about {seeds} seeds" in stats.sentence(DESIGN, SPREADS, 0.05)


def test_what_is_detectable_by_hand():
    """Where only problems make a difference vary it is a t test over these; two halves are as good as the whole."""
    few = stats.Design(2, 100, (5,), 10**6)
    quantiles = scipy_stats.t(4).ppf(0.975) + scipy_stats.t(4).ppf(0.8)
    expected = quantiles * math.sqrt(2 * 0.05**2 / 5)
    assert stats.detectable(few, stats.Spreads(0.0, 1e-6, 0.05)) == pytest.approx(expected, rel=1e-3)
    halves = stats.detectable(DESIGN._replace(problems=(50, 50)), SPREADS)
    assert halves == pytest.approx(stats.detectable(DESIGN, SPREADS), rel=1e-2)
    few_seeds = SPREADS._replace(seeds=0.01)
    needed = stats.problems_needed(DESIGN, few_seeds, 0.08)
    finds = [
        stats.detectable(DESIGN._replace(problems=(count,)), few_seeds)
        for count in (needed, round(needed / 1.3))
    ]
    assert finds[0] <= 0.08 < finds[1]


def test_spreads_are_recovered_from_scores():
    rng = np.random.default_rng(7)
    truth = 0.5 + 0.04 * rng.standard_normal((7, 10, 1)) + 0.05 * rng.standard_normal((7, 1, 500))
    scores = rng.binomial(4, np.clip(truth, 0, 1)) / 4
    found = stats.spreads([scores], samples=4)
    assert found == pytest.approx((0.04, 0.5, 0.05), rel=0.2)


def test_looks_never_spend_more_than_six_percent():
    looks, levels = [], []
    for seeds in (2, 3, 4, 7, 8, 20, 50):
        runs = [str(run) for run in range(3 * seeds)]
        earlier, planned, level = stats.next_look(looks, "a", runs, 9)
        assert len(earlier) == len(looks) and planned == 9
        looks.append(stats.Look("a", tuple(runs), planned, len(looks) + 1, level, (), None, {}))
        levels.append(level)
    assert levels[0] == pytest.approx(0.05 * (2 / 3) ** 3) and sum(levels[:2]) == pytest.approx(0.05)
    assert all(level > 0 for level in levels) and sum(levels) < 0.06
    again = stats.next_look(looks, "a", looks[2].runs, 9)
    assert len(again[0]) == 2 and again[2] == pytest.approx(levels[2]), "the same runs are no new look"
    assert stats.next_look(looks, "b", looks[1].runs, 9)[2] == pytest.approx(0.05)


def test_seeds_that_are_added_one_by_one_do_not_add_up():
    ours, naive = error_rates.looked_at(error_rates.Cell(variants=3, problems=50, spread=0.4), 12, 150)
    assert ours < 0.06 + 0.04 < naive
