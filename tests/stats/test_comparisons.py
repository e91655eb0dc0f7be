"""Differences of several variants to one baseline: what the test says, against formulas written out
and simulations."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize
from scipy import stats as scipy_stats

from benchmarks import error_rates
from rpg import stats
from rpg.stats import comparisons


def of(*variants):
    """Scores of one family: each (S, P) array is a variant, the baseline first."""
    return [np.stack([np.asarray(scores, float) for scores in variants])[None]]


def seeds_only(rng, variants, seeds, problems=20):
    """Scores (1, V, S, P) whose problems differ, but alike for all variants and seeds."""
    of_problems = 0.2 * rng.standard_normal(problems)
    return (0.5 + 0.03 * rng.standard_normal((1, variants, seeds, 1))) + of_problems


def without_rows_and_columns(table):
    """What a table (R, C) has beside the means of its rows and its columns."""
    return table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()


def test_one_seed_is_a_t_test_over_problems():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.1, 0.3, (1, 20))
    found = stats.family(of(np.full((1, 20), 0.5), differences + 0.5))
    expected = scipy_stats.ttest_1samp(differences[0], 0)
    assert found.p_values().item() == pytest.approx(expected.pvalue)
    low, high = (bound.item() for bound in found.intervals(0.05))
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_two_variants_whose_problems_do_not_differ_are_a_paired_t_test(seeds):
    scores = seeds_only(np.random.default_rng(1), 2, seeds)
    means = scores[0].mean(axis=2)
    expected = scipy_stats.ttest_rel(means[1], means[0])
    assert stats.family([scores]).p_values().item() == pytest.approx(expected.pvalue, rel=1e-6)


def test_variances_of_seeds_are_moderated_towards_their_mean():
    """Seven variants with three seeds: a prior of 2 degrees of freedom, of 0.5 for the baseline."""
    scores = seeds_only(np.random.default_rng(2), 7, 3)
    found = stats.family([scores])

    rest = without_rows_and_columns(scores[0].mean(axis=2))
    own = (rest**2).sum(axis=1) / (2 * 6 / 7)  # 2 degrees of freedom each, less the means taken out
    prior = comparisons.prior_df(6, seeds=3)
    assert prior == 2

    # Variances of means over three seeds, each drawn to the mean of all, or of the other variants.
    df_baseline = prior / 4 + 2
    df_variant = prior + 2
    baseline = (prior / 4 * own[1:].mean() + 2 * own[0]) / df_baseline / 3
    variant = (prior * own.mean() + 2 * own[1:]) / df_variant / 3
    assert found.of_seeds.variance[0] == pytest.approx(baseline + variant)

    # Both take part in the residuals of the other: -1/6 of them, squared.
    spread = baseline**2 / df_baseline + variant**2 / df_variant
    spread += 2 * baseline * variant / 6**2 / math.sqrt(df_baseline * df_variant)
    df = (baseline + variant) ** 2 / spread
    assert found.of_seeds.df[0] == pytest.approx(df)


@pytest.mark.parametrize(
    ("differences", "seeds", "df"),
    [(1, 3, 0.0), (2, 3, 0.4), (6, 3, 2.0), (14, 3, 2.5), (6, 5, 4.0), (14, 5, 5.0), (14, 10, 5.0)],
)
def test_the_prior_has_more_weight_with_more_variants(differences, seeds, df):
    assert comparisons.prior_df(differences, seeds) == pytest.approx(df)


def test_problems_add_their_variance_without_what_answers_make_of_it():
    rng = np.random.default_rng(3)
    of_problems = rng.normal(0.1, 0.2, (1, 30))
    of_seeds = rng.normal(0, 0.05, (10, 1))
    of_answers = rng.normal(0, 0.3, (10, 30))
    apart = of_problems + of_seeds + of_answers
    found = stats.family(of(0.5 - apart / 2, 0.5 + apart / 2))

    answers = (without_rows_and_columns(apart) ** 2).sum() / (9 * 29) / (10 * 30)
    seeds = max(apart.mean(1).var(ddof=1) / 10, answers)
    problems = apart.mean(0).var(ddof=1) / 30 - answers
    error = found.variance()
    assert error.variance.item() == pytest.approx(seeds + problems)

    share = seeds / (seeds + problems)
    assert error.df.item() == pytest.approx(1 / (share / 9 + (1 - share) / 29))
    assert found.variance(stats.THESE).variance.item() == pytest.approx(seeds)


def test_further_seeds_of_the_baseline_count_as_far_as_seeds_are_not_shared():
    rng = np.random.default_rng(4)
    alone = rng.standard_normal((1, 15, 40, 1)) * 0.05
    shared = rng.standard_normal((1, 1, 40, 1)) * 0.2
    problems = np.zeros(4)
    more = 0.5 + 0.05 * rng.standard_normal((1, 80, 1)) + problems
    baseline, *variants = 0.5 + alone[0, :, :, 0]
    of_variants = np.mean(variants, axis=1)

    apart = stats.family([0.5 + alone + problems], [more])
    everyone = np.concatenate([baseline, more[0, :, 0]])
    assert apart.difference[0] == pytest.approx(of_variants - everyone.mean(), abs=2e-3)
    assert apart.correlation == 40 / 160

    together = stats.family([0.5 + shared + alone + problems], [more])
    assert together.difference[0] == pytest.approx(of_variants - baseline.mean(), abs=3e-3)


@dataclass(frozen=True)
class OfFurther:
    """Three variants with three seeds each, four further ones of the baseline, and their formulas
    written out for one table."""

    means: np.ndarray
    further: np.ndarray
    found: stats.Family

    @property
    def weight(self):
        rest = self.means - self.means.mean(1, keepdims=True)
        rest = rest - rest.mean(axis=0)
        within = (rest**2).sum() / (2 * 2)
        between = 3 * self.means.mean(0).var(ddof=1)
        correlation = (between - within) / (between + 2 * within)
        assert 0.1 < correlation < 0.9
        return 4 / 7 * (1 - correlation)


@pytest.fixture
def of_further():
    rng = np.random.default_rng(15)
    scores = seeds_only(rng, 3, 3) + 0.03 * rng.standard_normal((1, 1, 3, 1))
    more = 0.5 + 0.1 * rng.standard_normal((1, 4, 1)) + np.zeros(20)
    return OfFurther(
        means=scores[0].mean(axis=2),
        further=more[0].mean(axis=1),
        found=stats.family([scores], [more]),
    )


def test_further_seeds_weigh_as_the_mean_squares_say(of_further):
    weight = of_further.weight
    baseline = (1 - weight) * of_further.means[0].mean() + weight * of_further.further.mean()
    expected = of_further.means[1:].mean(1) - baseline
    assert of_further.found.difference[0] == pytest.approx(expected)


def test_further_seeds_add_an_error_of_their_own(of_further):
    """The variance of a difference: of the baseline's own seeds, the variant's and the further."""
    weight = of_further.weight
    weighted = of_further.means * np.array([1 - weight, 1, 1])[:, None]
    own = (without_rows_and_columns(weighted) ** 2).sum(axis=1) / (2 * 2 / 3)

    # Two degrees of freedom of their own, and those of the prior; a quarter of it for the baseline.
    prior = comparisons.prior_df(2, seeds=3)
    df_baseline = prior / 4 + 2
    df_variant = prior + 2
    baseline = (prior / 4 * own[1:].mean() + 2 * own[0]) / df_baseline / 3
    variant = (prior * own.mean() + 2 * own[1:]) / df_variant / 3

    everyone = np.concatenate([of_further.means[0], of_further.further])
    further = weight**2 * everyone.var(ddof=1) / 4
    expected = baseline + variant + further
    assert of_further.found.of_seeds.variance[0] == pytest.approx(expected)

    spread = baseline**2 / df_baseline + variant**2 / df_variant + further**2 / 6
    spread += 2 * baseline * variant / 4 / math.sqrt(df_baseline * df_variant)
    assert of_further.found.of_seeds.df[0] == pytest.approx(expected**2 / spread)


def test_the_mixed_model_has_the_variance_that_differences_have_beside_further_seeds():
    """Only seeds vary, those of the baseline and of the variants alike."""
    rng = np.random.default_rng(17)
    problems = np.zeros(4)
    scores = 0.5 + 0.1 * rng.standard_normal((4000, 3, 3, 1)) + problems
    more = 0.5 + 0.1 * rng.standard_normal((4000, 4, 1)) + problems
    found = stats.family([scores], [more])
    assert found.mixed.variance.mean() == pytest.approx(found.difference.var(), rel=0.1)


@pytest.mark.component
def test_intervals_of_further_seeds_cover():
    rng = np.random.default_rng(5)
    cell = error_rates.Cell(variants=4, seeds=3, further=6, spread=0.4, problems=(40,))
    tables = error_rates.draw(rng, cell, 1500)
    found = stats.family(tables.scores, tables.further)
    low, high = found.intervals(0.05)
    assert ((low <= 0) & (high >= 0)).all(axis=1).mean() > 0.93


@pytest.mark.parametrize("correlation", [0.25, 0.5])
@pytest.mark.parametrize("comparisons_", [2, 6, 14])
def test_many_comparisons_with_one_baseline_against_draws(comparisons_, correlation):
    rng = np.random.default_rng(6)
    shared = rng.standard_normal((200_000, 1))
    alone = rng.standard_normal((200_000, comparisons_))
    deviates = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * alone
    for p in (0.001, 0.01, 0.05):
        smallest = 2 * scipy_stats.norm.sf(np.abs(deviates).max(axis=1))
        together = comparisons.many_to_one.familywise_p(p, comparisons_, correlation)
        assert together == pytest.approx((smallest <= p).mean(), abs=4 * 0.0006)
        assert comparisons.many_to_one.alone_p(float(together), comparisons_, correlation) == (
            pytest.approx(p, rel=1e-3)
        )


def test_dunnetts_quantiles_of_1964():
    """Two-sided 5 % points for 2 and 5 treatments, 10 and 20 degrees of freedom."""
    quantiles = {(2, 10): 2.57, (2, 20): 2.38, (5, 10): 3.03, (5, 20): 2.73}
    for (treatments, df), quantile in quantiles.items():
        p = comparisons.many_to_one.dunnett([quantile], [df], treatments, 0.5).item()
        assert p == pytest.approx(0.05, abs=0.003)


@pytest.mark.component
def test_better_and_worse_are_where_the_interval_excludes_zero_in_ten_thousand_tables():
    rng = np.random.default_rng(7)
    seen = set()
    designs = [(0.5, 3, 0), (0.02, 3, 2), (0.97, 5, 0), (0.2, 4, 3)]
    for share, seeds, further in designs:
        cell = error_rates.Cell(
            variants=5,
            seeds=seeds,
            further=further,
            problems=(20, 7),
            samples=(4, 4),
            accuracies=(share, share),
            spread=0.6,
        )
        tables = error_rates.draw(rng, cell, 2500, moved=0.7)
        found = stats.family(tables.scores, tables.further)
        low, high = found.intervals(0.05, comparisons=8)
        verdicts = [stats.verdict(*bounds) for bounds in zip(low.flat, high.flat, strict=True)]
        seen |= set(verdicts)

        excludes = (low > 0) | (high < 0)
        assert ((found.familywise_p(comparisons=8) <= 0.05) == excludes).all()
        assert [verdict != "within noise" for verdict in verdicts] == excludes.ravel().tolist()

        assert (low <= found.difference).all()
        assert (found.difference <= high).all()
        assert (low >= -found.baseline - 1e-12).all()
        assert (high <= 1 - found.baseline + 1e-12).all()
    assert seen == {"better", "worse", "within noise"}


def test_clusters_are_the_units():
    rng = np.random.default_rng(8)
    scores = rng.random((3, 4, 4, 12))
    labels = [place % 4 for place in range(12)]
    of_clusters = [scores[..., place::4].mean(axis=-1) for place in range(4)]
    clustered = stats.family([scores], clusters=[labels])
    plain = stats.family([np.stack(of_clusters, axis=-1)])
    assert clustered.difference == pytest.approx(plain.difference)
    assert clustered.p_values() == pytest.approx(plain.p_values())
    # How many problems move: each by itself for these problems, clusters for others like them.
    assert clustered.moving_alone == pytest.approx(stats.family([scores]).moving)
    assert clustered.moving_alone != pytest.approx(clustered.moving)
    uneven = comparisons.units(scores, ["a"] * 7 + ["b", "b", "c", "d", "e"])
    assert uneven.shape[-1] == 5
    assert uneven.mean(axis=-1) == pytest.approx(scores.mean(axis=-1))


def test_a_cluster_of_more_problems_stands_for_more_units():
    """By hand: P = 3 problems in C = 2 clusters; a cluster of n counts n C / P times."""
    assert comparisons.units(np.array([1.0, 1.0, 0.0]), ["a", "a", "b"]) == pytest.approx(
        [2 / 3 + 1 / 3 * (2 * 2 / 3), 2 / 3 - 2 / 3 * (1 * 2 / 3)]
    )
    of_one_size = np.array([1.0, 0.0, 0.5, 0.0])
    assert comparisons.units(of_one_size, list("aabb")) == pytest.approx([0.5, 0.25])


def test_problems_that_hardly_move_do_not_count():
    accuracies = np.array([[0.5] * 12 + [0.0] * 300 + [1.0] * 50])
    assert comparisons.kish([accuracies]).item() == pytest.approx(12)
    assert comparisons.kish([np.zeros((1, 5))]).item() == 0
    # Half of the mean hangs on a benchmark of three.
    both = comparisons.kish([np.full((1, 3), 0.5), np.full((1, 300), 0.5)]).item()
    assert both == pytest.approx(1 / (0.25 / 3 + 0.25 / 300), rel=1e-6)


def test_the_mixed_model_is_that_of_the_expected_mean_squares():
    """Searle, Casella & McCulloch (1992), ch. 4: variants x seeds x problems, without
    replicates."""
    rng = np.random.default_rng(9)
    scores = rng.random((1, 4, 3, 10)) + 0.3 * rng.random((1, 4, 1, 10)) + rng.random((1, 4, 3, 1))
    found = stats.family([scores])
    y = scores[0]
    of_seeds = y.mean(axis=2)
    of_problems = y.mean(axis=1)

    def interaction(table):
        df = (table.shape[0] - 1) * (table.shape[1] - 1)
        return (without_rows_and_columns(table) ** 2).sum() / df

    # Mean squares: of answers (variant, seed, problem), of seeds and of problems by variant.
    rest = y - y.mean(0)
    rest = rest - (of_seeds - of_seeds.mean(0))[:, :, None]
    rest = rest - (of_problems - of_problems.mean(0))[:, None]
    rest = rest + (y.mean((1, 2)) - y.mean())[:, None, None]
    answers = (rest**2).sum() / (3 * 2 * 9)
    seeds = 10 * interaction(of_seeds)
    problems = 3 * interaction(of_problems)

    # A difference of two variants is over 3 x 10 answers each.
    variance = 2 * (seeds + max(problems - answers, 0.0)) / 30
    assert found.mixed.variance.item() == pytest.approx(variance)

    # Satterthwaite's degrees of freedom: 3 x 2 of seeds, 3 x 9 of problems, 3 x 2 x 9 of answers.
    of_variance = (2 / 30) ** 2 * (seeds**2 / 6 + problems**2 / 27 + answers**2 / 54)
    assert found.mixed.df.item() == pytest.approx(variance**2 / of_variance)


def restricted_likelihood(scores):
    """Estimate and standard error of the second variant's difference from the first, in scores
    (V, S, P): variants fixed; seed, problem and all interactions of two random (REML, Patterson and
    Thompson 1971), by a numerical optimum of the dense likelihood."""
    places = np.indices(scores.shape).reshape(3, -1)
    variant, seed, problem = places
    answers = scores.ravel()
    fixed = np.eye(scores.shape[0])[variant]
    groups = [seed, problem]
    groups += [1000 * variant + seed, 1000 * variant + problem, 1000 * seed + problem]
    alike = [np.equal.outer(group, group).astype(float) for group in groups]
    alike.append(np.eye(len(answers)))

    def fit(logarithms):
        covariance = sum(np.exp(log) * part for log, part in zip(logarithms, alike, strict=True))
        inverse = np.linalg.inv(covariance)
        information = fixed.T @ inverse @ fixed
        means = np.linalg.solve(information, fixed.T @ inverse @ answers)
        rest = answers - fixed @ means
        deviance = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(information)[1]
        return deviance + rest @ inverse @ rest, means, np.linalg.inv(information)

    tight = {"ftol": 1e-15, "gtol": 1e-7, "maxfun": 10_000}
    best = optimize.minimize(
        lambda at: fit(at)[0], np.full(6, -3.0), method="L-BFGS-B", options=tight
    )
    _, means, errors = fit(best.x)
    variance = errors[0, 0] + errors[1, 1] - 2 * errors[0, 1]
    return means[1] - means[0], math.sqrt(variance)


@pytest.mark.component
def test_the_mixed_model_is_that_of_restricted_maximum_likelihood():
    rng = np.random.default_rng(16)
    scores = 0.3 * rng.standard_normal((3, 4, 8)) + 0.4 * rng.standard_normal((3, 1, 8))
    scores += 0.4 * rng.standard_normal((3, 4, 1)) + rng.standard_normal((1, 1, 8))
    scores += rng.standard_normal((1, 4, 1)) + 0.3 * rng.standard_normal((1, 4, 8))
    found = stats.family([scores[None]])
    difference, error = restricted_likelihood(scores)
    assert found.difference[0, 0] == pytest.approx(difference)
    assert math.sqrt(found.mixed.variance.item()) == pytest.approx(error, rel=1e-3)


def test_verdicts_also_where_nothing_varies():
    assert stats.verdict(0.1, 0.2) == "better"
    assert stats.verdict(-0.2, -0.1) == "worse"
    assert stats.verdict(-0.1, 0.1) == "within noise"
    assert stats.verdict(math.nan, math.nan) == "not testable"

    def p_value(baseline, variant):
        return stats.family(of(baseline, variant)).p_values().item()

    assert p_value(np.full((3, 5), 0.5), np.full((3, 5), 0.5)) == 1
    assert p_value(np.zeros((3, 5)), np.ones((3, 5))) == 0
    assert math.isnan(p_value(np.full((3, 1), 0.5), np.full((3, 1), 0.7)))


def test_holm_by_hand():
    corrected = stats.holm([0.01, 0.04, math.nan, 0.03])
    assert corrected == pytest.approx([0.03, 0.06, math.nan, 0.06], nan_ok=True)
    assert stats.holm([[0.6, 0.9], [0.01, 0.02]]).tolist() == [[1, 1], [0.02, 0.02]]
    assert stats.holm([]).tolist() == []


@pytest.mark.parametrize(
    "cell",
    [
        error_rates.Cell(variants=3, seeds=3, spread=0.8, problems=(40,)),
        error_rates.Cell(variants=7, seeds=3, pattern="baseline 3 x", problems=(40,)),
        error_rates.Cell(variants=7, seeds=3, further=6, pattern="last 3 x", problems=(40,)),
        error_rates.Cell(variants=3, seeds=5, topics=8, of_topics=0.5, problems=(40,)),
    ],
    ids=lambda cell: "-".join(cell.title),
)
def test_a_slice_of_the_error_rates(cell):
    """400 sweeps: three standard errors above 0.06. The whole grid: python -m
    benchmarks.error_rates."""
    assert error_rates.simulated(cell, 400, 0).false.mean() < 0.06 + 0.036


def test_power_is_most_of_the_mixed_models():
    """Five seeds each; and three with nine of the baseline."""
    for seeds, further in ((5, 0), (3, 6)):
        cell = error_rates.Cell(seeds=seeds, further=further, problems=(60,), interaction=0.3)
        moved = error_rates.simulated(cell, 300, 1, moved=0.6)
        assert moved.found > 0.75 * moved.found_mixed > 0.5


def test_the_documented_error_rates_are_those_of_the_cells():
    """By kind on one page, every cell on the other."""
    docs = Path(error_rates.__file__).parents[1] / "docs"
    cells, summary = (
        (docs / name).read_text("utf-8") for name in ("error-rates.md", "statistics.md")
    )
    cells, _, _ = cells.partition("## Times to an accuracy")
    lines = [line for line in cells.splitlines() if re.match(r"\| .*\d \|", line)]
    rows = [[cell.strip() for cell in line[1:-2].split("|")] for line in lines]
    assert [row[:5] for row in rows] == [cell.title for cell in error_rates.grid()]
    for row in error_rates.by_kind(rows).itertuples(index=False):
        assert f"| {' | '.join(row)} |" in summary


def test_no_benchmark_tests_differences_in_a_way_of_its_own():
    """Within the package only few rooms may use scipy (tests/rooms.yaml); six benchmarks simulate
    and judge with it."""
    folder = Path(error_rates.__file__).parent
    texts = {path.name: path.read_text("utf-8") for path in folder.rglob("*.py")}
    own = {name for name, text in texts.items() if re.search(r"(?m)^ *(from|import) scipy", text)}
    assert own == {
        "compare_evalstats.py",
        "compare_levels.py",
        "compute_fits.py",
        "error_rates.py",
        "study_error_rates.py",
        "times_level.py",
    }
