"""Two tables of what trainers ship: their losses, and what they do about samples of another policy.

Measured are installed packages' own functions, and the pinned formulas of the others; a correction
as our own `rollout_correction` is (studies.corrected).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from math import inf
from typing import Any

from rpg.auditing import peers, pinned
from rpg.auditing.audit_report import markdown_table, percent
from rpg.auditing.diagnosis import Projection, projected
from rpg.auditing.measure import PEER_EXACT, Settings, measure
from rpg.auditing.objectives import LEVELS, Objective
from rpg.auditing.studies import APART, UNCLIPPED, Corrected, corrected
from rpg.auditing.subjects import Subject
from rpg.catalogue import override
from rpg.losses.policy_loss import policy_loss

DRIFT = 0.4
MISMATCHES = (APART, 0.1)  # stale weights; an engine that rounds
SHORT = {
    "reward": "R",
    "fkl": "FKL",
    "rkl": "RKL",
    "entropy": "H",
    "fkl_old": "KL(old‖π)",
    "rkl_old": "KL(π‖old)",
}
WORDS = ("trainer", "loss", "asked for", "follows on-policy")
FIGURES = ("off", "off (resp.)", "unclipped", "noise")
CORRECTION_WORDS = ("trainer", "setting", "correction")
CORRECTION_FIGURES = (
    "scale",
    "tokens, prefixes of μ",
    "tokens, prefixes of π₀",
    "responses",
    "noise",
)


@dataclass(frozen=True)
class Row:
    """One loss as its trainer ships it. origin: "called", or repository/path:line for a formula of
    our own, whose `version` is a commit. follows: the objective whose step it takes on-policy.
    Where the policy has drifted by DRIFT: token, response: |step - gradient| / |gradient| of the
    objective `asked` for, by level, as shipped; bare: by tokens, without clip or mask; noise:
    standard deviation / |mean| of one response's step (coupled: of a batch of two).
    """

    trainer: str
    version: str
    loss: str
    origin: str
    asked: str
    follows: str
    token: float
    response: float
    bare: float
    noise: float
    coupled: bool = False


@dataclass(frozen=True)
class CorrectionRow:
    """One correction under one mismatch: standard deviations of a logit between the sampler μ and
    the policy at the start of the step, π₀. origin: as of a loss; default: the line with its
    default or bounds. token, started, response: bias against the gradient of tokens, prefixes of μ
    or of π₀, and of whole responses; scale: of the first; noise: of one response's step. Infinite
    where nothing of the step is left.
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


def losses_markdown(rows: Sequence[Row]) -> str:
    """For documentation."""
    return markdown_table(WORDS, FIGURES, map(_cells, rows), last=("origin",)) + "\n"


def field() -> tuple[list[Row], list[CorrectionRow], dict[str, str]]:
    """Every loss and every correction that is installed or pinned; and the peers that are not
    installed or could not be measured, with the reason.
    """
    installed, absent = peers.installed(Settings.beta, all_shipped=True)
    rows = []
    for subject in installed:
        try:
            trainer, release = subject.source.split()
            rows.append(row_of(subject, trainer, release, "called"))
        except ValueError as error:  # a peer whose code has moved; the audit of the others goes on
            absent[f"{subject.source}: {subject.name}"] = str(error)
    for pins in pinned.trainers().values():
        for name, algo in pins.losses.items():
            subject = pinned.subject(name, pins.name, algo, Settings.beta)
            rows.append(
                row_of(subject, pins.name, pins.commit[:8], f"{pins.repository}/{algo.citation}")
            )
    samplers, unmeasured = corrections()
    return rows, samplers, absent | unmeasured


def row_of(subject: Subject, trainer: str, version: str, origin: str) -> Row:
    """Where the responses of a batch affect each other, all batches of two are enumerated."""
    result = measure(subject, Settings(drifts=(0.0, DRIFT)))
    if result.note:
        raise ValueError(result.note)
    bare = result.point(DRIFT)
    point = result.point(DRIFT, clipped=True) or bare
    assert bare and point
    token, response = (str(Objective(level, subject.divergence)) for level in LEVELS)
    settings = Settings(drifts=(0.0,))
    settings = settings.coupled() if result.batch > 1 else settings
    follows = projected(subject.losses[-1], settings.scenes(subject), settings.batch)
    asked = {"reward": 1.0} if subject.rewarded else {}
    asked |= {subject.divergence: -subject.beta} if subject.beta else {}
    return Row(
        trainer,
        version,
        subject.name,
        origin,
        formula_of(asked),
        short(follows),
        point.bias[token],
        point.bias[response],
        bare.bias[token],
        point.noise,
        result.batch > 1,
    )


