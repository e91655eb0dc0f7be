"""What earlier looks at a growing sweep have found, and what that does to a verdict."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from rpg import stats
from rpg.report.problem_scores import Pairs, Runs, checkpoints
from rpg.report.verdicts import NO_VERDICT, Difference


def outcomes(results: Mapping[tuple[str, str], Difference]) -> dict[str, tuple[float, float, str]]:
    """As rpg.stats.Look.results has them."""
    return {
        json.dumps(key): (result.low, result.high, result.verdict)
        for key, result in results.items()
    }


def grown(
    looks: Sequence[stats.Look], name: str, pairs: Pairs, finished: set[str]
) -> Iterator[stats.Look]:
    """The earlier looks that count, with what they found.

    A look counts if it had the same baseline and benchmarks, some of its variants are still
    compared with runs that it saw, and these have new finished runs or another step; or if it is
    this very look (`name`) again. Any other costs no level: it asked another question, of other
    data, or saw all that there is. What it found is kept only for the same steps.
    """
    baseline, _, steps, benchmarks = json.loads(name)
    for look in looks:
        if not look.compared.startswith("["):  # over levels of factors
            continue
        its_baseline, its_variants, its_steps, its_benchmarks = json.loads(look.compared)
        if (its_baseline, its_benchmarks) != (baseline, benchmarks):
            continue
        seen = set(look.runs)
        still = _still_compared(its_variants, pairs, seen)
        same_steps = its_steps == steps
        has_grown = bool(still) and not same_steps
        if still and same_steps:
            has_grown = bool({run for run, _ in checkpoints(still)} & finished - seen)
        is_this_look = look.compared == name and seen == finished
        if has_grown or is_this_look:
            found = {}
            if same_steps:
                found = {
                    key: result
                    for key, result in look.results.items()
                    if json.loads(key)[0] in still
                }
            yield look._replace(results=found)


def _still_compared(variants: Sequence[str], pairs: Pairs, seen: set[str]) -> Pairs:
    """The pairs of these variants of which a look saw a run on either side."""
    return {
        variant: pairs[variant]
        for variant in variants
        if variant in pairs and all(_has_seen(side, seen) for side in pairs[variant])
    }


def _has_seen(side: Runs, seen: set[str]) -> bool:
    return any(run in seen for run, _ in side.values())


def looked_at(
    results: Mapping[tuple[str, str], Difference], earlier: Sequence[stats.Look]
) -> dict[tuple[str, str], Difference]:
    """With what earlier looks have found: the interval is the intersection with theirs, stretched
    to contain the difference that is seen now, and the verdict is read from it.

    So a verdict stays while the difference has its sign, and goes with it. `p_corrected` stays that
    of this look: it can be above .05 beside "better".
    """
    return {key: _narrowed(result, json.dumps(key), earlier) for key, result in results.items()}


def _narrowed(result: Difference, key: str, earlier: Sequence[stats.Look]) -> Difference:
    if result.verdict in NO_VERDICT or math.isnan(result.low):
        return result
    low = result.low
    high = result.high
    for look in earlier:
        if key not in look.results:
            continue
        its_low, its_high, _ = look.results[key]
        if not math.isnan(its_low):
            low = max(low, its_low)
            high = min(high, its_high)
    low = min(low, result.difference)
    high = max(high, result.difference)
    return result._replace(low=low, high=high, verdict=stats.verdict(low, high))
