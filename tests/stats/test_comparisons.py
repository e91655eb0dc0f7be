"""Differences of several variants to one baseline: what the test says, against formulas written out
and simulations."""

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


def of(*variants):
    """Scores of one family: each (S, P) array is a variant, the baseline first."""
    return [np.stack([np.asarray(scores, float) for scores in variants])[None]]


def normal(rng, variants, seeds, problems, spread=0.0):
    of_seeds = spread * rng.standard_normal((variants, seeds, 1))
    return 0.5 + of_seeds + 0.2 * rng.standard_normal((variants, seeds, problems))


def test_one_seed_is_a_t_test_over_problems():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.1, 0.3, (1, 20))
    found = stats.family(of(np.full((1, 20), 0.5), differences + 0.5))
    expected = scipy_stats.ttest_1samp(differences[0], 0)
    assert 0.7 * expected.pvalue < found.p_values().item() < 1.1 * expected.pvalue
    low, high = (bound.item() for bound in found.intervals(0.05))
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval(0.95)), abs=0.002)


@pytest.mark.parametrize("count", [30, 10])
def test_from_ten_seeds_on_the_degrees_of_freedom_are_satterthwaites(count):
    """Seeds and problems both vary, so the degrees of freedom are neither's own; those of few
    problems count the noise."""
    rng = np.random.default_rng(6)
    of_problems, of_seeds = rng.normal(0.1, 0.2, (1, count)), rng.normal(0, 0.05, (10, 1))
    apart = of_problems + of_seeds + rng.normal(0, 0.3, (10, count))
    # The mean over all problems is 0.5: slopes are equal.
    found = stats.family(of(0.5 - apart / 2, 0.5 + apart / 2))
    seeds, problems = apart.mean(1).var(ddof=1) / 10, apart.mean(0).var(ddof=1) / count
    rest = apart - apart.mean(0) - apart.mean(1, keepdims=True) + apart.mean()
    noise = (rest**2).sum() / (9 * (count - 1)) / (10 * count)
    seeds, excess = max(seeds, noise), problems - noise
    of_excess = problems**2 / 9 + noise**2 / 81 if count == 10 else excess**2 / 29
    df = (seeds + excess) ** 2 / (seeds**2 / 9 + of_excess)
    expected = 2 * scipy_stats.t.sf(abs(apart.mean()) / math.sqrt(seeds + excess), df)
    assert found.p_values().item() == pytest.approx(expected, rel=0.02)


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
    """(weights, variances) of the pooled route, by the formulas of docs/statistics.md, one number
    at a time."""
    variants, seeds = means.shape
    every, grid = (
        range(variants),
        [math.log(1e-3) + step * 2 * math.log(1e3) / 19 for step in range(20)],
    )
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
    scale = max(of_all, float(np.mean(noise)))
    usual = [(width, k) for width in (0.3, 1.0, 2.5) for k in range(20)]
    total = [[scale * math.exp(point) * relative[v] + noise[v] for point in grid] for v in every]
    others = np.array([[kernel(width, t, k) for width, k in usual] for t in range(20)])
    first = np.array([[kernel(2.5, t, k) for _, k in usual] for t in range(20)])
    prior = [
        scale * math.exp(grid[k]) / (scale * math.exp(grid[k]) + np.mean(noise)) for _, k in usual
    ]
    for step in range(4):
        log = [
            [-0.5 * (freedom[v] * math.log(x) + squares[v] / x) for x in total[v]] for v in every
        ]
        log = np.array(log)
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
    assert found.edge[0] == pytest.approx(
        sum(0.15 * (1 - 4 * m * (1 - m)) / 20 for m in middles) / 4
    )


def test_a_variant_that_is_always_wrong_says_nothing_about_what_seeds_share():
    """Seeds move all variants together by 0.1, and each by 0.01: only the latter is an error of
    differences."""
    rng = np.random.default_rng(12)
    together, alone = 0.1 * rng.standard_normal((1, 5, 1)), 0.01 * rng.standard_normal((4, 5, 1))
    scores = (0.5 + together + alone + rng.normal(0, 0.05, (4, 1, 40)))[None]
    wrong = np.concatenate([scores, np.zeros((1, 1, 5, 40))], axis=1)

    def spread(strata):
        weights, variances, _ = stats.family([strata]).pooled
        return (weights * variances).sum(axis=2)[0, :3]

    assert spread(wrong) == pytest.approx(spread(scores), rel=0.3)


