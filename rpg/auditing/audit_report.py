"""The audit's result as a table for people, JSON for machines and a figure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rpg.auditing.measure import OBJECTIVES, Point, Result, Settings
from rpg.auditing.objectives import DIVERGENCE_NAMES, Objective
from rpg.auditing.studies import StudyResult
from rpg.catalogue import DIVERGENCES

SHOWN_DRIFT = 0.4
WIDE = 110
"""Columns that the table with all its figures needs."""


@dataclass(frozen=True)
class Report:
    """losses: catalogue, callables and peers; levels: the ratio levels; studies: of what surrounds a loss."""

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

    @property
    def shown_drift(self) -> float:
        """The drift that the tables show: the measured one that is closest to SHOWN_DRIFT."""
        return min(self.settings.drifts, key=lambda drift: (abs(drift - SHOWN_DRIFT), drift))

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per loss, drift, clipping, reference and objective, for a database."""
        return [row for result in (*self.losses, *self.levels) for row in result.rows()]

    def to_json(self) -> str:
        """Everything, as one JSON document: {format, settings, seconds, absent, losses, studies, rows}."""
        losses = [
            {k: v for k, v in asdict(result).items() if k != "points"}
            for result in (*self.losses, *self.levels)
        ]
        return json.dumps(
            {
                "format": 1,
                "settings": asdict(self.settings),
                "seconds": round(self.seconds, 3),
                "absent": self.absent,
                "losses": losses,
                "studies": [asdict(result) for result in self.studies],
                "rows": self.rows(),
            },
            ensure_ascii=False,
            allow_nan=False,
        )

    # --- tables ------------------------------------------------------------------------------------------

    def table(self, width: int = WIDE) -> Any:
        """Everything as one rich renderable; if `width` is too small, without the clipped figures."""
        from rich.console import Group  # noqa: PLC0415 (optional)
        from rich.text import Text  # noqa: PLC0415 (optional)

        parts: list[Any] = [Text.from_markup(_LEGEND)]
        sources = list(dict.fromkeys(result.source for result in self.losses))
        for source in sources:
            title = {"rpg": "rpg-lab", "callable": "Your loss"}.get(source, f"{source}; 0: at most 1e-7")
            parts.append(
                self._loss_table(title, [r for r in self.losses if r.source == source], width >= WIDE)
            )
        if len(self.losses) == 1:
            parts.append(self._drift_table(self.losses[0]))
        if self.levels:
            parts.append(self._level_table())
        for study, title in _STUDIES.items():
            if results := [b for b in self.studies if b.study == study]:
                parts.append(_study_table(title, results))
        for peer, reason in self.absent.items():
            parts.append(Text(f"Left out: {peer} ({reason})", style="yellow"))
        s = self.settings
        parts.append(
            Text(
                f"{s.vocabulary} symbols x {s.length} tokens, {s.vocabulary**s.length} responses, seeds "
                f"{', '.join(map(str, s.seeds))}; {self.seconds:.1f} s",
                style="dim",
            )
        )
        return Group(*parts)

    def markdown(self, source: str = "rpg") -> str:
        """The table of one source's losses (`rpg`, `verl`, `trl`) as Markdown, for documentation."""
        headings = ["loss", "exact for", "only on-policy", *(h.replace("\n", " ").strip() for h in _FIGURES)]
        lines = ["| " + " | ".join(headings) + " |", "|---|---|---|" + "---:|" * len(_FIGURES)]
        for result in (r for r in self.losses if r.source.split()[0] == source):
            cells = self._row(result)
            cells += [""] * (len(headings) - len(cells))
            lines.append("| " + " | ".join([f"`{cells[0]}`", *cells[1:]]) + " |")
        return "\n".join(lines)

    def _row(self, result: Result) -> list[str]:
        if result.note:
            return [result.name, result.note]
        drift = self.shown_drift
        return [
            result.name,
            _objectives(result.exact_off_policy) or "none",
            _objectives(n for n in result.exact_on_policy if n not in result.exact_off_policy),
            *_cells(result, result.point(drift)),
            *_cells(result, result.point(drift, True)),
        ]

    def _loss_table(self, title: str, results: list[Result], clipped: bool = True) -> Any:
        from rich.markup import escape  # noqa: PLC0415 (optional)

        table = _table(f"{title} (figures at drift {self.shown_drift:g})")
        table.add_column("loss", no_wrap=True)
        table.add_column("exact for")
        table.add_column("only on-policy")
        for heading in _FIGURES if clipped else _FIGURES[:3]:
            table.add_column(heading, justify="right", no_wrap=True)
        for result in results:
            table.add_row(*map(escape, self._row(result)[: len(table.columns)]))
        return table

    def _drift_table(self, result: Result) -> Any:
        table = _table(f"{result.name} by drift")
        for heading in ("drift", "KL(old‖π)", *_FIGURES):
            table.add_column(heading, justify="right")
        for point in (p for p in result.points if not p.clipped and p.reference == "third"):
            cells = (*_cells(result, point), *_cells(result, result.point(point.drift, True)))
            table.add_row(f"{point.drift:g}", f"{point.kl:.3f}", *cells)
        return table

    def _level_table(self) -> Any:
        drifts = [d for d in self.settings.drifts if d > 0]
        table = _table("Ratio levels against the response-level objective, unclipped: bias / noise by drift")
        table.add_column("divergence", no_wrap=True)
        table.add_column("ratio")
        for drift in drifts:
            table.add_column(f"{drift:g}", justify="right")
        for result in self.levels:
            divergence, level = result.name.split()
            target = str(Objective("sequence", result.divergence))
            cells = [point for drift in drifts if (point := result.point(drift)) is not None]
            table.add_row(
                divergence,
                level,
                *(f"{_percent(p.bias[target], result.tolerance)} / {p.noise:.1f}" for p in cells),
            )
        return table

    # --- figure ------------------------------------------------------------------------------------------

    def figure(self) -> Any:
        """An Altair chart: bias and noise against drift, for the ratio levels and for chosen losses."""
        from rpg.auditing.figure import chart  # noqa: PLC0415 (altair is optional)

        return chart(self)


