"""The audit's result as a table for people and JSON for machines."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from rpg.auditing.measure import BY_NAME, EXACT, Result, Settings
from rpg.auditing.objectives import DIVERGENCE_NAMES, LEVELS, Objective
from rpg.auditing.studies import StudyResult
from rpg.catalogue import DIVERGENCES

WIDE = 110  # columns that the table with all its figures needs


@dataclass(frozen=True)
class Report:
    """losses: catalogue, callables and peers; levels: the ratio levels; studies: of what surrounds
    a loss."""

    losses: tuple[Result, ...]
    levels: tuple[Result, ...] = ()
    studies: tuple[StudyResult, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    seconds: float = 0.0

    def __getitem__(self, name: str) -> Result:
        """The result of a loss by name; peers as `verl: vanilla`, `trl: grpo`."""
        for result in (*self.losses, *self.levels):
            peer = f"{result.source.split()[0]}: {result.name}"
            if name in (result.name if result.source in ("rpg", "callable") else peer, peer):
                return result
        raise KeyError(name)

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per loss, drift, clipping, reference and objective, for a database."""
        return [row for result in (*self.losses, *self.levels) for row in result.rows()]

    def to_json(self) -> str:
        """Everything, as one JSON document: {format, settings, seconds, absent, losses, studies,
        rows}."""
        losses = []
        for result in (*self.losses, *self.levels):
            fields = asdict(result)
            del fields["points"]  # those are the rows
            losses.append(fields)
        document = {
            "format": 1,
            "settings": self.settings,
            "seconds": round(self.seconds, 3),
            "absent": self.absent,
            "losses": losses,
            "studies": self.studies,
            "rows": self.rows(),
        }
        return json.dumps(document, default=asdict, ensure_ascii=False, allow_nan=False)

    # --- tables
    # ------------------------------------------------------------------------------------------

    def table(self, width: int = WIDE) -> Any:
        """Everything as one rich renderable; if `width` is too small, without the clipped
        figures."""
        from rich.console import Group  # noqa: PLC0415 (optional)
        from rich.text import Text  # noqa: PLC0415 (optional)

        parts: list[Any] = [Text.from_markup(_LEGEND)]
        headings = ["loss", "exact for", "only on-policy"]
        headings += _FIGURES if width >= WIDE else _FIGURES[:3]
        titles = {"rpg": "rpg-lab", "callable": "Your loss"}
        for source in dict.fromkeys(result.source for result in self.losses):
            title = titles.get(source, f"{source}; 0: at most 1e-7")
            title += f" (figures at drift {self.settings.shown_drift:g})"
            of_source = [result for result in self.losses if result.source == source]
            rows = [self._row(result)[: len(headings)] for result in of_source]
            parts.append(_table(title, headings, rows, words=3))
        if len(self.losses) == 1:
            (result,) = self.losses
            rows = []
            for point in result.unclipped():
                figures = _cells(result, point.drift)
                rows.append([f"{point.drift:g}", f"{point.kl:.3f}", *figures])
            parts.append(Text(result.diagnosis + "\n"))
            parts.append(_table(f"{result.name} by drift", ["drift", "KL(old‖π)", *_FIGURES], rows))
        if self.levels:
            title = (
                "Ratio levels against the response-level objective, unclipped: bias / noise by "
                "drift"
            )
            headings = ["divergence", "ratio"]
            headings += [f"{drift:g}" for drift in self.settings.drifts if drift > 0]
            parts.append(_table(title, headings, self.level_rows(), words=2))
        for study, (title, *words) in _STUDIES.items():
            rows = []
            for r in self.studies:
                if r.study == study:
                    bias = percent(r.bias, EXACT)
                    rows.append([r.name, r.setting, f"{r.scale:.3f}", bias, f"{r.noise:.1f}"])
            if rows:
                parts.append(_table(title, [*words, "scale", "bias", "noise"], rows, words=1))
        for peer, why in self.absent.items():
            parts.append(Text(f"Left out: {peer} ({why})", style="yellow"))
        s = self.settings
        world = f"{s.vocabulary} symbols x {s.length} tokens, {s.vocabulary**s.length} responses"
        seeds = f"seeds {', '.join(map(str, s.seeds))}"
        parts.append(Text(f"{world}, {seeds}; {self.seconds:.1f} s", style="dim"))
        return Group(*parts)

    def markdown(self, source: str = "rpg") -> str:
        """The table of one source's losses (`rpg`, `verl`, `trl`) as Markdown, for
        documentation."""
        figures = [heading.replace("\n", " ").strip() for heading in _FIGURES]
        rows = []
        for result in self.losses:
            if result.source.split()[0] == source:
                name, *cells = self._row(result)
                missing = len(figures) + 2 - len(cells)
                rows.append([f"`{name}`", *cells, *[""] * missing])
        return markdown_table(("loss", "exact for", "only on-policy"), figures, rows)

    def _row(self, result: Result) -> list[str]:
        if result.note:
            return [result.name, result.note]
        name = f"{result.name} †" if result.batch > 1 else result.name
        always = result.exact_off_policy
        only_on_policy = _objectives(n for n in result.exact_on_policy if n not in always)
        cells = _cells(result, self.settings.shown_drift)
        return [name, _objectives(always) or "none", only_on_policy, *cells]

    def level_rows(self) -> list[list[str]]:
        """By ratio level: divergence, ratio, and `bias / noise` against the response-level
        objective at each drift."""
        rows = []
        for result in self.levels:
            target = str(Objective("sequence", result.divergence))
            row = result.name.split()
            for point in result.unclipped():
                if point.drift > 0:
                    bias = percent(point.bias[target], result.tolerance)
                    row.append(f"{bias} / {point.noise:.1f}")
            rows.append(row)
        return rows


