"""One table of what trainers do about samples of another policy: verl's own functions, and pinned formulas of the others;
each measured as our own `rollout_correction` is (studies.corrected).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from math import inf
from typing import Any

from rpg.auditing import peers, pinned
from rpg.auditing.audit_report import markdown_table, percent
from rpg.auditing.measure import PEER_EXACT
from rpg.auditing.moments import LossFunction
from rpg.auditing.studies import APART, corrected, direct_loss, weighted_loss

MISMATCHES = (APART, 0.1)  # stale weights; an engine that rounds
WORDS = ("trainer", "setting", "correction")
FIGURES = ("scale", "tokens, prefixes of μ", "tokens, prefixes of π₀", "responses", "noise")


@dataclass(frozen=True)
class CorrectionRow:
    """One correction under one mismatch: standard deviations of a logit between the sampler μ and the policy at the start
    of the step, π₀. origin: "called", or repository/path:line; default: the line with its default or bounds. token,
    started, response: bias against the gradient of tokens, prefixes of μ or of π₀, and of whole responses; scale: of the
    first; noise: of one response's step. Infinite where nothing of the step is left.
    """

    trainer: str
    version: str
    setting: str
    correction: str
    origin: str
    default: str
    mismatch: float
    scale: float
    token: float
    started: float
    response: float
    noise: float


def corrections() -> tuple[list[CorrectionRow], dict[str, str]]:
    """(verl's corrections and those that are pinned, under every mismatch; what was left out, and why)."""
    rows: list[CorrectionRow] = []
    absent: dict[str, str] = {}
    try:
        for setting, parts, loss in peers.verl_corrections():
            rows += _rows(loss, ("verl", version("verl"), setting, _words(parts), "called", "called"))
    except (ImportError, AttributeError, LookupError, TypeError, ValueError) as error:
        absent["verl's sampler corrections"] = f"{type(error).__name__}: {error}"
    for pins in pinned.trainers().values():
        for setting, correction in pins.corrections.items():
            loss = partial(weighted_loss, partial(pinned.weights, correction))
            if correction.ratio:
                formula = replace(pins.losses[correction.ratio], aggregation="seq-mean-token-sum")
                loss = partial(direct_loss, partial(pinned.loss, formula, 0.0))
            parts = {key: vars(correction)[key] for key in ("ratio", "weight", "bound", "by", "keep")}
            where = f"{pins.repository}/{correction.at}", correction.default
            rows += _rows(loss, (pins.name, pins.commit[:8], setting, _words(parts), *where))
    return rows, absent


def _rows(loss: LossFunction, described: tuple[str, str, str, str, str, str]) -> Iterator[CorrectionRow]:
    for apart in MISMATCHES:
        token, started, response = corrected("", loss, apart)
        figures = token.scale, token.bias, started.bias, response.bias, token.noise
        yield CorrectionRow(*described, apart, *figures)


def _words(parts: dict[str, Any]) -> str:
    """Of what is set; a tuple is a default."""
    texts = {
        key: "–".join(f"{x:g}" for x in part) if isinstance(part, list) else part
        for key, part in parts.items()
    }
    return (
        ", ".join(f"{key} {text}" for key, text in texts.items() if text and text != (0.0, inf)) or "ignored"
    )


def markdown(rows: Sequence[CorrectionRow]) -> str:
    """For documentation; a figure is that of the first and of the second mismatch."""
    return markdown_table(WORDS, FIGURES, map(_cells, rows[::2], rows[1::2]), last=("origin",)) + "\n"


def _cells(large: CorrectionRow, small: CorrectionRow) -> list[str]:
    both = (large, small)
    shares = zip(*((row.scale, row.token, row.started, row.response) for row in both), strict=True)
    figures = [" / ".join(percent(share, PEER_EXACT) or "–" for share in pair) for pair in shares]
    noise = " / ".join("–" if row.noise == inf else f"{row.noise:.1f}" for row in both)
    origin = (
        large.version if large.origin == "called" else f"{large.origin.split('/', 2)[-1]} @{large.version}"
    )
    return [large.trainer, large.setting, large.correction, *figures, noise, origin]