def short(projection: Projection) -> str:
    """`R − 0.3 FKL`, with what is left over."""
    level = " (resp.)" if projection.level == "sequence" else ""
    rest = "" if projection.is_exact else f"; {projection.rest:.1%} left over"
    return formula_of(projection.coefficients) + level + rest


def formula_of(coefficients: dict[str, float]) -> str:
    """`R − 0.3 RKL`; weights of 1 are not written."""
    text = ""
    for term, number in coefficients.items():
        sign = "−" if number < 0 else "+"
        size = f"{abs(number):.3g} "
        if size == "1 ":
            size = ""
        text += f" {sign} {size}{SHORT.get(term, term)}"
    return text.removeprefix(" + ").removeprefix(" ").replace("− ", "−", text.startswith(" −"))


def _cells(row: Row) -> list[str]:
    """As the table shows it; 0: at most 1e-7."""
    return [
        row.trainer,
        f"{row.loss} †" if row.coupled else row.loss,
        row.asked,
        row.follows,
        percent(row.token, PEER_EXACT),
        percent(row.response, PEER_EXACT),
        percent(row.bare, PEER_EXACT),
        f"{row.noise:.1f}",
        _source(row),
    ]


def _source(row: Row | CorrectionRow) -> str:
    """Of a called function its version, of a formula its line."""
    if row.origin == "called":
        return row.version
    place = row.origin.split("/", 2)[-1]
    return f"{place} @{row.version}"


def corrections() -> tuple[list[CorrectionRow], dict[str, str]]:
    """(verl's corrections and those that are pinned, under every mismatch; what was left out, and
    why)."""
    rows: list[CorrectionRow] = []
    absent: dict[str, str] = {}
    try:
        for setting, parts, how in peers.verl_corrections():
            told = "verl", version("verl"), setting, _words(parts), "called", "called"
            rows += _rows(partial(CorrectionRow, *told), how)
    except (ImportError, AttributeError, LookupError, TypeError, ValueError) as error:
        absent["verl's sampler corrections"] = f"{type(error).__name__}: {error}"
    for pins in pinned.trainers().values():
        for setting, correction in pins.corrections.items():
            how = UNCLIPPED, partial(pinned.weights, correction)
            if correction.ratio:
                algo = override(
                    pins.losses[correction.ratio], kl="none", loss_agg_mode="seq-mean-token-sum"
                )
                how = partial(policy_loss, algo), None
            words = _words(
                {key: vars(correction)[key] for key in ("ratio", "weight", "bound", "by", "keep")}
            )
            at = f"{pins.repository}/{correction.at}"
            told = pins.name, pins.commit[:8], setting, words, at, correction.default
            rows += _rows(partial(CorrectionRow, *told), how)
    return rows, absent


def _rows(told: Callable[..., CorrectionRow], how: Corrected) -> Iterator[CorrectionRow]:
    for apart in MISMATCHES:
        token, started, response = corrected("", how, apart)
        yield told(apart, token.scale, token.bias, started.bias, response.bias, token.noise)


def _words(parts: dict[str, Any]) -> str:
    """Of what is set; a tuple is a default."""
    words = []
    for key, value in parts.items():
        if isinstance(value, list):
            value = "–".join(f"{x:g}" for x in value)
        if value and value != (0.0, inf):
            words.append(f"{key} {value}")
    return ", ".join(words) or "ignored"


def corrections_markdown(rows: Sequence[CorrectionRow]) -> str:
    """For documentation; a figure is that of the first and of the second mismatch."""
    cells = map(_correction_cells, rows[::2], rows[1::2])
    return markdown_table(CORRECTION_WORDS, CORRECTION_FIGURES, cells, last=("origin",)) + "\n"


def _correction_cells(large: CorrectionRow, small: CorrectionRow) -> list[str]:

    def share(of: Callable[[CorrectionRow], float]) -> str:
        figures = [percent(of(row), PEER_EXACT) or "–" for row in (large, small)]
        return " / ".join(figures)

    def noise(row: CorrectionRow) -> str:
        return "–" if row.noise == inf else f"{row.noise:.1f}"

    return [
        large.trainer,
        large.setting,
        large.correction,
        share(lambda row: row.scale),
        share(lambda row: row.token),
        share(lambda row: row.started),
        share(lambda row: row.response),
        f"{noise(large)} / {noise(small)}",
        _source(large),
    ]
