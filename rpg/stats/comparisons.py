"""Differences of several variants to one baseline: tests and simultaneous intervals.

A moderated t test (Smyth 2004) for the seeds, the variance of a crossed random-effects model for
the problems, and Dunnett's many-to-one correction. The page that derives and measures it is
docs/statistics.md; `python -m benchmarks.error_rates` repeats the measurement.

Everything is computed for many tables at once (first axis N), as simulations need it. Letters:
V variants with the baseline, m = V - 1 differences, S seeds, E further seeds of the baseline,
P problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from rpg.stats import many_to_one

ERROR = 0.05
"""Alpha: the share of families of equal variants in which any is called better or worse."""

OTHERS = "for others like them"
THESE = "for these problems"
"""What a verdict is about: other problems of the kind, or the problems at hand (seeds alone
vary)."""

_ROUNDING = 1e-20
"""Variances below this are of rounding: scores are between 0 and 1."""

Tables = Sequence[np.ndarray]


def prior_df(differences: int, seeds: int) -> float:
    """Degrees of freedom of the prior of a variant's variance over seeds; the baseline has a
    quarter.

    A variant's own variance has seeds - 1; the prior's weight beside them grows with the number of
    variants that it is estimated from. Chosen by simulation: docs/statistics.md, "How it was
    chosen".
    """
    weight = min((differences - 1) / 5, 1.25)
    return weight * min(seeds - 1, 4)


@dataclass(frozen=True)
class Part:
    """A part of the variance of differences (N, m), with its degrees of freedom."""

    variance: np.ndarray
    df: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """What it adds to the denominator of Satterthwaite's formula."""
        return np.asarray(self.variance**2 / self.df)


