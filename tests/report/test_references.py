"""Which reference policy a run measured its KL against, by what it wrote."""

import json
from contextlib import closing

from benchmarks.synthetic import Shape, write_sweep
from rpg.backends.local.training_loop import train
from rpg.models.initial_policy import initial_policy
from rpg.store import Layout, queries
from rpg.store.database import build, connect
from tests.tiny import make_run, make_spec

ALGORITHMS = {
    "dapo": "the old policy",  # whatever its settings say: it has no KL, so no reference is kept
    "grpo": "the initial model",
    "rpg-urkl": "the old policy",
    "renewed": "renewed every 3 optimizer steps",
    "taught": "the teacher",
    "whole": "the teacher, whole distributions",
    "without": "the old policy",
}


def test_the_reference_is_the_one_that_the_run_measured_against(tmp_path, home):
    """In a real training of each."""
    settings = {
        "dapo": {"name": "dapo", "reference": "fixed"},
        "grpo": {"name": "grpo", "reference": "fixed"},
        "renewed": {"name": "rpg-urkl", "beta": 0.1, "reference": {"type": "every_k", "k": 3}},
        "without": {"name": "grpo", "beta": 0, "reference": "fixed"},
    }
    folder = tmp_path / "teacher"
    teacher = initial_policy(make_spec(seed=1, model={"warm_start": None}), home)
    teacher.model.save_pretrained(folder)
    teacher.tokenizer.save_pretrained(folder)
    settings["taught"] = {"name": "rpg-urkl", "reference": {"type": "model", "path": str(folder)}}
    settings["whole"] = settings["taught"] | {"name": "opd-rkl"}
    for name in ALGORITHMS:
        train(make_run(tmp_path, name, make_spec(algorithm=settings.get(name, name))), home, print)
    layout = Layout.at(tmp_path)
    build(layout)
    with closing(connect(layout)) as db:
        found = queries.references(db, ["sweep"])
        assert found == {("sweep", variant): words for variant, words in ALGORITHMS.items()}
        same = """SELECT DISTINCT run FROM metrics GROUP BY run
                  HAVING bool_and(kl_ref_to_policy = kl_old_to_policy
                                  AND kl_policy_to_ref = kl_policy_to_old)"""
        old = {name for name, words in ALGORITHMS.items() if words == "the old policy"}
        assert {run for (run,) in db.execute(same).fetchall()} == old


def test_a_run_that_did_not_write_its_reference_has_an_unknown_one(tmp_path):
    """Its settings alone do not say what was measured."""
    shape = Shape(steps=2, eval_every=2, problems=2, samples=1, benchmarks=("easy",))
    layout = write_sweep(tmp_path, "demo", ("grpo",), (0,), shape)
    [folder] = layout.run_folders("demo")
    lines = [json.loads(line) for line in folder.metrics_path(1).read_text().splitlines()]
    kept = [
        {name: value for name, value in line.items() if name != "reference_age"} for line in lines
    ]
    folder.metrics_path(1).write_text("".join(json.dumps(line) + "\n" for line in kept))
    build(layout)
    with closing(connect(layout)) as db:
        assert queries.references(db, ["demo"]) == {("demo", "grpo"): "unknown"}