def test_the_smaller_p_of_the_two_routes_pays_for_the_choice():
    """Normal errors on both routes, four differences, five seeds: shares 0.65 and 0.85, and a
    factor for the crowd."""
    none, ones = np.zeros((1, 4)), np.ones((1, 4))
    pooled, pairwise = (
        (ones[..., None], spread**2 * ones[..., None], math.inf) for spread in (0.04, 0.05)
    )
    found = comparisons.Family(
        0.1 * ones, pooled, pairwise, (none, none, none), ones, none, (1.0, 0.0), 5
    )
    expected = 2 * scipy_stats.norm.sf(2.5) / 0.65 * 2**0.1
    assert found.p_values() == pytest.approx(expected * ones, rel=1e-4)


def test_a_difference_that_is_a_shift_in_logits_is_as_sure_with_problems_that_it_hardly_moves():
    """Two problems of three are too hard or too easy to move: that says nothing against the shift,
    but how large it is."""
    moves = np.tile([0.25, 0.0, 0.0], 10)
    baseline = np.tile([0.5, 0.0, 1.0], 10) - 0.1 * moves
    seeds = 0.004 * np.array([[-1.0], [0.0], [1.0]])
    found = stats.family(of(baseline - seeds * moves, baseline + 0.2 * moves + seeds * moves))
    assert found.due_to_problems().item() == pytest.approx(0.0, abs=1e-12)
    slopes = 3 * moves / moves.max()
    truth = 0.02
    residuals = 0.2 * moves - (found.difference.item() - truth) * slopes
    assert found.due_to_problems(truth).item() == pytest.approx(
        residuals.var(ddof=1) / 30, rel=1e-6
    )


def test_noise_counts_where_one_small_benchmark_decides_how_much_a_mean_varies():
    """Ten seeds, problems that each suit other variants: equal ones differed in 9 to 12 % of sweeps
    with 5 and 500."""
    rng, sizes = np.random.default_rng(10), ((5, 500), (25, 500))
    small, large = (
        stats.family([normal(rng, 2, 10, n)[None] for n in each]).noise[0] for each in sizes
    )
    assert small.item() > 0 == large.item()


def test_problems_add_at_most_what_they_would_if_one_variant_solved_each_and_the_other_none():
    """Where nearly all is right: an interval of ±1 would say that nothing is known."""
    rng = np.random.default_rng(12)
    right = [rng.random((1, 2, 4, problems)) < [[[0.99]], [[1.0]]] for problems in (10, 30)]
    found = stats.family([1.0 * scores for scores in right])
    low, high = found.intervals(0.05)
    assert -0.5 < low.item() < 0 < high.item() < 0.5
    for _ in range(1000):
        shares = zip((10, 30), rng.random(2), strict=True)
        apart = [rng.choice([-1, 1], problems, p=[share, 1 - share]) for problems, share in shares]
        truth = np.mean([each.mean() for each in apart])
        of_mean = sum(each.var() / len(each) for each in apart) / 4
        assert of_mean <= found.most[0] - found.most[1] * truth**2 + 1e-12
    share = 0.6  # the worst: benchmarks differ in proportion to their problems
    of_mean = sum((1 - (share * problems / 20) ** 2) / problems for problems in (10, 30)) / 4
    assert of_mean == pytest.approx(found.most[0] - found.most[1] * share**2)


def test_verdicts_also_where_nothing_varies():
    cases = {(0.1, 0.05): "better", (-0.1, 0.01): "worse", (0.1, 0.06): "within noise"}
    assert all(stats.verdict(*case) == words for case, words in cases.items())
    same = stats.family(of(np.full((3, 5), 0.5), np.full((3, 5), 0.5)))
    assert same.p_values().item() == 1 and stats.verdict(0.0, 1.0) == "within noise"
    other = stats.family(of(np.zeros((3, 5)), np.ones((3, 5))))
    assert other.p_values().item() == 0 and stats.verdict(1.0, 0.0) == "better"
    single = stats.family(of(np.full((3, 1), 0.5), np.full((3, 1), 0.7)))
    assert math.isnan(single.p_values().item()) and stats.verdict(0.2, math.nan) == "not testable"


def test_a_variant_that_is_always_wrong_says_nothing_about_the_others():
    """Its seeds do not differ at all, which is unlike all others: no number is too small to compute
    with."""
    rng = np.random.default_rng(8)
    chances = (
        0.2
        + 0.08 * rng.standard_normal((50, 1, 10, 1))
        + 0.04 * rng.standard_normal((50, 7, 10, 1))
    )
    scores = rng.binomial(4, np.broadcast_to(np.clip(chances, 0.02, 1), (50, 7, 10, 192))) / 4
    scores[:, 6] = 0
    p_values = stats.family([scores]).p_values()
    assert np.isfinite(p_values).all()
    assert (p_values[:, :5].min(axis=1) < 0.01).mean() < 0.1 and (p_values[:, 5] < 0.01).all()


