"""Summary of the graded samples of one model on one benchmark; the standard errors resample
problems."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpg.answers.numbers import vote
from rpg.stats import Estimate, accuracy, crossed, majority_at_k, pass_at_k


@dataclass(frozen=True)
class Summary:
    """Estimates over problems. `k` is the number of samples of each problem."""

    problems: int
    k: int
    mean_at_k: Estimate
    pass_at_k: Estimate
    pass_at: dict[int, Estimate]
    """pass@n for n = 1, 2, 4, ... and k, all from the same k samples."""
    majority_at_k: Estimate
    response_tokens: Estimate
    truncation_rate: Estimate

    def as_json(self) -> dict[str, Any]:
        """Nested dicts; each estimate with its mean, standard error, interval and numbers of
        problems."""
        numbers = {
            name: v._asdict() if isinstance(v, Estimate) else v for name, v in vars(self).items()
        }
        return {
            **numbers,
            "pass_at": {str(n): estimate._asdict() for n, estimate in self.pass_at.items()},
        }


def summarise(rows: Iterable[Mapping[str, Any]]) -> Summary:
    """Summary of samples with the columns problem_id, correct, extracted, tokens, truncated.

    mean@k is the mean accuracy, pass@k the chance that one of k samples is right (arXiv 2107.03374,
    eq. 1), maj@k the chance that the most frequent answer is right (answers that are the same
    number or text vote together). The problems are a sample of all possible problems, so the errors
    come from their spread: with 30 problems, that spread and not the number of samples limits the
    precision.

    Raises ValueError: no rows, or problems with different numbers of samples.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["problem_id"], []).append(row)
    counts = {len(group) for group in groups.values()}
    if len(counts) != 1:
        why = (
            "every problem needs the same number of samples, found "
            f"{sorted(counts) or 'no samples'}"
        )
        raise ValueError(why)
    k = counts.pop()
    right = np.array([sum(row["correct"] for row in group) for group in groups.values()])
    majority = [
        majority_at_k([vote(row["extracted"]) for row in group], [row["correct"] for row in group])
        for group in groups.values()
    ]

    def means(column: str) -> list[float]:
        return [float(np.mean([row[column] for row in group])) for group in groups.values()]

    sizes = np.full(len(groups), k)
    tries = sorted({2**i for i in range(k.bit_length())} | {k})
    pass_at = {n: accuracy([[pass_at_k(sizes, right, n)]]) for n in tries}
    return Summary(
        problems=len(groups),
        k=k,
        mean_at_k=accuracy([[right / k]]),
        pass_at_k=pass_at[k],
        pass_at=pass_at,
        majority_at_k=accuracy([[majority]]),
        response_tokens=crossed([[means("tokens")]]),
        truncation_rate=accuracy([[means("truncated")]]),
    )
