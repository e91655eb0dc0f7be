"""Evaluation on a real Ray cluster: the same samples as here, whatever happens to its workers."""

import contextlib
import importlib.util
import json
import os
import signal
import sys

import pytest
from pydantic import TypeAdapter

from flows.machine.children import Children
from flows.machine.programs import EVALUATOR, FORKED
from rpg.config.evaluation import EngineSpec, OnRay
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.protocol import EngineError
from rpg.evaluation.engines.ray import deal
from rpg.evaluation.evaluator import Evaluator
from rpg.models.truncated_sampling import Sampling
from rpg.store.layout import Layout
from rpg.system.fork_server import ForkServer
from rpg.system.processes import owner_mark
from tests.evaluation.ray_head import ray_head
from tests.evaluation.runs import register, rows, sample_lines
from tests.evaluation.small_model import requests_for
from tests.waiting import until

# Not imported here: whether Ray shows a token is decided before its import.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed (pip install '.[verl]')"
)
long = pytest.mark.system  # for the cluster


@pytest.fixture(scope="module", autouse=True)
def others_imported_ray():
    """Before the first test here."""
    return "ray" in sys.modules


@pytest.fixture(scope="module")
def address(others_imported_ray):
    with contextlib.ExitStack() as stack:
        if others_imported_ray:  # without a token: this cluster asks for none
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("RAY_AUTH_MODE", "disabled")
        yield stack.enter_context(ray_head(cpus=3))
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


def engine(address, temperature=1.0, rows=16, **place):
    spec = TypeAdapter(EngineSpec).validate_python({"type": "local", "rows": rows})
    where = OnRay(type="ray", address=address, **place) if address else None
    return Drawing(spec, where, Sampling(temperature, 64, 32), 0, "cpu", False).start(said.append)


said = []


@pytest.fixture(scope="module")
def workers(address):
    """An engine with two workers, each of which takes seconds to import torch: a place is left for
    others."""
    found = engine(address, workers=2)
    yield found
    found.close()


def test_problems_are_dealt_out_whole(problems):
    requests = requests_for(problems[:5], 3)
    assert deal(requests, 2) == [[0, 1, 2, 6, 7, 8, 12, 13, 14], [3, 4, 5, 9, 10, 11]]
    assert deal(requests[:3], 3) == [[0, 1, 2], [], []]
    assert deal([], 2) == [[], []]


@pytest.mark.parametrize("address", ["127.0.0.1:9", "127.0.0.1:port", "ray://127.0.0.1:9"])
def test_no_cluster_is_said_in_one_line(address):
    with pytest.raises(
        EngineError, match=f"evaluation.place: no Ray cluster at '{address}' .*ray status"
    ):
        engine(address)


@long
def test_a_worker_that_is_killed_is_replaced_and_no_sample_changes(workers, checkpoints, problems):
    here = engine(None)
    there = workers
    import ray

    here.load(checkpoints[0])
    there.load(checkpoints[0])
    requests = requests_for(problems, 8)
    expected = dict(pair for part in here.complete(requests) for pair in part)
    assert dict(pair for part in there.complete(requests) for pair in part) == expected
    said.clear()
    found = []
    victim = there._workers[1]
    for part in there.complete(requests):
        found += part
        if len(found) == 16:
            pid = ray.get(victim.__ray_call__.remote(lambda self: os.getpid()))
            os.kill(pid, signal.SIGKILL)
    assert len(found) == len(requests), "nothing is delivered twice"
    assert dict(found) == expected
    replaced = [
        line for line in said if "is replaced" in line
    ]  # the others say how long it is waited for
    assert len(replaced) == 1
    assert said[0] == replaced[0]


@long
def test_mistakes_are_said_in_one_line(address, workers, tmp_path):
    with pytest.raises(
        EngineError, match=r"2 workers with cpus 9 each, but the cluster at .* has 3 in all"
    ):
        engine(address, workers=2, cpus=9)
    with pytest.raises(EngineError, match=r"1 workers with gpus 0\.5 each, but .* has 0 in all"):
        engine(address, gpus=0.5)
    with pytest.raises(
        EngineError, match=r"/nowhere/model does not exist on the cluster node .* share"
    ):
        workers.load("/nowhere/model")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Exception, match=r"model\.path: ") as error:
        workers.load(tmp_path)
    assert "\n" not in str(error.value)


@long
def test_the_loop_runs_on_the_cluster_and_a_kill_loses_nothing(
    address, workers, checkpoints, tmp_path
):
    """kill -9 of the process that grades and writes: its worker leaves the cluster, a rerun does
    what is missing."""
    layout = Layout.at(tmp_path / "ray")
    plain = Layout.at(tmp_path / "here")
    place = {"type": "ray", "address": address, "workers": 1}
    settings = {"engine": {"type": "local", "rows": 16}, "samples_per_problem": 12}
    there = register(layout, "one", checkpoints, **settings, place=place)
    here = register(plain, "one", checkpoints, **settings)
    fork_server = ForkServer(
        tmp_path / "fork-server.log", {EVALUATOR: FORKED[EVALUATOR]}, owner_mark()
    )
    command = ("rpg.evaluation", layout.sweep_folder("sweep"), "--drain")
    children = Children(fork_server)
    log = tmp_path / "evaluation.log"

    def stored():
        return [line for path in layout.samples.glob("*/*.jsonl.gz") for line in sample_lines(path)]

    child = children.start(*command, log=log)
    until(lambda: len(stored()) > 64, "some samples", lambda: child.poll() is not None, pause=0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    kept = [json.loads(line) for line in stored()]
    assert 64 <= len(kept) < 64 * 12, "the kill came in the middle"
    available = sys.modules["ray"].available_resources
    until(lambda: available().get("CPU", 0) == 1, "the leaving of the killed process's worker")
    assert children.start(*command, log=log).wait() == 0, log.read_text()
    children.stop()
    assert Evaluator(plain, "sweep", lambda line: None).pass_over() == 2
    for step in (0, 1):
        assert rows(there, step) == rows(here, step)
    drawn = {(row["problem_id"], row["sample"]): row["response"] for row in rows(there, 0)}
    assert all(drawn[row["problem"], row["sample"]] == row["response"] for row in kept)
