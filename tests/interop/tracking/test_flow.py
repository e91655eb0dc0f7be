"""The follower as a child of a sweep: it sends what is there until the sweep is over, and what it
missed with the next."""

import importlib.util
import json

import pytest

from benchmarks.synthetic import write_sweep
from flows.machine.children import Children
from flows.sweep.conductor import TRACKING_LOG, tracking
from rpg.config.sweep_spec import load_sweep
from rpg.store import Layout
from rpg.store.run_writer import write_manifest

SWEEP = (
    "name: quickstart\nrun: {track: [tensorboard, {type: mlflow, uri: "
    "'http://127.0.0.1:9'}]}\naxes: {seed: [0]}\n"
)


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
def test_a_sweeps_numbers_are_sent_beside_it(tmp_path):
    write_sweep(tmp_path / "data", "quickstart", ("grpo",))
    layout = Layout.at(tmp_path / "data")
    (tmp_path / "q.yaml").write_text(SWEEP)
    sweep = load_sweep(tmp_path / "q.yaml", {}, lambda spec: "d")
    for folder in layout.run_folders("quickstart"):  # as these runs' manifests would have it
        manifest = folder.read_manifest()
        write_manifest(folder, {**manifest, "spec": sweep.runs[0].spec.model_dump(mode="json")})
    children = Children()
    with tracking(layout.sweep_folder("quickstart"), children):
        pass
    children.stop()
    state = layout.home / "tracking/state/quickstart"
    sent = [json.loads(path.read_text()) for path in state.glob("*.json")]
    assert len(sent) == len(layout.run_folders("quickstart"))
    assert all(len(one["tensorboard"]) > 10 and len(one) == 1 for one in sent)
    log = (layout.sweep_folder("quickstart") / TRACKING_LOG).read_text()
    assert "warning: " in log and "mlflow" in log and "the training does not wait for it" in log
