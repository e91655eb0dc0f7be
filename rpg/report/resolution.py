"""Curves of metrics beside what rounding alone makes of equal weights: a KL below it is only known
to be small.

The frames are those of rpg.report.sweep_report.curve_data; where the rounding was measured they
have a column `noise` with its value at the same step.
"""

from collections.abc import Sequence

import pandas

from rpg.metrics import BELOW_ROUNDING, METRICS, is_below_rounding

_POINT = ["sweep", "variant", "step"]


def noises(metrics: Sequence[str]) -> list[str]:
    """The metrics that say below which value one of these is noise."""
    declared = (METRICS.get(name) for name in metrics)
    return list(dict.fromkeys(metric.noise for metric in declared if metric and metric.noise))


def with_noise(training: pandas.DataFrame, measured: pandas.DataFrame) -> pandas.DataFrame:
    """Training curves with the column `noise`, from `measured`: the curves of :func:`noises`; both
    as rpg.store.queries.metric_curves returns them."""
    point = [*_POINT, "seed"] if "seed" in training else _POINT
    values = measured[[*point, "metric", "mean"]]
    values = values.rename(columns={"metric": "of", "mean": "noise"})
    named = training.assign(of=training["metric"].map(_noise_of))
    return named.merge(values, how="left", on=[*point, "of"]).drop(columns="of")


def _noise_of(name: str) -> str:
    metric = METRICS.get(name)
    return metric.noise if metric else ""


def is_below(data: pandas.DataFrame) -> pandas.Series:
    """Of every point, whether its mean is below rounding."""
    if "noise" not in data or "mean" not in data:
        return pandas.Series(data=False, index=data.index)
    below = map(is_below_rounding, data["mean"], data["noise"])
    return pandas.Series(list(below), index=data.index, dtype=bool)


def remark(data: pandas.DataFrame) -> str:
    """Which curves of a panel are below rounding from their beginning to their end; empty if none
    is."""
    below = is_below(data)
    if not below.any():
        return ""
    labels = dict.fromkeys(data["label"])
    whole = [label for label in labels if below[data["label"] == label].all()]
    if not whole:
        return ""
    return BELOW_ROUNDING if len(whole) == len(labels) else f"{BELOW_ROUNDING}: {', '.join(whole)}"
