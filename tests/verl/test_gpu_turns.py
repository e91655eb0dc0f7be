"""An evaluator on GPUs never shares one with a training: it waits for its own, and goes before the
next training."""

import itertools
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.machine import slots
from flows.machine.children import Children, Stopped
from flows.machine.slots import Machine, Need
from flows.sweep import evaluation
from flows.sweep.context import Context, StageFailed
from flows.sweep.training import backend_of, slot
from rpg.config.sweep_spec import load_sweep
from rpg.evaluation.evaluator import Evaluator
from rpg.store import Layout
from tests.specs import load_run
from tests.tiny import make_run, make_spec
from tests.verl.test_gpu_resources import VLLM
from tests.verl.test_launch_overrides import CHAIN
from tests.waiting import until

EMBEDDED = {"type": "local", "device": "cuda"}
PRETRAINED = {"type": "pretrained", "path": "Qwen/Qwen3-0.6B"}
PLACES = {
    "verl": ({}, 1),
    "its engine takes two": ({"evaluation.engine": {"type": "vllm", "tensor_parallel": 2}}, 2),
    "embedded, of a tiny model": ({"backend": EMBEDDED}, 0),
    "embedded, which fills the GPU": ({"backend": EMBEDDED, "model": PRETRAINED}, 1),
    "embedded, which leaves a share": (
        {"backend": EMBEDDED, "model": PRETRAINED, "evaluation.place": {"gpu_memory": 0.3}},
        0,
    ),
    "embedded, vLLM evaluates": ({"backend": EMBEDDED, "evaluation.engine": {"type": "vllm"}}, 1),
    "on a cluster": ({"evaluation.place": {"type": "ray"}}, 0),
    "on a CPU": ({"backend": {"type": "verl"}}, 0),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_evaluator_gets_gpus_only_where_it_needs_them(name):
    changes, wanted = PLACES[name]
    base = {} if "backend" in changes else VLLM
    assert load_run(CHAIN, {**base, **changes}).evaluator_gpus() == wanted


class Child:
    """An evaluator that has evaluated what is there, and says with which GPUs."""

    def __init__(self, children, environment):
        children.seen.append((environment["CUDA_VISIBLE_DEVICES"], set(children.owed)))
        children.done |= set() if children.code or children.hopeless else children.owed

    def poll(self):
        return 0


class Evaluators(Children):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.owed = set()
        self.done = set()
        self.code = 0
        self.hopeless = False

    def start(self, *_, extra, **__):
        return Child(self, extra)

    def wait(self, _child):
        return self.code


@pytest.fixture
def gpus():
    return ("0", "1")


@pytest.fixture
def stage(tmp_path, monkeypatch, gpus):
    """(context, what is owed, start): `start()` begins the evaluation in a thread and returns how
    to end it."""
    (tmp_path / "slots").mkdir()
    children = Evaluators()
    machine = Machine(tmp_path / "slots", 4, gpus)
    progress = SimpleNamespace(tell=lambda line: None)
    context = Context(Layout(tmp_path), "sweep", machine, children, None, progress, None)
    monkeypatch.setattr(slots, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(evaluation, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(evaluation, "pending", lambda _: children.owed - children.done)
    over = threading.Event()
    ended = []

    def work(count):
        try:
            evaluation.alternate(context, over, count)
        except (Stopped, StageFailed) as error:
            ended.append(error)

    def start(count=1):
        thread = threading.Thread(target=work, args=(count,), daemon=True)
        thread.start()

        def end():
            over.set()
            thread.join(60)
            assert not thread.is_alive()
            return ended

        return end

    yield context, children, start
    over.set()
    children.stopping.set()


@pytest.mark.parametrize("gpus", [("0",)])
def test_it_waits_while_trainings_have_all_gpus_and_goes_before_the_next(stage, tmp_path):
    context, children, start = stage
    training = context.machine.take(Need("gpu", 1), "training")
    end = start()
    children.owed |= {("run", "easy", 0)}
    until(context.evaluation_waits.is_set)
    children.owed |= {("run", "easy", 10)}  # saved while it waits
    folder = make_run(tmp_path, "next", make_spec(backend={"type": "local", "device": "cuda"}))
    got = []

    def train():
        with slot(folder, backend_of(folder), context) as held:
            got.append((held.environment["CUDA_VISIBLE_DEVICES"], list(children.seen)))

    waiting = threading.Thread(target=train, daemon=True)
    waiting.start()
    until(lambda: folder.waiting() is not None)
    assert children.seen == [] and got == [], "nobody shares a GPU with the training"
    training.close()
    waiting.join(60)
    assert end() == []
    evaluated = [("0", {("run", "easy", 0), ("run", "easy", 10)})]
    assert children.seen == evaluated, "one turn for both checkpoints"
    assert got == [("0", evaluated)], "the next training began after the evaluator had the GPU"
    assert context.machine.taken("gpu") == [], "and gave it back"


def test_evaluators_take_all_free_gpus_at_once(stage):
    context, children, start = stage
    work = {("run", "easy", 0), ("run", "easy", 10), ("run", "easy", 20)}
    children.owed |= work
    assert start()() == []
    assert children.seen == [("0", work), ("1", work)], "an evaluator for each GPU, in one turn"
    assert context.machine.taken("gpu") == [], "and gave them back"


def test_what_cannot_be_evaluated_is_tried_once(stage):
    _, children, start = stage
    children.owed |= {("run", "easy", 0)}
    children.hopeless = True
    assert start()() == []
    assert len(children.seen) == 1


def test_an_evaluator_that_dies_is_begun_again_and_then_said(stage):
    _, children, start = stage
    children.owed |= {("run", "easy", 0)}
    children.code = -9
    ended = start()()
    assert len(children.seen) == evaluation.EVALUATOR_TRIES
    assert "evaluation ended with code -9 3 times" in str(ended[0])


def test_more_gpus_than_there_are_is_said(stage):
    _, children, start = stage
    children.owed |= {("run", "easy", 0)}
    assert "needs 3 GPUs and this machine has 2" in str(start(3)()[0])


def test_shares_are_all_of_the_work_and_each_part_once(tmp_path):
    keys = list(itertools.product(("a", "b"), ("easy", "hard"), range(0, 200, 10)))
    shares = [Evaluator(Layout(tmp_path), "sweep", share=(i, 8)) for i in range(1, 9)]
    owners = {key: [one.share[0] for one in shares if one._is_ours(key)] for key in keys}
    assert all(len(found) == 1 for found in owners.values())
    assert len({found[0] for found in owners.values()}) == 8, "nobody is idle"
    assert owners["a", "easy", 0] == owners["b", "easy", 0], "equal checkpoints are evaluated once"


def test_the_papers_sweeps_take_turns():
    for path in sorted(
        (Path(__file__).resolve().parents[2] / "configs/papers/rpg").glob("table*.yaml")
    ):
        for run in load_sweep(path, {}, lambda spec: "data").runs:
            assert run.spec.evaluator_gpus() == run.spec.evaluation.engine.tensor_parallel
