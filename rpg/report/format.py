"""How numbers are written: on the terminal, in reports, on pages, in Prefect and by `rpg compare`.

One quantity has one spelling everywhere: an accuracy is 0.983, a difference of accuracies is +2.1
points, an interval is [low, high] in the same unit as its value. An unknown number is "".
"""

import math
from collections.abc import Callable

ACCURACY = ".3f"
"""`accuracy` for charts (d3-format)."""
MEASURED = ",.4~r"
"""`measured` for charts (d3-format), to four digits also above 1,000."""
SMALLEST_P = 0.001
"""p-values below are not told apart."""


def accuracy(value: float | None) -> str:
    """An accuracy, or another estimated share: `0.983`."""
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def points(difference: float | None) -> str:
    """A difference of accuracies in points: `+2.1` for 0.021."""
    if difference is None or math.isnan(difference):
        return ""
    return _signed(100 * difference, ".1f")


def size_in_points(size: float | None) -> str:
    """How large differences are, whatever their sign: `2.1` for 0.021."""
    return "" if size is None or math.isnan(size) else f"{100 * abs(size):.1f}"


def measured(value: float | None) -> str:
    """Any other quantity, with four digits: `1.234`, `12,345`."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"


def change(difference: float | None) -> str:
    """A difference of `measured` quantities: `+1.234`, `+12,345`."""
    if difference is None or math.isnan(difference):
        return ""
    return _signed(difference, ",.0f" if 1000 <= abs(difference) < math.inf else ".4g")


def reward(mean: float | None) -> str:
    """A mean reward: `+0.125`."""
    return "" if mean is None or math.isnan(mean) else _signed(mean, ".3f")


def amount(value: float | None) -> str:
    """Something that was counted or spent: `55,560`, or `2.5` where it is below 10."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def times(factor: float) -> str:
    """How many times as much: `5`, `5.5`, `12`, `0.04`."""
    if factor < 1:
        return f"{factor:.2g}"
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}".removesuffix(".0")


def percent(share: float) -> str:
    """A share of answers, tokens or memory: `12.5 %`, `100 %`; `< 0.1 %` where there are some."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def p_value(p: float | None) -> str:
    """`0.012`, or `< 0.001`."""
    if p is None or math.isnan(p):
        return ""
    return f"< {SMALLEST_P:g}" if p < SMALLEST_P else f"{p:.3f}"


def p_sentence(p: float) -> str:
    """`p = 0.012`, or `p < 0.001`."""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def interval(low: float | None, high: float | None, show: Callable[[float], str] = accuracy) -> str:
    """`[0.971, 0.990]`; "" where a bound is unknown."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return f"[{show(low)}, {show(high)}]"


def with_interval(
    value: float, low: float, high: float, show: Callable[[float], str] = accuracy
) -> str:
    """`0.983 [0.971, 0.990]`; the value alone where its interval is unknown."""
    return " ".join(filter(None, [show(value), interval(low, high, show)]))


def _signed(value: float, digits: str) -> str:
    """With its sign, as typesetters write a minus."""
    return f"{value:+{digits}}".replace("-", "−")
