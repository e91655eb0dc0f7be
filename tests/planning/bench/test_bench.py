"""`rpg bench`: phases beside what the machine could do, and a peer at its best settings for the
same memory."""

import json
import os
import sys

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from rpg.cli import load
from rpg.config.run_spec import RunSpec
from rpg.planning.bench import BenchError, bench, limits, trials

SPEC = RunSpec.model_validate(
    {
        "algorithm": {"name": "dapo", "dynamic_sampling": False, "overlong": None},
        "model": {"type": "tiny", "warm_start": None},
        "training": {"prompts_per_step": 2, "mini_batch_prompts": 2, "epochs": 2},
        "rollout": {"group_size": 8, "max_response_tokens": 6},
    }
)


@pytest.fixture
def peer(tmp_path):
    """A stand-in for a Python with TRL, which takes settings and answers with numbers as TRL's step
    does; a real one takes half a minute."""

    def make(peaks):
        path = tmp_path / "peer"
        path.write_text(
            f"#!{sys.executable}\nimport json, sys\ngiven = json.load(sys.stdin)\nrows = "
            "given['rows']\n"
            f"assert given['batch'] == 16 and len(given['prompts']) > 16 and given['model']\n"
            "assert given['config']['num_iterations'] == 2\n"
            f"print(json.dumps({{'step': 10.0 / rows, 'sample': 1.0, 'peak': {peaks}[rows], "
            f"'rows': rows}}))\n"
        )
        os.chmod(path, 0o755)
        return str(path)

    return make


@pytest.mark.system
def test_a_step_is_measured_by_phase_kept_and_listed(tmp_path, peer):
    # Peak memory: far below ours up to 4 rows, above it from 8.
    python = peer({1: 0.01, 2: 0.02, 4: 0.03, 8: 99.0, 16: 99.0})
    said = []
    record = bench(SPEC, tmp_path, steps=1, peer=python, rows=[], say=said.append)
    seconds = record["seconds"]
    bare = record["limits"]
    assert {"sample", "grade", "log-probabilities", "update", "checkpoint", "evaluate"} <= set(
        seconds
    )
    assert (
        sum(seconds[name] for name in ("sample", "grade", "log-probabilities", "update"))
        <= record["step"]
    )
    assert all(bare[name] > 0 and seconds[name] > 0 for name in ("sample", "update", "evaluate"))
    assert [trial["rows"] for trial in record["trials"]] == [1, 2, 4]
    assert record["peer"]["rows"] == 4
    [file] = (tmp_path / "bench").glob("*.json")
    assert json.loads(file.read_text())["step"] == record["step"]
    listed = CliRunner().invoke(load(), ["bench", "--list", "--home", str(tmp_path)])
    assert listed.exit_code == 0
    assert "2 x 8 x 6" in listed.stdout
    assert "tiny" in listed.stdout


def test_a_setting_is_given_as_to_other_commands(tmp_path, monkeypatch, command_line):
    monkeypatch.setattr(
        "rpg.planning.bench.bench", lambda spec, *_, **__: sys.exit(spec.backend.threads)
    )
    assert command_line("bench", "--set", "backend.threads=7", "--home", tmp_path)[0] == 7


WORK = {"model": "folder", "prompts": ["text"] * 17}


def test_a_peer_that_always_needs_more_memory_gets_the_sizes_near_its_least(peer):
    python = peer({1: 98.0, 2: 99.0, 4: 200.0, 8: 300.0, 16: 400.0})
    assert [trial["rows"] for trial in trials(SPEC, WORK, 0.5, python, [], 1, print)] == [1, 2]
    assert [trial["rows"] for trial in trials(SPEC, WORK, 0.5, python, [16, 4], 1, print)] == [
        16,
        4,
    ]


@pytest.mark.parametrize(
    ("python", "rows", "why"),
    [
        ("/no/such/python", [], "cannot be started"),
        (sys.executable, [3], "--rows 3: expected a divisor of the 16"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(python, rows, why):
    with pytest.raises(BenchError, match=why):
        list(trials(SPEC, WORK, 1.0, python, rows, 1, print))


def test_a_model_s_products_are_counted_once_for_each_weight(monkeypatch):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = nn.Linear(64, 256)
            self.head = nn.Linear(256, 4096, bias=False)

        def get_output_embeddings(self):
            return self.head

    layers, head = limits.weights(Two())
    assert [tuple(w.shape) for w in layers] == [(256, 64)]
    assert head.shape == (4096, 256)
    assert all(rate is None or rate > 0 for rate in limits.rates(8, 64, 64).values())
    assert limits.bandwidth() > 0
    monkeypatch.setattr(limits, "seconds", lambda call, least=0.0: (call(), 1.0)[1])
    scoring = limits.Pass(256, torch.float32)
    updating = limits.Pass(256, torch.bfloat16, backward=True)
    assert scoring.seconds(Two(), 256, 256) == 2
    assert updating.seconds(Two(), 512, 256) == 3 * (2 + 1), "three products instead of one"
    assert limits.decode_seconds(Two(), 8, torch.bfloat16) == 1
