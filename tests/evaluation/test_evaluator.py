"""The evaluator of a sweep: one engine for all checkpoints, nothing lost."""

import json
import os
import sys
from unittest.mock import MagicMock

import pytest

import rpg.evaluation.graded_samples as samples
from rpg.config.evaluation import OnRay
from rpg.config.load import resolve
from rpg.evaluation import evaluate
from rpg.evaluation.engines import ray
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import EngineError
from rpg.evaluation.evaluator import Evaluator
from rpg.store.atomic_files import StoreError, read_json_object
from rpg.store.checkpoints import damaged, digests
from rpg.store.layout import Layout
from rpg.store.run_folder import pending_evaluations
from rpg.store.samples import read_samples
from tests.evaluation.runs import register, rows


@pytest.fixture
def layout(tmp_path):
    return Layout.at(tmp_path)


def test_one_engine_serves_all_checkpoints_and_an_old_name_means_the_same(layout, checkpoints):
    one = register(layout, "one", checkpoints, "local")
    other = register(layout, "other", checkpoints, "huggingface")
    assert len(pending_evaluations(one)) == 2
    evaluator = Evaluator(layout, "sweep", lambda line: None)
    assert evaluator.pass_over() == 4
    assert pending_evaluations(one) == pending_evaluations(other) == []
    for step in (0, 1):
        assert rows(one, step) == rows(other, step)
        assert len(rows(one, step)) == 2 * 64
    assert rows(one, 0) != rows(one, 1)
    assert len(evaluator._engines) == 2, "one engine per kind, not one per checkpoint"
    for prefix in ("Answer:", ""):
        chat = {"template": "{{ x }}", "prefix": prefix}
        files = {"train": "a.jsonl", "benchmarks": {"b": "b.jsonl"}}
        model = {"type": "pretrained", "path": str(checkpoints[0])}
        spec = resolve({"task": {"type": "file", "chat": chat, **files}, "model": model}, "x")
        assert evaluator._scorer(one, spec).prefix == prefix
        drift = evaluator._drift
        initial = drift._model(drift._initial(spec), spec)
        assert ("Answer:" in initial.tokenizer.chat_template) is bool(prefix)


def test_a_checkpoint_is_compared_with_its_record_once_until_it_changes(
    layout, tmp_path, monkeypatch
):
    checkpoint = tmp_path / "step-000001"
    (checkpoint / "training").mkdir(parents=True)
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(b"weights")
    (checkpoint / "checkpoint.json").write_text(json.dumps({"files": digests(checkpoint)}))
    compared = []
    monkeypatch.setattr(
        "rpg.evaluation.evaluator.damaged", lambda path: compared.append(path) or damaged(path)
    )
    evaluator = Evaluator(layout, "sweep", lambda line: None)
    evaluator._require_whole(checkpoint)
    (checkpoint / "training").rmdir()  # which is no part of what is evaluated
    evaluator._require_whole(checkpoint)
    assert compared == [checkpoint]
    weights.write_bytes(b"stthgie")
    os.utime(weights, ns=(1, 1))  # a clock of the file system may stand still for milliseconds
    for _ in range(2):
        with pytest.raises(StoreError, match=r"model\.safetensors is corrupt"):
            evaluator._require_whole(checkpoint)


def test_samples_drawn_before_an_end_are_kept(layout, checkpoints, monkeypatch):
    folder = register(layout, "one", checkpoints[:1], "local")
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
    assert sum(drawn) == 2 * 64 + 16, "only what was drawn and not stored is drawn again"
    whole = register(Layout.at(layout.home / "w"), "one", checkpoints[:1], "local")
    monkeypatch.setattr(LocalEngine, "complete", real)
    assert Evaluator(Layout.at(layout.home / "w"), "sweep", lambda line: None).pass_over() == 1
    assert rows(folder, 0) == rows(whole, 0)


def test_an_engine_that_broke_is_replaced_and_its_checkpoint_reported(
    layout, checkpoints, monkeypatch
):
    folder = register(layout, "one", checkpoints)
    real = LocalEngine.complete
    broken = []

    def once_broken(self, requests):
        if not broken:
            broken.append(self)
            raise EngineError("the cluster is gone")
        assert self is not broken[0]
        return real(self, requests)

    monkeypatch.setattr(LocalEngine, "complete", once_broken)
    said = []
    assert Evaluator(layout, "sweep", said.append).pass_over() == 1
    assert pending_evaluations(folder) == [("chain-easy", 0)]
    record = folder.eval_path("chain-easy", 0).with_suffix(".error.json")
    assert (
        "cannot be evaluated on chain-easy: the cluster is gone"
        in read_json_object(record)["error"]
    )
    assert Evaluator(layout, "sweep", said.append).pass_over() == 1
    assert not record.exists()


def test_by_hand_a_checkpoint_gives_the_samples_of_its_sweep(
    layout, checkpoints, tmp_path, monkeypatch
):
    folder = register(layout, "one", checkpoints)
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 2
    monkeypatch.setattr(LocalEngine, "load", lambda *_: pytest.fail("the samples are there"))
    own = tmp_path / "chain-easy.yaml"
    source = "source: {chain: {tiers: {easy: 2}, train_problems: 2000}}"
    own.write_text(source + "\nverifier: {type: marker, marker: '#'}\n")
    how = {"samples_per_problem": 2, "max_prompt_tokens": 64, "max_response_tokens": 42}
    [result] = evaluate(folder.checkpoint(1), [own], home=layout.home, say=str, **how)
    assert read_samples(result.samples).to_pylist() == rows(folder, 1)


def test_a_cluster_without_nodes_is_waited_for_and_nothing_is_kept_of_it_in_between(
    layout, monkeypatch
):
    cluster = MagicMock()
    sdk = MagicMock()
    cluster.cluster_resources.side_effect = [{}, {}, {"CPU": 1}]
    monkeypatch.setitem(sys.modules, "ray.autoscaler.sdk", sdk)
    monkeypatch.setattr(ray, "connect", lambda *_: cluster)
    monkeypatch.setattr("rpg.backends.ray_connection.promised", lambda _: 1)
    there = ray.RayEngine(None, None, OnRay(type="ray"), print)
    assert [call.kwargs["bundles"] for call in sdk.request_resources.mock_calls] == [
        [{"CPU": 1}],
        [],
    ]
    evaluator = Evaluator(layout, "sweep", _engines={"here": None, "there": there})
    evaluator.until(iter([False, True]).__next__)
    assert list(evaluator._engines) == ["here"]
    assert cluster.kill.called
