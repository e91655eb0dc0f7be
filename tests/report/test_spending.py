"""Variants that have spent unequally: what is said, and what is compared where all have spent the
same."""

import itertools

import numpy as np
import pandas
import pytest

from rpg.report import tables
from rpg.report.comparison import Terms
from rpg.report.conclusion import conclusion
from rpg.report.spending import Equal, refusals
from rpg.report.summary import summarise, terms_of
from rpg.store.database import connect
from tests.report.sweeps import SHAPE, answered, array, demo, rebuild, rewritten, summary


@pytest.fixture
def layout(tmp_path):
    return demo(tmp_path)


def spend(layout, **per_step):
    """Give the runs of each variant this many tokens per step."""
    for run in layout.run_folders("demo"):
        tokens = per_step[run.name.partition("-")[0]]
        rewritten(run, lambda one, tokens=tokens: {"tokens": tokens * one["step"]})


def test_unequal_spending_is_said_and_compared_at_equal_tokens(layout):
    spend(layout, grpo=100, rpg=200)
    found = summary(layout)
    unequal = "Unequal spending: RPG-URKL has spent 2 times as many tokens as GRPO (1,600 and 800)."
    assert found.spending == unequal
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    assert equal.budget == 800
    rpg = equal.table.set_index("variant").loc["rpg-urkl"]
    halfway = np.mean([array(layout, "rpg-urkl", name, 4).mean() for name in ("easy", "hard")])
    base = np.mean([array(layout, "grpo", name, 8).mean() for name in ("easy", "hard")])
    assert (rpg["accuracy"], rpg["difference"]) == pytest.approx((halfway, halfway - base))
    text = tables.markdown(found)
    parts = ("## Mean accuracy", "Unequal spending", "## At 800 tokens each")
    assert sorted(parts, key=text.index) == [*parts] and "RPG-URKL | 8 |" in text
    # A seed without the accuracy of one benchmark there.
    layout.run("demo", "rpg-urkl-seed1").eval_path("hard", 4).unlink()
    assert "rpg-urkl" in set(summary(layout).equal[0].table["variant"])


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ("rpg-urkl", "first evaluated after this budget was spent"),
        ("grpo", "baseline: first evaluated after this budget was spent"),
    ],
)
def test_who_was_first_evaluated_later_is_not_measured_in_table_note_and_headline(
    layout, late, reason
):
    spending = {"grpo": 100, "rpg": 100} | {late.partition("-")[0]: 200}
    spend(layout, **spending)
    for seed, name, step in itertools.product(range(3), SHAPE.benchmarks, (0, 4)):
        layout.run("demo", f"{late}-seed{seed}").eval_path(name, step).unlink()
    found = summary(layout)
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    rows = equal.table.set_index("variant")
    assert rows.loc["rpg-urkl", "verdict"] == "not measured"
    assert np.isnan(rows.loc["rpg-urkl", "difference"])
    assert f"not measured at equal tokens: RPG-URKL ({reason})" in found.notes
    assert "times the tokens; not measured at equal tokens" in conclusion(found)


def test_of_many_variants_that_were_not_measured_the_first_say_why():
    def note(count):
        refused = {f"V{number}": "spent before its first checkpoint" for number in range(count)}
        return refusals(Equal("tokens", 100.0, pandas.DataFrame(), refused, spacing=5))

    assert note(0) == []
    because = [f"V{number} (spent before its first checkpoint)" for number in range(3)]
    end = "; evaluate every 5 steps"
    assert note(3) == [f"not measured at equal tokens: {'; '.join(because)}{end}"]
    assert note(24) == [f"not measured at equal tokens: {'; '.join(because)}; and 21 more{end}"]


def test_verdicts_at_equal_tokens_share_the_error_of_all_looks(layout):
    spend(layout, grpo=100, rpg=200)
    for run, step in itertools.product(layout.run_folders("demo"), (4, 8)):
        if run.name.startswith("rpg"):
            answered(run, step, right=lambda problem, sample: problem or sample)

    def at_tokens(*looks):
        found = summary(layout, terms=Terms(looks))
        return found.equal[0].table.set_index("variant").loc["rpg-urkl"], found.look

    first, look = at_tokens()
    late, _ = at_tokens(before := look._replace(runs=look.runs[1:], results={}))
    assert (first["verdict"], late["verdict"]) == ("better", "within noise"), "little error is left"
    kept, _ = at_tokens(before._replace(results=look.results))
    assert kept["verdict"] == "better" and kept["low"] == first["low"] > late["low"], (
        "what was found stays"
    )


@pytest.mark.parametrize(("budget", "compared"), [(400, 400), (1000, 800)])
def test_a_budget_of_tokens_is_where_variants_are_compared(layout, budget, compared):
    spend(layout, grpo=100, rpg=100)
    layout.write_sweep(layout.read_sweep("demo") | {"budget": budget})
    rebuild(layout)
    with connect(layout) as db:
        found = summarise(db, "demo", terms=terms_of(layout, "demo"))
    [equal] = [part for part in found.equal if part.axis == "tokens"]
    assert equal.budget == compared
    base = np.mean(
        [array(layout, "grpo", name, compared // 100).mean() for name in ("easy", "hard")]
    )
    assert equal.table.set_index("variant").loc["grpo", "accuracy"] == pytest.approx(base)
    short = [note for note in found.notes if "budget" in note]
    ended = "runs ended before the budget of 1,000 tokens: GRPO (800), RPG-URKL (800)"
    assert short == [ended] * (budget > 800)
