"""A KL to the reference is never drawn beside one to another reference."""

import json
from contextlib import closing

import pandas

from benchmarks.synthetic import Shape, write_sweep
from rpg.report import curves
from rpg.store import Layout, queries
from rpg.store.database import build, connect

DATA = pandas.DataFrame(
    [
        {"name": name, "sweep": "s", "variant": variant, "step": step, "mean": 0.1 * step}
        for name in ("kl_policy_to_ref", "kl_policy_to_old")
        for variant in ("grpo", "rpg-urkl")
        for step in (1, 2)
    ]
)


def test_each_reference_has_a_panel_of_its_own_that_names_it():
    references = {("s", "grpo"): "the initial model", ("s", "rpg-urkl"): "the policy that sampled"}
    found = curves.by_reference(DATA, references)
    panels = curves.panels_of(found, ["kl_policy_to_old", "kl_policy_to_ref"])
    assert [curves.title(panel) for panel in panels] == [
        "KL(policy || old) (nats per token)",
        "KL(policy || reference) (nats per token) · reference: the initial model",
        "KL(policy || reference) (nats per token) · reference: the policy that sampled",
    ]
    assert [set(found[found["name"] == panel]["variant"]) for panel in panels] == [
        {"grpo", "rpg-urkl"}, {"grpo"}, {"rpg-urkl"},
    ]  # fmt: skip
    assert curves.metric_of(panels[1]).scale == "decades"


def test_one_reference_is_one_panel():
    same = dict.fromkeys([("s", "grpo"), ("s", "rpg-urkl")], "the initial model")
    assert len(curves.panels_of(curves.by_reference(DATA, same), ["kl_policy_to_ref"])) == 1


def test_the_database_knows_the_reference_of_each_variant(tmp_path):
    layout = Layout.at(tmp_path)
    shape = Shape(steps=2, eval_every=2, problems=2, samples=1, benchmarks=("easy",))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0,), shape)
    for folder in layout.run_folders("demo"):
        manifest = json.loads(folder.manifest_path.read_text())
        schedule = {"type": "fixed"} if manifest["variant"] == "grpo" else {"type": "every_k", "k": 8}
        manifest["spec"]["algorithm"]["reference"] = schedule
        folder.manifest_path.write_text(json.dumps(manifest))
    build(layout)
    with closing(connect(layout)) as db:
        found = queries.references(db, ["demo"])
    assert found == {
        ("demo", "grpo"): "the initial model",
        ("demo", "rpg-urkl"): "renewed every 8 optimizer steps",
    }


def test_curves_that_are_not_about_the_reference_keep_their_panel():
    other = DATA.assign(name="reward")
    assert curves.by_reference(other, {}).equals(other)
