"""The evaluator of a sweep: the same samples from any engine, one engine for all checkpoints, nothing lost."""

import time

import pytest

import rpg.evaluation.samples as samples
from rpg.config.spec import RunSpec
from rpg.evaluation import owed
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.worker import Evaluator
from rpg.store.layout import Layout
from tests.evaluation.tiny import SPEC


def register(layout, run, checkpoints, engine, seed=0):
    data = SPEC.model_dump(mode="json") | {"seed": seed}
    data["evaluation"] |= {"engine": {"type": engine}, "samples_per_problem": 2}
    spec = RunSpec.model_validate(data)
    folder = layout.run("sweep", run)
    folder.checkpoints.mkdir(parents=True)
    for checkpoint in checkpoints:
        (folder.checkpoints / checkpoint.name).symlink_to(checkpoint)
    fields = {
        "run_id": run,
        "variant": "grpo",
        "algorithm": "grpo",
        "seed": seed,
        "created": time.time(),
        "steps": 1,
    }
    folder.write_manifest(
        fields | {"spec": spec.model_dump(mode="json"), "eval_steps": [0, 1], "benchmarks": ["chain-easy"]}
    )
    return folder


@pytest.fixture
def layout(tmp_path):
    return Layout.at(tmp_path)


def rows(folder, step):
    return folder.read_eval("chain-easy", step).to_pylist()


def test_every_engine_fills_the_same_files(layout, checkpoints):
    one = register(layout, "one", checkpoints, "local")
    other = register(layout, "other", checkpoints, "huggingface")
    layout.write_sweep(
        {
            "name": "sweep",
            "source": "",
            "baseline": None,
            "created": 0,
            "runs": ["one", "other"],
            "benchmarks": [],
        }
    )
    assert len(owed(one)) == 2
    evaluator = Evaluator(layout, "sweep", lambda line: None)
    assert evaluator.pass_over() == 4 and owed(one) == owed(other) == []
    for step in (0, 1):
        assert rows(one, step) == rows(other, step) and len(rows(one, step)) == 2 * 64
    assert rows(one, 0) != rows(one, 1)
    assert len(evaluator._engines) == 2, "one engine per kind, not one per checkpoint"
    assert not list(layout.home.rglob("*.partial.jsonl"))


def test_samples_graded_before_an_end_are_kept(layout, checkpoints, monkeypatch):
    folder = register(layout, "one", checkpoints[:1], "local")
    layout.write_sweep(
        {"name": "sweep", "source": "", "baseline": None, "created": 0, "runs": ["one"], "benchmarks": []}
    )
    monkeypatch.setattr(samples, "_FLUSH_ROWS", 16)
    drawn = []
    real = LocalEngine.complete

    def until_the_end(self, requests):
        self.rows = 16
        for part in real(self, requests):
            drawn.append(len(part))
            if len(drawn) == 4:
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(LocalEngine, "complete", until_the_end)
    with pytest.raises(KeyboardInterrupt):
        Evaluator(layout, "sweep", lambda line: None).pass_over()
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 1
    assert sum(drawn) == 2 * 64 + 16, "only what was drawn and not graded is drawn again"
    whole = register(Layout.at(layout.home / "w"), "one", checkpoints[:1], "local")
    monkeypatch.setattr(LocalEngine, "complete", real)
    whole_layout = Layout.at(layout.home / "w")
    whole_layout.write_sweep(
        {"name": "sweep", "source": "", "baseline": None, "created": 0, "runs": ["one"], "benchmarks": []}
    )
    assert Evaluator(whole_layout, "sweep", lambda line: None).pass_over() == 1
    assert rows(folder, 0) == rows(whole, 0)
