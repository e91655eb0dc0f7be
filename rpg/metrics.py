"""The metrics of a training step, each declared once in metrics.yaml.

The database takes the documentation of its columns from here; the report, the dashboard and the
nightly comparison take titles, axes, groups and bands. Metrics files may hold further numbers
(specific to a back end, or from an older version): they become columns too, under the names they
have in the file. docs/extending.md shows how to add a metric.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

Group = Literal["Rewards", "Ratios and clipping", "Divergence", "Updates", "Work"]


@dataclass(frozen=True)
class Band:
    """How far tonight's number may be from the median of earlier nights: at least `part` of the
    median, at least `least`, and at least the usual spread. Without such a floor the smallest
    harmless change of the code would be red, because numbers on a CPU repeat to the bit.
    """

    part: float
    least: float
    only_above: bool = False  # lower is never worse
    never_red: bool = False  # depends on the load of the machine: reported, but never red


@dataclass(frozen=True)
class Metric:
    """`title` and `unit` stand above its panel; `axis` is the number format of its axis (d3-format;
    with the scale `decades`, of a logarithmic axis only).
    """

    name: str
    meaning: str
    title: str
    group: Group
    unit: str = ""
    scale: Literal["linear", "log", "decades"] = "linear"
    """decades: logarithmic where the values span several."""
    axis: str = ""
    shown: bool = False  # in the report's figure and on the page of a run by default
    nightly: Band | None = None
    of_reference: bool = False
    """Measured against the reference policy: comparable only between variants with the same
    reference."""
    noise: str = ""
    """The metric that a value of this one must exceed to say anything: what rounding alone makes of
    equal weights."""

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


def _declared() -> Iterator[Metric]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for fields in yaml.load(Path(__file__).with_suffix(".yaml").read_bytes(), Loader=loader):
        band = fields.pop("nightly", None)
        yield Metric(**fields, nightly=Band(**band) if band else None)


_DECLARED = tuple(_declared())
METRICS = {metric.name: metric for metric in _DECLARED}
if len(METRICS) < len(_DECLARED):
    raise ValueError("rpg/metrics.yaml declares a metric twice")


BELOW_ROUNDING = "below rounding"
"""What stands in place of a number that rounding alone could have made."""


def is_below_rounding(value: float, noise: float) -> bool:
    """Whether a value is smaller than what rounding alone makes of equal weights; not where either
    is NaN, nor for an exact zero."""
    return 0 < value < noise


def shown() -> tuple[str, ...]:
    """Names of the metrics that figures show by default."""
    return tuple(name for name, metric in METRICS.items() if metric.shown)


def groups() -> dict[str, tuple[str, ...]]:
    """Group -> names of its metrics, in the order of declaration."""
    by_group: dict[str, tuple[str, ...]] = {}
    for name, metric in METRICS.items():
        by_group[metric.group] = (*by_group.get(metric.group, ()), name)
    return by_group
