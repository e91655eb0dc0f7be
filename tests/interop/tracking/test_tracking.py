"""Trackers get what the run folders hold, once, and never disturb anything. Read back by their own
readers."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks.synthetic import write_sweep
from rpg.config.errors import ConfigError
from rpg.config.identity import identity
from rpg.config.load import spec_of
from rpg.config.tracking import MlflowTracker, TensorBoardTracker, WandbTracker
from rpg.interop.importing.imported_runs import write_scores
from rpg.interop.tracking import follower as following
from rpg.interop.tracking.follower import Follower, tracking_folder
from rpg.interop.tracking.trackers import Mlflow, Record, evaluated
from rpg.store import Layout, RunFolder
from rpg.store.run_writer import write_manifest
from tests.specs import load_run
from tests.verl.test_launch_overrides import CHAIN
from tests.waiting import free_port


def needs(package):
    """Left out where the package is not there: they are heavy, and no part of `make setup`."""
    reason = f"{package} is not installed; pip install '.[trackers]' brings it"
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=reason)


@pytest.fixture
def layout(tmp_path):
    write_sweep(tmp_path / "data", "quickstart", ("grpo",))
    return Layout.at(tmp_path / "data")


def follow(layout, *trackers, **options):
    follower = Follower(layout, "quickstart", lambda line: None, trackers, **options)
    count = follower.pass_over()
    follower.close()
    return count, follower


def expected(layout):
    """{run: {name: {step: value}}} of the files."""
    found = {}
    for folder in layout.run_folders("quickstart"):
        own = found.setdefault(folder.name, {})
        for row in folder.read_metrics():
            for name in ("reward", "entropy"):
                own.setdefault(name, {})[row["step"]] = row[name]
        for benchmark in folder.benchmarks():
            for step in folder.eval_steps(benchmark):
                name = f"eval/{benchmark}/accuracy"
                own.setdefault(name, {})[step] = evaluated(folder, benchmark, step)[name]
    return found


def compare(layout, read):
    for run, names in expected(layout).items():
        for name, points in names.items():
            found = dict(each := list(read(run, name)))
            assert len(each) == len(found) and set(found) == set(points), (run, name, each)
            assert found == pytest.approx(points, rel=1e-6), (run, name)


@needs("tensorboard")
def test_tensorboard_reads_the_same_numbers_once(layout):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first, _ = follow(layout, TensorBoardTracker(type="tensorboard"))
    again, _ = follow(layout, TensorBoardTracker(type="tensorboard"))
    assert first > 0 == again

    def read(run, name):
        folder = tracking_folder(layout) / "tensorboard/quickstart" / run
        events = EventAccumulator(str(folder), {"tensors": 0})
        events.Reload()
        from tensorboard.util.tensor_util import make_ndarray

        return [(e.step, float(make_ndarray(e.tensor_proto))) for e in events.Tensors(name)]

    compare(layout, read)


def wandb_records(data):
    """What a file of wandb's holds: after 7 bytes, LevelDB's log format (blocks of 32 KiB; whole
    records, or their first, middle and last parts); wandb 0.31 has no reader in Python."""
    place, parts = 7, []
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


@needs("wandb")
def test_wandbs_offline_files_hold_the_same_numbers(layout, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    from wandb.proto import wandb_internal_pb2

    tracker = WandbTracker(type="wandb", mode="offline")
    whole = RunFolder.read_metrics
    with monkeypatch.context() as half:  # a session that saw the first half of the steps only
        half.setattr(RunFolder, "read_metrics", lambda self: whole(self)[:20])
        follow(layout, tracker)
    count, _ = follow(layout, tracker)
    assert count and follow(layout, tracker)[0] == 0
    folders = list((tracking_folder(layout) / "wandb/wandb").glob("offline-run-*"))
    assert len(folders) == len(layout.run_folders("quickstart")), (
        "one for a run, in several sessions"
    )
    found = {}
    for path in (tracking_folder(layout) / "wandb/wandb").glob("offline-run-*/*.wandb"):
        run = None
        for data in wandb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                run = record.run.display_name
            elif record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {(i.key or ".".join(i.nested_key)): json.loads(i.value_json) for i in items}
                for name, value in row.items():
                    found.setdefault(run, {}).setdefault(name, {})[row["step"]] = value
    compare(layout, lambda run, name: found[run][name].items())


@needs("mlflow")
@pytest.mark.system
def test_a_server_of_mlflow_has_the_same_numbers_also_those_it_missed(layout, tmp_path):
    from mlflow import MlflowClient

    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    tracker = MlflowTracker(type="mlflow", uri=uri)
    count, follower = follow(layout, tracker)
    assert count == 0 and follower.failures  # nobody listens yet
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
            "--backend-store-uri",
            f"sqlite:///{tmp_path}/mlflow.db",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (count := follow(layout, tracker)[0]):
            time.sleep(1)
        assert count and follow(layout, tracker)[0] == 0
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("quickstart")
        ids = {
            run.info.run_name: run.info.run_id
            for run in client.search_runs([experiment.experiment_id])
        }
        history = client.get_metric_history
        compare(layout, lambda run, name: [(m.step, m.value) for m in history(ids[run], name)])
    finally:
        server.terminate()
        server.wait()


def test_a_manifest_that_names_a_retired_tracker_stays_readable(layout):
    [folder, *_] = layout.run_folders("quickstart")
    manifest = folder.read_manifest()
    track = [{"type": "tensorboard"}, {"type": "trackio", "project": None}]
    write_manifest(folder, {**manifest, "spec": {**manifest["spec"], "track": track}})
    assert [tracker.type for tracker in spec_of(folder).track] == ["tensorboard"]


class Flaky:
    """A tracker that fails at first."""

    working, logged = False, []

    def __init__(self, tracker, run, folder):
        self.run = run.name

    def log(self, records):
        if not Flaky.working:
            raise ConnectionError("nobody there\nand more")
        Flaky.logged += [(self.run, record.key) for record in records]

    def close(self, finished):
        assert finished


def test_what_a_tracker_missed_is_sent_after_and_it_is_warned_once(layout, monkeypatch):
    monkeypatch.setattr(following, "open_sink", Flaky)
    monkeypatch.setattr(Flaky, "working", False)
    monkeypatch.setattr(Flaky, "logged", [])
    write_scores(run := layout.run_folders("quickstart")[0], {"aime": {3: 0.5}})  # without samples
    said = []
    trackers = (TensorBoardTracker(type="tensorboard"),)
    follower = Follower(layout, "quickstart", said.append, trackers, imported=True)
    assert follower.pass_over() == 0 == follower.pass_over()
    assert len(said) == 1 and "nobody there; will retry" in said[0]
    Flaky.working = True
    follower._failed.clear()
    count = follower.pass_over()
    assert count == len(Flaky.logged) == len(set(Flaky.logged)) > 0 and follower.failures == {}
    assert (run.name, "aime 3") in Flaky.logged
    follower.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("track: [tensorbord]", "track.0: unknown type 'tensorbord'; did you mean 'tensorboard'?"),
        ("track: [{type: mlflow}]", "track.0.uri: this field is required"),
        ("track: [{type: mlflow, uri: x}]", "track.0.uri"),
        ("track: [trackio]", "track.0: unknown type 'trackio'"),
        ("track: [{type: wandb, space: x/y}]", "track.0.space: unknown"),
        ("track: [{type: wandb, mode: on}]", "track.0.mode: must be 'offline' or 'online'"),
        ("track: [tensorboard, tensorboard]", "a tracker is named twice"),
    ],
)
def test_a_mistake_names_field_and_what_would_be_accepted(tmp_path, text, words):
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_run(tmp_path / "run.yaml")
    assert words.lower() in str(error.value).lower()


def test_tracking_changes_no_run():
    tracked = {"track": ["tensorboard", {"type": "wandb"}]}
    one, two = load_run(CHAIN), load_run(CHAIN, tracked)
    assert identity(one, "d") == identity(two, "d") and len(two.track) == 2


def test_mlflow_gets_names_that_it_takes():
    sink, sent = object.__new__(Mlflow), []
    sink._id, sink._metric = "run", lambda name, *_: name
    sink._client = SimpleNamespace(log_batch=lambda run, metrics: sent.extend(metrics))
    sink.log([Record("step 1", 1, 0.0, {"val-core/sums/acc/mean@4": 0.5, "a b": 1.0})])
    assert sent == ["val-core/sums/acc/mean_4", "a b"]
