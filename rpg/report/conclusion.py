"""What a sweep has found, in one sentence: for the report, the dashboard's first page and
Prefect."""

import math

import pandas

from rpg.report.format import accuracy, amount, interval, points, times, with_interval
from rpg.report.selection import MEAN
from rpg.report.spending import UNEQUAL, not_measured
from rpg.report.summary import Summary
from rpg.report.verdicts import NOT_MEASURED, REAL, TOO_FEW, TOO_FEW_MOVE
from rpg.stats import MINIMUM_SEEDS

NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()


NAMED = 3
"""As many collapsed seeds are named one by one."""


def conclusion(summary: Summary) -> str:
    """How many variants differ from the baseline, the largest difference with its interval, and its
    price in tokens; then the seeds that collapsed, and what limits every verdict.

    Only differences that the paired test calls real are said to be differences.
    """
    sentences = [_compared(summary), collapse_sentence(summary)]
    if not summary.compared_rows.empty:
        sentences.append(caution_sentence(summary))
    return " ".join(filter(None, sentences))


def caution_sentence(summary: Summary) -> str:
    """What limits every verdict; "" if nothing does."""
    text = summary.caution
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def collapse_sentence(summary: Summary) -> str:
    """The seeds that collapsed; "" if none did."""
    found = summary.collapses
    if not found:
        return ""
    if len(found) > NAMED:
        variants = dict.fromkeys(summary.labels[each.variant] for each in found)
        return f"{len(found)} seeds collapsed, of {', '.join(variants)}."
    parts = [
        f"seed {each.seed} of {summary.labels[each.variant]} collapsed "
        f"({accuracy(each.accuracy)}; the other seeds reach {accuracy(each.siblings)})"
        for each in found
    ]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _compared(summary: Summary) -> str:
    """How many variants differ, by how much and at what price."""
    table = summary.table[summary.table["benchmark"] == summary.headline]
    if table.empty:
        return "No checkpoint has been evaluated on all benchmarks yet."
    compared = summary.compared_rows
    baseline = summary.baseline_label
    if compared.empty:
        return _alone(table, summary.headline)
    count = len(compared)
    real = compared[compared["verdict"].isin(REAL)]
    rows = compared if real.empty else real
    row = rows.loc[rows["difference"].abs().idxmax()]
    label = row["label"]
    size = _size(summary, row, table)
    largest = f"The largest difference from {baseline} is {label}, {size}."
    if compared["verdict"].eq(TOO_FEW_MOVE).all():
        measured = largest if count > 1 else f"{label} minus {baseline} is {size}."
        return f"Too few problems move for a verdict. {measured}"
    if compared["verdict"].eq(TOO_FEW).all():
        seeds = int(compared["seeds"].min())
        few = "One seed gives no verdict"
        if seeds > 1:
            few = f"{_words(seeds).capitalize()} seeds give no verdict"
        measured = largest if count > 1 else f"{label} minus {baseline} is {size}."
        return f"{few} ({_words(MINIMUM_SEEDS)} are needed). {measured}"
    if count == 1:
        verdict = f"is {row['verdict']} than {baseline}"
        if real.empty:
            verdict = f"does not differ from {baseline} beyond noise"
        return f"{label} {verdict}: {size}."
    if real.empty:
        return f"None of {_words(count)} differs from {baseline} beyond noise. {largest}"
    verb = "differs" if len(real) == 1 else "differ"
    subject = f"{_words(len(real)).capitalize()} of {_words(count)} {verb}"
    return f"{subject} from {baseline}; the largest difference is {label}, {size}."


def _size(summary: Summary, row: pandas.Series, table: pandas.DataFrame) -> str:
    """`+25.1 points [+13.0, +37.2], for 5 times the tokens; at equal tokens +9.8 points [−2.1,
    +21.7], within noise`."""
    text = _difference(row)
    tokens = table.set_index(["variant", "step"])["tokens"].astype(
        float
    )  # compared at the same step
    factor = float(row["tokens"]) / (tokens.get((summary.baseline, row["step"]), 0.0) or math.nan)
    if math.isnan(factor):
        return text
    if 1 / UNEQUAL <= factor <= UNEQUAL:
        return f"{text}, for the same number of tokens"
    text += f", for {times(factor)} times the tokens"
    for equal in summary.equal:
        match = equal.table[equal.table["variant"] == row["variant"]]
        if equal.axis != "tokens" or match.empty or not match.iloc[0]["verdict"]:
            continue
        same = match.iloc[0].rename({"low": "difference_low", "high": "difference_high"})
        if same["verdict"] == NOT_MEASURED:
            text += f"; {not_measured('tokens')}"
        else:
            text += f"; at equal tokens {_difference(same)}, {same['verdict']}"
    return text


def _difference(row: pandas.Series) -> str:
    """In points of accuracy, as in the figure beside it."""
    bounds = interval(row["difference_low"], row["difference_high"], points)
    return f"{points(row['difference'])} points {bounds}".rstrip()


def _alone(table: pandas.DataFrame, measured: str) -> str:
    """Without a comparison: the only variant's accuracy, or the highest one, what it took, and what
    it cannot say."""
    row = table.loc[table["last"].idxmax()]
    of = "mean accuracy" if measured == MEAN else f"accuracy on {measured}"
    count = int(row["seeds"])
    units = {"tokens": "tokens", "seconds": "s"}
    spent = [
        f"{amount(row[name])} {unit}" for name, unit in units.items() if pandas.notna(row[name])
    ]
    cost = ""
    if spent:
        cost = f", for {' and '.join(spent)}"
        if count > 1:
            cost += " a seed"
    rose = (
        f"{of} {accuracy(row['first'])} at step {row['first_step']}, "
        f"{with_interval(row['last'], row['low'], row['high'])} at step {row['step']}{cost}"
    )
    seeds = "one seed, which does not say what another would give"
    if count > 1:
        seeds = f"{_words(count)} seeds"
    if len(table) == 1:
        return f"{row['label']}: {rose}; {seeds}."
    return (
        f"Nothing is compared with a baseline. Highest of {_words(len(table))}: {row['label']}, "
        f"{rose}; {seeds}."
    )


def _words(number: int) -> str:
    return NUMBERS[number] if 0 <= number < len(NUMBERS) else f"{number:,}"