_NAMES = "; ".join(
    f"{kl.upper()}: {DIVERGENCES[kl].penalty}" for kl in DIVERGENCE_NAMES if kl != "none"
)
_LEGEND = f"""\
[bold]What each loss optimises.[/bold] All responses of a small language are enumerated: exact \
numbers.
[bold]exact for[/bold]  the objective whose gradient the loss has on average, whatever the drift, \
unclipped
  token: each token redrawn on its own, prefixes as sampled; resp.: whole responses of the policy
  R: E[R]; {_NAMES}, ref being a third policy; none: none of these objectives
[bold]bias[/bold]       |average step − gradient| / |gradient| for the KL it is named for; \
0: at most 1e-10
[bold]noise[/bold]      standard deviation of one response's step / |average step|
[bold]clip:[/bold]      the same figures with the loss's own clip
[bold]drift[/bold]      distance from old to the trained policy, in standard deviations of a logit
[bold]†[/bold]          the responses of a batch affect each other: \
the figures are of all batches of two\
"""
_ADVANTAGES = (
    "Advantage estimators, on-policy, two prompts: average step = scale x (gradient + bias)"
)
_CORRECTIONS = (
    "rollout_correction, sampler 0.7 and policy 0.2 standard deviations of a logit from old, E[R]"
)
_STUDIES = {
    "advantage": (_ADVANTAGES, "estimator", "setting"),
    "aggregation": ("Aggregation of responses of different lengths, on-policy", "mode", "setting"),
    "correction": (_CORRECTIONS, "correction", "against the objective"),
}


def markdown_table(
    words: Sequence[str],
    figures: Sequence[str],
    rows: Iterable[Sequence[str]],
    last: Sequence[str] = (),
) -> str:
    """A table with columns of words, of figures (on the right), and `last` of words again."""
    rule = "|" + "---|" * len(words) + "---:|" * len(figures) + "---|" * len(last)
    head = _markdown_row([*words, *figures, *last])
    return "\n".join([head, rule, *map(_markdown_row, rows)])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], words: int = 0
) -> Any:
    """The first `words` columns are words, the others numbers."""
    from rich import box  # noqa: PLC0415 (optional)
    from rich.markup import escape  # noqa: PLC0415 (optional)
    from rich.table import Table  # noqa: PLC0415 (optional)

    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for place, heading in enumerate(headings):
        wraps = 0 < place < words
        table.add_column(heading, justify="left" if place < words else "right", no_wrap=not wraps)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _objectives(names: Iterable[str]) -> str:
    """`token R−βRKL, resp. R−βRKL`; `token R` without a KL."""
    return ", ".join(BY_NAME[name].short for name in names)


def percent(bias: float, tolerance: float) -> str:
    if bias == inf:
        # A gradient of zero: distillation by a divergence that the audit does not compare with.
        return ""
    return "0" if bias <= tolerance else f"{bias:.1%}"


_FIGURES = ("bias\ntoken", "bias\nresp.", "\nnoise", "clip:\ntoken", "clip:\nresp.", "clip:\nnoise")


def _cells(result: Result, drift: float) -> list[str]:
    """Biases and noise without the clip and, where the loss has one, with it."""
    cells: list[str] = []
    for clipped in (False, True):
        point = result.point(drift, clipped)
        if point is None:
            continue
        for level in LEVELS:
            bias = point.bias[str(Objective(level, result.divergence))]
            cells.append(percent(bias, result.tolerance))
        cells.append(f"{point.noise:.1f}")
    return cells
