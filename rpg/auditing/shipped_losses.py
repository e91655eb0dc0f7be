"""One table of the losses as trainers ship them: installed packages' own functions, and pinned formulas of the others."""

import json
from dataclasses import asdict, dataclass

from rpg.auditing import peers, pinned
from rpg.auditing.audit_report import markdown_table
from rpg.auditing.diagnosis import Projection, projected
from rpg.auditing.measure import PEER_EXACT, Settings, measure
from rpg.auditing.objectives import LEVELS, Objective
from rpg.auditing.shipped_corrections import CorrectionRow, corrections
from rpg.auditing.subjects import Subject

DRIFT = 0.4
SHORT = {
    "reward": "R", "fkl": "FKL", "rkl": "RKL", "entropy": "H", "fkl_old": "KL(old‖π)", "rkl_old": "KL(π‖old)",
}  # fmt: skip
WORDS, FIGURES = (
    ("trainer", "loss", "asked for", "follows on-policy"),
    ("off", "off (resp.)", "unclipped", "noise"),
)
HEADINGS = (*WORDS, *FIGURES, "origin")


@dataclass(frozen=True)
class Row:
    """One loss as its trainer ships it. origin: "called", or repository/path:line for a formula of our own, whose `version`
    is a commit. follows: the objective whose step it takes on-policy. Where the policy has drifted by DRIFT: token,
    response: |step - gradient| / |gradient| of the objective `asked` for, by level, as shipped; bare: by tokens, without
    clip or mask; noise: standard deviation / |mean| of one response's step (coupled: of a batch of two).
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
class Field:
    """The table, and that of sampler corrections. absent: peers that are not installed, and why they were left out."""

    rows: tuple[Row, ...]
    absent: dict[str, str]
    corrections: list[CorrectionRow]

    def to_json(self) -> str:
        return json.dumps([asdict(row) for row in self.rows], ensure_ascii=False, allow_nan=False)

    def markdown(self) -> str:
        """For documentation."""
        return markdown_table(WORDS, FIGURES, map(cells, self.rows), last=("origin",)) + "\n"


def cells(row: Row) -> list[str]:
    """As the table shows it; 0: at most 1e-7. A formula's origin is its line, a called function's its version."""
    off = ["0" if bias < PEER_EXACT else f"{bias:.1%}" for bias in (row.token, row.response, row.bare)]
    origin = row.version if row.origin == "called" else f"{row.origin.split('/', 2)[-1]} @{row.version}"
    name = row.loss + " †" * row.coupled
    return [row.trainer, name, row.asked, row.follows, *off, f"{row.noise:.1f}", origin]


def field(beta: float = Settings.beta) -> Field:
    """Measure every loss that is installed or pinned, with weight `beta` on its KL."""
    installed, absent = peers.installed(beta, all_shipped=True)
    rows = []
    for subject in installed:
        try:
            trainer, version = subject.source.split()
            rows.append(row_of(subject, trainer, version, "called", beta))
        except ValueError as error:  # a peer whose code has moved; the audit of the others goes on
            absent[f"{subject.source}: {subject.name}"] = str(error)
    for pins in pinned.trainers().values():
        for name, formula in pins.losses.items():
            subject = pinned.subject(name, pins.name, formula, beta)
            origin = f"{pins.repository}/{formula.at}"
            rows.append(row_of(subject, pins.name, pins.commit[:8], origin, beta))
    order = list(dict.fromkeys(row.trainer for row in rows))
    samplers, unmeasured = corrections()
    in_order = tuple(sorted(rows, key=lambda row: order.index(row.trainer)))
    return Field(in_order, absent | unmeasured, samplers)


def row_of(subject: Subject, trainer: str, version: str, origin: str, beta: float) -> Row:
    """Where the responses of a batch affect each other, all batches of two are enumerated."""
    result = measure(subject, Settings(drifts=(0.0, DRIFT), beta=beta))
    if result.note:
        raise ValueError(result.note)
    bare = result.point(DRIFT)
    point = result.point(DRIFT, clipped=True) or bare
    assert bare and point
    token, response = (str(Objective(level, subject.divergence)) for level in LEVELS)
    settings = Settings(drifts=(0.0,), beta=beta)
    settings = settings.coupled() if result.batch > 1 else settings
    shipped = subject.clipped or subject.loss
    steps = [(scene, scene.moments(shipped, settings.batch).mean) for scene in settings.scenes(subject)]
    asked = {"reward": 1.0} if subject.rewarded else {}
    asked |= {subject.divergence: -subject.beta} if subject.beta else {}
    return Row(
        trainer, version, subject.name, origin, formula_of(asked), short(projected(steps)), point.bias[token],
        point.bias[response], bare.bias[token], point.noise, result.batch > 1,
    )  # fmt: skip


def short(projection: Projection) -> str:
    """`R − 0.3 FKL`, with what is left over."""
    level = " (resp.)" if projection.level == "sequence" else ""
    rest = "" if projection.is_exact else f"; {projection.rest:.1%} left over"
    return formula_of(projection.coefficients) + level + rest


def formula_of(coefficients: dict[str, float]) -> str:
    """`R − 0.3 RKL`; weights of 1 are not written."""
    text = ""
    for term, number in coefficients.items():
        size = f"{abs(number):.3g} "
        text += f" {'−' if number < 0 else '+'} {'' if size == '1 ' else size}{SHORT.get(term, term)}"
    return text.removeprefix(" + ").removeprefix(" ").replace("− ", "−", text.startswith(" −"))