@dataclass(frozen=True)
class Family:
    """Differences of m variants from one baseline, and what is known of their errors.

    Every array has a first axis of N such families, which simulations use; a report has one.
    """

    difference: np.ndarray
    """Of accuracies, (N, m)."""
    of_seeds: Part
    """Variance from seeds, sampled answers included."""
    of_problems: Part
    """Variance that the choice of problems adds (variant by problem)."""
    baseline: np.ndarray
    """Accuracy (N, 1) of the baseline, as `difference` takes it."""
    moving: np.ndarray
    """Kish's number (N,) of problems (or clusters) that can move."""
    moving_alone: np.ndarray
    """The same of problems, whether or not they are in clusters."""
    mixed: Part
    """Variance (N, 1) of a difference in the plain crossed mixed model."""
    seeds: int
    correlation: float
    """Of any two differences, by the numbers of seeds: S / (2 S + E)."""
    repeated: bool
    """Whether there are several seeds (or samples in their place), which show a spread."""
    sampled: bool = False
    """Whether samples of one training each vary in place of seeds."""

    @property
    def comparisons(self) -> int:
        return int(self.difference.shape[1])

    def variance(self, scope: str = OTHERS) -> Part:
        """The variance of the differences that a verdict of this scope rests on.

        Degrees of freedom are the harmonic mean of the parts', weighted by their shares of the
        variance. Satterthwaite's formula has the squares of the shares; it believes a variance
        of seeds that is small by chance, and misses the level with three seeds.
        """
        if scope == THESE:
            return self.of_seeds
        total = self.of_seeds.variance + self.of_problems.variance
        share = np.divide(self.of_seeds.variance, total, out=np.ones_like(total), where=total > 0)
        df = 1 / (share / self.of_seeds.df + (1 - share) / self.of_problems.df)
        return Part(total, df)

    def p_values(self, truth: np.ndarray | float = 0.0, scope: str = OTHERS) -> np.ndarray:
        """Two-sided p-values (N, m) of the hypotheses that the differences are `truth`, each by
        itself."""
        error = self.variance(scope)
        return _two_sided(_ratio(self.difference - truth, error.variance), error.df)

    def familywise_p(
        self,
        truth: np.ndarray | float = 0.0,
        comparisons: int | None = None,
        scope: str = OTHERS,
    ) -> np.ndarray:
        """As `p_values`, corrected (N, m): the chance that any difference of the family has a
        p-value as small, if nothing differs. With `comparisons`, this family is a part of a larger
        one that has so many."""
        p = many_to_one.familywise_p(
            self.p_values(truth, scope), self.comparisons, self.correlation
        )
        return many_to_one.sidak(p, self._families_like_this(comparisons))

    def intervals(
        self, alpha: float, comparisons: int | None = None, scope: str = OTHERS
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (N, m) that hold for all differences of the family together: the truths whose
        `familywise_p` is above `alpha`, as far as accuracies between 0 and 1 allow them."""
        alpha_of_family = float(many_to_one.sidak(alpha, 1 / self._families_like_this(comparisons)))
        p = many_to_one.alone_p(alpha_of_family, self.comparisons, self.correlation)
        whole = self.variance(scope)
        half = special.stdtrit(whole.df, 1 - p / 2) * np.sqrt(whole.variance)
        # Rounding must not put the estimate outside of what accuracies allow.
        lowest = np.minimum(-self.baseline, self.difference)
        highest = np.maximum(1 - self.baseline, self.difference)
        low = np.maximum(self.difference - half, lowest)
        high = np.minimum(self.difference + half, highest)
        return low, high

    def mixed_p(self, comparisons: int | None = None) -> np.ndarray:
        """Corrected p-values (N, m) of the plain crossed mixed model: variants fixed; seeds,
        problems, variant by seed and variant by problem random, with pooled variances."""
        t = _ratio(self.difference, self.mixed.variance)
        p = many_to_one.dunnett(t, self.mixed.df, self.comparisons, self.correlation)
        return many_to_one.sidak(p, self._families_like_this(comparisons))

    def _families_like_this(self, comparisons: int | None) -> float:
        """How many families of this size a larger one of so many comparisons holds."""
        return (comparisons or self.comparisons) / self.comparisons


def family(
    strata: Tables,
    further: Tables = (),
    clusters: Sequence[Sequence[object] | None] = (),
) -> Family:
    """The differences of V - 1 variants from the first, the baseline, with their variances.

    `strata`: scores (N, V, S, P) per benchmark, by which accuracies are averaged.

    `further`: scores (N, E, P) per benchmark of the baseline's seeds that no variant shares.
    `clusters`: a label per problem and benchmark (None: every problem stands for itself).
    """
    tables = [np.asarray(table, float) for table in strata]
    extra = [np.asarray(table, float) for table in further]
    labels = list(clusters) or [None] * len(tables)
    accuracies = [table.mean(axis=(1, 2)) for table in tables]
    moving = kish(accuracies, labels)
    moving_alone = kish(accuracies) if any(labels) else moving
    tables = [units(table, label) for table, label in zip(tables, labels, strict=True)]
    if extra:
        extra = [units(table, label) for table, label in zip(extra, labels, strict=True)]
    if not extra or extra[0].shape[1] == 0:
        _, _, _, problems = tables[0].shape
        extra = [np.zeros((len(table), 0, table.shape[3])) for table in tables]
    seeds = tables[0].shape[2]
    more = extra[0].shape[1]
    means = np.mean([table.mean(axis=3) for table in tables], axis=0)
    more_means = np.mean([table.mean(axis=2) for table in extra], axis=0)

    weight = _further_weight(means, more)
    baseline = (1 - weight) * means[:, 0].mean(axis=1)
    if more:
        baseline = baseline + weight * more_means.mean(axis=1)
    difference = means[:, 1:].mean(axis=2) - baseline[:, None]

    problems, answers = _problems_and_answers(tables, extra, weight)
    if seeds == 1:  # nothing is known about seeds: the error is that of problems and answers
        of_seeds = Part(np.zeros_like(difference), np.full_like(difference, 1.0))
        of_problems = problems
    else:
        of_seeds = _of_seeds(means, more_means, weight, answers)
        added = np.maximum(problems.variance - answers.variance, 0.0)
        of_problems = Part(added, problems.df)
    return Family(
        difference=difference,
        of_seeds=of_seeds,
        of_problems=of_problems,
        baseline=baseline[:, None],
        moving=moving,
        moving_alone=moving_alone,
        mixed=_mixed(tables, means, more_means, weight),
        seeds=seeds,
        correlation=seeds / (2 * seeds + more),
        repeated=seeds > 1,
    )


def units(scores: np.ndarray, labels: Sequence[object] | None) -> np.ndarray:
    """Scores (..., P) as scores (..., C) of clusters, whose mean is the same.

    A cluster of n problems stands for n C / P units, so its distance from the mean is multiplied
    by that: the spread of the units is then the variance of the mean as clusters are drawn
    (linearised ratio; Cochran 1977, ch. 9). With clusters of one size, units are their means.
    """
    if labels is None:
        return scores
    number = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    places = np.array([number[label] for label in labels])
    member = np.zeros((len(places), len(number)))
    member[np.arange(len(places)), places] = 1.0
    sizes = member.sum(axis=0)
    mean = scores.mean(axis=-1, keepdims=True)
    return np.asarray(
        mean + (scores @ (member / sizes) - mean) * (sizes * len(number) / len(places))
    )


def kish(accuracies: Tables, labels: Sequence[Sequence[object] | None] = ()) -> np.ndarray:
    """Kish's number (N,) of problems (or clusters) that can move, from mean accuracies (N, P) per
    benchmark: a shift of all logits moves a problem of accuracy p in proportion to p (1 - p)."""
    labels = list(labels) or [None] * len(accuracies)
    weights = []
    for accuracy, label in zip(accuracies, labels, strict=True):
        moves = np.maximum(units(accuracy * (1 - accuracy), label), 0.0)
        weights.append(moves / moves.shape[-1])
    together = np.concatenate(weights, axis=-1)
    total = together.sum(axis=-1)
    squares = (together**2).sum(axis=-1)
    number = np.zeros_like(squares)
    np.divide(total**2, squares, out=number, where=squares > 0)
    return np.asarray(number)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's step-down correction (1979) of families (..., m); NaN stays NaN and does not count.

    For tests that are not comparisons with one baseline, such as all pairs.
    """
    p_values = np.asarray(p_values, float)
    order = np.argsort(p_values, axis=-1)  # NaN last
    ranked = np.take_along_axis(p_values, order, axis=-1)
    left = np.isfinite(ranked).sum(axis=-1, keepdims=True) - np.arange(p_values.shape[-1])
    steps = np.minimum(ranked * left, 1.0)
    worst = np.maximum.accumulate(steps, axis=-1)
    corrected = np.empty_like(p_values)
    np.put_along_axis(corrected, order, worst, axis=-1)
    return corrected


def centred_squares(means: np.ndarray) -> np.ndarray:
    """Variances (N, V) over seeds of means (N, V, S), without what all variants of a seed share.

    Mean squares of the doubly centred rows. Of equal variances each is unbiased, with S - 1
    degrees of freedom; of unequal ones the sum of two is nearly the variance of a paired
    difference.
    """
    variants, seeds = means.shape[1:]
    rows = means - means.mean(axis=2, keepdims=True)
    rows = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray((rows**2).sum(axis=2) / ((seeds - 1) * (1 - 1 / variants)))


def _further_weight(means: np.ndarray, more: int) -> np.ndarray:
    """Weight (N,) of the baseline's further seeds in its mean: E / (S + E) times 1 - r.

    r is the intraclass correlation of a seed over variants. Where seeds matter alike for all
    variants, shared ones pair and further ones say little (the generalised least-squares weight).
    """
    tables, variants, seeds = means.shape
    if not more or seeds == 1:
        return np.zeros(tables)
    within = centred_squares(means).mean(axis=1)
    per_seed = means.mean(axis=1)
    between = variants * per_seed.var(axis=1, ddof=1)
    whole = between + (variants - 1) * within
    correlation = np.zeros(tables)
    np.divide(between - within, whole, out=correlation, where=whole > _ROUNDING)
    correlation = np.maximum(correlation, 0.0)
    share = more / (seeds + more)
    return np.asarray(share * (1 - correlation))


def _of_seeds(means: np.ndarray, more_means: np.ndarray, weight: np.ndarray, answers: Part) -> Part:
    """Variance of differences over seeds, with moderated variances (Smyth 2004).

    A difference is, over the shared seeds, the variant's mean less (1 - weight) times the
    baseline's; and, independent of that, -weight times the mean of the further seeds.
    """
    _, variants, seeds = means.shape
    scaled = means.copy()
    scaled[:, 0] *= (1 - weight)[:, None]
    own = centred_squares(scaled)

    # The baseline's variance enters every difference, so it is moved least.
    prior = prior_df(variants - 1, seeds)
    others = own[:, 1:].mean(axis=1, keepdims=True)
    everyone = own.mean(axis=1, keepdims=True)
    baseline = _moderated(own[:, :1], towards=others, prior=prior / 4, seeds=seeds)
    variant = _moderated(own[:, 1:], towards=everyone, prior=prior, seeds=seeds)
    variance = baseline.variance + variant.variance
    spread = baseline.spread + variant.spread

    # Two rows of a doubly centred table have the correlation -1 / (V - 1).
    together = baseline.variance * variant.variance / (variants - 1) ** 2
    spread = spread + 2 * together / np.sqrt(baseline.df * variant.df)

    if more_means.shape[1]:
        further = _of_further(means, more_means, weight)
        variance = variance + further.variance
        spread = spread + further.spread
    df = _satterthwaite(variance, spread)
    # No seeds differ by less than their sampled answers do.
    return Part(np.maximum(variance, answers.variance), df)


def _moderated(squares: np.ndarray, towards: np.ndarray, prior: float, seeds: int) -> Part:
    """Variances of means over seeds from mean squares (N, ...), moved towards others by a prior's
    degrees of freedom (empirical Bayes)."""
    free = seeds - 1
    variance = (prior * towards + free * squares) / (prior + free) / seeds
    return Part(variance, np.asarray(prior + free))


def _of_further(means: np.ndarray, more_means: np.ndarray, weight: np.ndarray) -> Part:
    """What the baseline's further seeds add, with the plain variance of all of its seeds."""
    all_seeds = np.concatenate([means[:, 0], more_means], axis=1)
    variance = weight**2 * all_seeds.var(axis=1, ddof=1) / more_means.shape[1]
    return Part(variance[:, None], np.asarray(all_seeds.shape[1] - 1.0))


def _problems_and_answers(tables: Tables, extra: Tables, weight: np.ndarray) -> tuple[Part, Part]:
    """Of paired differences: the variance of their means over problems, and the part of it that
    sampled answers (and seeds by problems) make, which the variance over seeds has, too."""
    seeds = tables[0].shape[2]
    share = 1 / len(tables) ** 2
    over_problems = []
    of_answers = []
    for table, other in zip(tables, extra, strict=True):
        problems = table.shape[3]
        means, noise = _paired(table, other, weight)
        centred = means - means.mean(axis=2, keepdims=True)
        squares = (centred**2).sum(axis=2)
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN for one problem
            variance = share * squares / np.float64(problems - 1) / problems
        over_problems.append((variance, problems - 1))
        of_answers.append((share * noise, (seeds - 1) * (problems - 1)))
    return _summed(over_problems), _summed(of_answers)


def _paired(
    table: np.ndarray, further: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Paired differences (N, m, P) of one benchmark, means over seeds; and the variance (N, m)
    that sampled answers make of their mean over problems."""
    seeds, problems = table.shape[2:]
    more = further.shape[1]
    scale = weight[:, None, None]
    pairs = table[:, 1:] - (1 - scale[..., None]) * table[:, :1]
    means = pairs.mean(axis=2)
    noise = interaction(pairs) / (seeds * problems)
    if more:
        means = means - scale * further.mean(axis=1)[:, None]
        of_further = weight**2 * interaction(further) / (more * problems)
        noise = noise + of_further[:, None]
    return means, noise


def _mixed(tables: Tables, means: np.ndarray, more_means: np.ndarray, weight: np.ndarray) -> Part:
    """Variance (N, 1) of any difference in the crossed mixed model with pooled variances, by the
    method of moments; degrees of freedom after Satterthwaite (1946)."""
    seeds = means.shape[2]
    problems = _pooled_problems(tables)
    answers = _pooled_answers(tables)
    if seeds == 1:
        return Part(problems.variance[:, None], problems.df[:, None])
    of_seeds = _pooled_seeds(means, more_means, weight, at_least=answers.variance)
    added = np.maximum(problems.variance - answers.variance, 0.0)
    variance = of_seeds.variance + added
    spread = of_seeds.spread + problems.spread + answers.spread
    return Part(variance[:, None], _satterthwaite(variance, spread)[:, None])


def _pooled_problems(tables: Tables) -> Part:
    """Variant by problem, with the answers' part of it."""
    share = 2 / len(tables) ** 2
    parts = []
    for table in tables:
        variants = table.shape[1]
        problems = table.shape[3]
        rows = table.mean(axis=2)
        rows = rows - rows.mean(axis=1, keepdims=True)
        rows = rows - rows.mean(axis=2, keepdims=True)
        df = (variants - 1) * (problems - 1)
        mean_square = (rows**2).sum(axis=(1, 2)) / max(df, 1)
        parts.append((share * mean_square / problems, df))
    return _summed(parts)


def _pooled_answers(tables: Tables) -> Part:
    """Variant by seed by problem: sampled answers, and what else is in single cells."""
    share = 2 / len(tables) ** 2
    parts = []
    for table in tables:
        _, variants, seeds, problems = table.shape
        rows = table - table.mean(axis=1, keepdims=True)
        df = (variants - 1) * (seeds - 1) * (problems - 1)
        mean_square = interaction(rows).sum(axis=1) / (variants - 1)
        parts.append((share * mean_square / (seeds * problems), df))
    return _summed(parts)


def _pooled_seeds(
    means: np.ndarray, more_means: np.ndarray, weight: np.ndarray, at_least: np.ndarray
) -> Part:
    """Variant by seed, and the baseline's further seeds."""
    _, variants, seeds = means.shape
    differences = variants - 1
    more = more_means.shape[1]
    df = differences * (seeds - 1) + more
    pooled = centred_squares(means).mean(axis=1)
    if more:
        all_seeds = np.concatenate([means[:, 0], more_means], axis=1).var(axis=1, ddof=1)
        alone = weight * (seeds + more) / more  # 1 - r, r the correlation of a shared seed
        pooled = (pooled * differences * (seeds - 1) + more * alone * all_seeds) / df
        factor = 1 / seeds + (1 - weight) ** 2 / seeds + weight**2 / more
        shared = all_seeds * (1 - alone) * weight**2 * (1 / seeds + 1 / more)
        variance = factor * pooled + shared
    else:
        variance = 2 / seeds * pooled
    return Part(np.maximum(variance, at_least), np.asarray(float(df)))


def interaction(rows: np.ndarray) -> np.ndarray:
    """Mean squares (...) of seeds by problems in (..., S, P); 0 with one seed or one problem."""
    seeds, problems = rows.shape[-2:]
    df = (seeds - 1) * (problems - 1)
    if not df:
        return np.zeros(rows.shape[:-2])
    left = rows - rows.mean(axis=-1, keepdims=True)
    left = left - left.mean(axis=-2, keepdims=True)
    return np.asarray((left**2).sum(axis=(-2, -1)) / df)


def _summed(parts: Sequence[tuple[np.ndarray, int]]) -> Part:
    """The sum of independent variances, with Satterthwaite's (1946) degrees of freedom."""
    variance = np.asarray(sum(part for part, _ in parts))
    spread = np.asarray(sum(part**2 / max(df, 1) for part, df in parts))
    smallest = float(max(min(df for _, df in parts), 1))
    df = np.where(spread > 0, _satterthwaite(variance, spread), smallest)
    return Part(variance, df)


def _satterthwaite(variance: np.ndarray, spread: np.ndarray) -> np.ndarray:
    whole = np.full_like(variance, 1e9)
    np.divide(variance**2, spread, out=whole, where=spread > 0)
    return np.asarray(whole.clip(1.0, 1e9))


def _ratio(difference: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Differences in standard errors; infinite where there is a difference and no error."""
    error = np.sqrt(np.where(variance > _ROUNDING, variance, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(difference) / error
    ratio = np.where(np.abs(difference) < 1e-12, 0.0, ratio)
    return np.asarray(np.where(np.isnan(variance), np.nan, ratio))


def _two_sided(t: np.ndarray, df: np.ndarray) -> np.ndarray:
    return np.asarray(2 * special.stdtr(df, -t))