_NAMES = "; ".join(
    f"{name.upper()}: {DIVERGENCES[name].penalty}" for name in DIVERGENCE_NAMES if name != "none"
)
_LEGEND = f"""\
[bold]What each loss optimises.[/bold] All responses of a small language are enumerated: exact numbers.
[bold]exact for[/bold]  the objective whose gradient the loss has on average, whatever the drift, unclipped
  token: each token redrawn on its own, prefixes as sampled; resp.: whole responses of the policy
  R: E[R]; {_NAMES}, ref being a third policy; none: none of these objectives
[bold]bias[/bold]       |average step − gradient| / |gradient| for the KL it is named for; 0: at most 1e-10
[bold]noise[/bold]      standard deviation of one response's step / |average step|
[bold]clip:[/bold]      the same figures with the loss's own clip
[bold]drift[/bold]      distance from old to the trained policy, in standard deviations of a logit\
"""
_STUDIES = {
    "advantage": "Advantage estimators, on-policy, two prompts: average step = scale x (gradient + bias)",
    "aggregation": "Aggregation of responses of different lengths, on-policy",
    "correction": "rollout_correction, sampler 0.7 and policy 0.2 standard deviations of a logit from old, E[R]",
}


def _table(title: str) -> Any:
    from rich import box  # noqa: PLC0415 (optional)
    from rich.table import Table  # noqa: PLC0415 (optional)

    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def _objectives(names: Iterable[str]) -> str:
    """`token R−βRKL, resp. R−βRKL`; `token R` without a KL."""
    short = {str(objective): objective.short for objective in OBJECTIVES}
    return ", ".join(short[name] for name in names)


def _percent(bias: float, tolerance: float) -> str:
    return "0" if bias <= tolerance else f"{bias:.1%}"


_FIGURES = ("bias\ntoken", "bias\nresp.", "\nnoise", "clip:\ntoken", "clip:\nresp.", "clip:\nnoise")


def _cells(result: Result, point: Point | None) -> list[str]:
    if point is None:
        return [""] * 3
    named = [str(Objective(level, result.divergence)) for level in ("token", "sequence")]
    biases = [_percent(point.bias[objective], result.tolerance) for objective in named]
    return [*biases, f"{point.noise:.1f}"]


def _study_table(title: str, results: list[StudyResult]) -> Any:
    table = _table(title)
    first = {"advantage": ("estimator", "setting"), "correction": ("correction", "against the objective")}
    what, setting = first.get(results[0].study, ("mode", "setting"))
    table.add_column(what, no_wrap=True)
    for heading in (setting, "scale", "bias", "noise"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.name,
            result.setting,
            f"{result.scale:.3f}",
            _percent(result.bias, 1e-10),
            f"{result.noise:.1f}",
        )
    return table
