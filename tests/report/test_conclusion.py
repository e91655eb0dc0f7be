"""One sentence says what a sweep has found, and no more than its table does; labels say what
differs."""

import json

import pandas

from benchmarks.synthetic import Shape, write_sweep
from rpg.report.conclusion import conclusion
from rpg.report.labels import labels
from rpg.report.summary import summarise
from rpg.stats import Collapse
from rpg.store.database import build, connect

SHAPE = Shape(steps=8, eval_every=4, problems=24, samples=4, benchmarks=("easy", "hard"))


def summary(tmp_path, variants=("grpo", "dapo", "rpg-urkl"), seeds=(0, 1, 2)):
    layout = write_sweep(tmp_path, "demo", variants, seeds, SHAPE)
    build(layout)
    with connect(layout) as db:
        return summarise(db, "demo")


def test_the_sentence_is_that_of_the_table(tmp_path):
    """Counts, the largest real difference with its interval, and its price, each as in the
    table."""
    found = summary(tmp_path)
    table = found.table[found.table["benchmark"] == "mean"].set_index("variant")
    columns = ["difference", "difference_low", "difference_high", "verdict"]
    table.loc["dapo", columns] = [0.25, 0.13, 0.37, "better"]
    table.loc["rpg-urkl", ["difference", "verdict"]] = [0.40, "within noise"]  # larger, but noise
    table.loc["dapo", "tokens"] = 5 * table.loc["grpo", "tokens"]
    changed = found._replace(table=table.reset_index(), equal=())
    largest = "DAPO, +25.0 points [+13.0, +37.0], for 5 times the tokens."
    expected = f"One of two differs from GRPO; the largest difference is {largest}"
    assert conclusion(changed) == expected
    at = table.assign(step=table["step"] - 4 * (table.index == "dapo")).reset_index()
    assert conclusion(changed._replace(table=at)).endswith("DAPO, +25.0 points [+13.0, +37.0].")
    noise = table.assign(verdict=table["verdict"].replace("better", "within noise")).reset_index()
    assert conclusion(found._replace(table=noise)).startswith(
        "None of two differs from GRPO beyond noise."
    )
    assert conclusion(found._replace(table=found.table[:0])).startswith(
        "No checkpoint has been evaluated"
    )


def test_the_sentence_names_collapsed_seeds_and_what_limits_every_verdict(tmp_path):
    found = summary(tmp_path)
    gone = [Collapse("dapo", seed, 0.01, 0.4) for seed in range(2)]
    changed = found._replace(collapses=tuple(gone), caution="one search per variant")
    said = conclusion(changed)
    assert said.startswith(conclusion(found))
    assert "Seed 0 of DAPO collapsed (0.010; the other seeds reach 0.400); seed 1 of DAPO" in said
    assert said.endswith(" One search per variant.")
    many = changed._replace(collapses=tuple(gone * 2), caution="")
    assert conclusion(many).endswith(" 4 seeds collapsed, of DAPO.")


def test_without_a_verdict_the_sentence_gives_none(tmp_path):
    two = conclusion(summary(tmp_path / "two", ("grpo", "dapo"), (0, 1)))
    assert two.startswith("Two seeds give no verdict (three are needed). DAPO minus GRPO is ")
    alone = conclusion(summary(tmp_path / "one", ("grpo",), (0,)))
    assert alone.startswith("GRPO: mean accuracy 0.") and "differs" not in two + alone
    assert " tokens and " in alone and " s; one seed, which does not say " in alone


def named(*variants, given=None):
    algorithms = [variant.partition("(")[0].partition(" ")[0] for variant in variants]
    frame = pandas.DataFrame(
        {"variant": variants, "algorithm": algorithms, "labels": json.dumps(given)}
    )
    return list(labels(frame.assign(display_name=frame["algorithm"].str.upper())).values())


def test_labels_leave_out_what_is_common_and_say_the_rest_in_words():
    assert named("grpo(beta=0.3)", "dapo", "rloo(beta=0.3)") == ["GRPO", "DAPO", "RLOO"]
    exact = named(
        "grpo", "grpo(kl=objective(divergence=fkl))", "grpo(kl=objective(divergence=rkl))"
    )
    assert exact == ["GRPO", "GRPO, exact FKL", "GRPO, exact RKL"]
    stale = named("grpo(clip=none) rollout.staleness=0", "grpo rollout.staleness=2")
    assert stale == ["GRPO, no clip, staleness 0", "GRPO, staleness 2"]
    assert named("grpo algorithm.clip.low=0.1", "grpo") == ["GRPO, clip low 0.1", "GRPO"]
    references = named("grpo reference=every_k(k=16)", "grpo reference=old")
    assert references == ["GRPO, reference every_k", "GRPO, reference old"]
    assert named("grpo(beta=0.1)", "rloo(beta=0.3)") == ["GRPO, beta 0.1", "RLOO, beta 0.3"]
    assert named("grpo huge", "grpo") == ["GRPO, huge", "GRPO"]
    paths = named("grpo model.path=a(1)b", "grpo model.path=x(2")  # no name with arguments
    assert paths == ["GRPO, a(1)b", "GRPO, x(2"]
    assert named("grpo two\u2028lines", "grpo") == ["GRPO, two lines", "GRPO"]
    blank = {key: ["My GRPO"] for key in ("variant", "algorithm", "display_name")}
    assert labels(pandas.DataFrame(blank)) == {"My GRPO": "My GRPO"}
    assert named("grpo(clip=none)", "grpo", given={"grpo(clip=none)": "Bare"}) == ["Bare", "GRPO"]
