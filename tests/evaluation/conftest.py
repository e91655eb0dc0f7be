import json

import pytest
import torch

from rpg.backends.local.checkpoints import Checkpoints
from rpg.models.initial_policy import prepare_model
from rpg.models.model_loading import load_pretrained
from rpg.models.policy import Policy
from rpg.store.layout import Layout
from rpg.tasks import load_problems
from tests.conftest import common
from tests.evaluation.small_model import SPEC


@pytest.fixture(scope="session")
def problems():
    return load_problems(SPEC.task).benchmarks["chain-easy"][:24]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Two checkpoints of one run, as the trainer writes them: a model that knows some answers, and
    a changed one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("home")
    shared = common(tmp_path_factory, "evaluated")  # one warm start for all workers
    model, tokenizer = load_pretrained(prepare_model(SPEC, shared, lambda line: None))
    folder = Layout.at(home).run("sweep", "run")
    folder.path.mkdir(parents=True)
    keeper = Checkpoints(folder, [0, 1])
    for step in (0, 1):
        tensors = {"optimizer": {"moment": torch.zeros(1)}}
        keeper.save(step, Policy(model, tokenizer), {"optimizer_step": step}, tensors)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(torch.linspace(0.9, 1.2, parameter.shape[-1]))
    torch.set_num_threads(threads)
    return [folder.checkpoint(0), folder.checkpoint(1)]


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    """Samples of one test are none of another's."""
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "rpg-data"))


@pytest.fixture
def own_benchmark(tmp_path, problems):
    """A benchmark of one's own: a YAML file and a JSON-lines file."""
    rows = [json.dumps({"text": p.prompt, "right": p.answer}) for p in problems]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    path = tmp_path / "mine.yaml"
    path.write_text(
        "source: {path: mine.jsonl}\n"
        "columns: {problem: [text], answer: [right]}\n"
        "prompt: {version: 1, template: '{prompt}'}\n"
        "verifier: {type: marker, marker: '#'}\n"
        "samples_per_problem: 4\n"
    )
    return path