def test_holm_by_hand():
    corrected = stats.holm([0.01, 0.04, math.nan, 0.03])
    assert corrected == pytest.approx([0.03, 0.06, math.nan, 0.06], nan_ok=True)
    assert stats.holm([[0.6, 0.9], [0.01, 0.02]]).tolist() == [[1, 1], [0.02, 0.02]]
    assert stats.holm([]).tolist() == []


@pytest.mark.parametrize(
    "cell",
    [
        error_rates.Cell(variants=3, seeds=3, spread=0.8),
        error_rates.Cell(variants=7, seeds=3, spread=0.1, unequal="baseline 3 x"),
        error_rates.Cell(variants=7, seeds=5, spread=0.3, unequal="one variant 3 x"),
        error_rates.Cell(variants=7, seeds=3, problems=30, samples=1, accuracy=0.05, spread=0.4),
    ],
    ids=lambda cell: f"{cell.variants}-{cell.seeds}-{cell.spread}-{cell.unequal}",
)
def test_a_slice_of_the_error_rates(cell):
    """400 sweeps: three standard errors above 0.06 and below 0.94. The whole grid: python -m
    benchmarks.error_rates."""
    equal = error_rates.simulated(cell, 400, 0, np.zeros(cell.variants))
    assert equal.false.mean() < 0.06 + 0.036 and equal.covered.mean() > 0.94 - 0.036


def test_the_benchmark_judges_levels_and_coverage_beyond_the_error_of_its_simulation():
    def measured(false, covered, sweeps=1000, seeds=3):
        events = [
            1 * (np.arange(sweeps) < share * sweeps) for share in (0.0, false, covered, 0.5, 0.5)
        ]
        outcomes = error_rates.Outcomes(*events, np.zeros((sweeps, 6)))
        return error_rates.Measured(error_rates.Cell(seeds=seeds), outcomes, outcomes)

    good = [measured(0.05, 0.95)] * 20
    within = "within the error of 1,000 sweeps, 21 cells"
    assert error_rates.judgement([*good, measured(0.07, 0.93)])[1], within
    assert not error_rates.judgement([*good, measured(0.07, 0.95, 10_000)])[1]
    assert not error_rates.judgement([*good, measured(0.05, 0.93, 10_000)])[1]
    assert error_rates.judgement([*good, measured(0.3, 0.7, seeds=2)])[1], (
        "two seeds give no verdicts"
    )


def test_the_documented_error_rates_are_those_of_the_cells():
    """By kind, with what is said of the worst of them, on one page; every cell on the other."""
    docs = Path(error_rates.__file__).parents[1] / "docs"
    cells, summary = (
        (docs / name).read_text("utf-8") for name in ("error-rates.md", "statistics.md")
    )
    lines = [line for line in cells.splitlines() if re.match(r"\| .*\d \|", line)]
    rows = [[cell.strip() for cell in line[1:-2].split("|")] for line in lines]
    assert [row[:6] for row in rows] == [cell.title for cell in error_rates.grid()]
    for row in error_rates.by_kind(rows).itertuples(index=False):
        assert f"| {' | '.join(row)} |" in summary


def test_no_benchmark_tests_differences_in_a_way_of_its_own():
    """Within the package only few rooms may use scipy (tests/rooms.yaml); three benchmarks simulate
    and judge with it."""
    folder = Path(error_rates.__file__).parent
    texts = {path.name: path.read_text("utf-8") for path in folder.rglob("*.py")}
    own = {name for name, text in texts.items() if re.search(r"(?m)^ *(from|import) scipy", text)}
    assert own == {"error_rates.py", "compute_fits.py", "study_error_rates.py"}


def test_a_shift_of_the_logits_leaves_nothing_of_itself_and_moves_benchmarks_by_one_on_average():
    logits = np.random.default_rng(0).normal(size=(2, 40))
    # Of each variant; so small that it acts in proportion to p (1 - p).
    shift = 1e-4 * np.arange(3)[:, None, None]
    arrays = [special.expit(hard + shift)[None] for hard in logits[:, None, None]]
    rest, slopes = comparisons.without_shifts(arrays)
    assert np.mean([slope.mean() for slope in slopes]) == pytest.approx(1)
    moved = [array[:, 1:] - array[:, :1] for array in rest]
    assert (
        np.abs(moved).max() < 1e-3 * np.abs([array[:, 1:] - array[:, :1] for array in arrays]).max()
    )
