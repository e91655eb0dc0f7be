"""`rpg render`: what would be started, without starting it."""

import json
import sys
from pathlib import Path

import pytest

from rpg.cli import main

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def rpg(capsys, monkeypatch, *words):
    """(exit code, output, errors) of the command line."""
    monkeypatch.setattr(sys, "argv", ["rpg", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


def test_a_run_file_is_rendered(capsys, monkeypatch, tmp_path):
    code, out, _ = rpg(capsys, monkeypatch, "render", CONFIGS / "runs/chain.yaml", "--home", tmp_path,
                       "--set", "backend.type=verl")  # fmt: skip
    assert code == 0
    assert f"data.train_files={tmp_path}/cache/data/" in out and "trainer.total_training_steps=40" in out
    assert "python -m rpg.backends.verl.main" in out and '"VERL_PLATFORM": "cpu"' in out
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_json_holds_the_same(capsys, monkeypatch, tmp_path):
    words = ("render", CONFIGS / "sweeps/verl-ci.yaml", "--home", tmp_path, "--run", "rpg-ufkl-backend-verl")
    code, out, _ = rpg(capsys, monkeypatch, *words, "--json")
    value = json.loads(out)
    assert code == 0 and value["run"].startswith("rpg-ufkl-backend-verl")
    assert value["overrides"]["trainer.experiment_name"] == value["run"]
    assert json.loads(value["overrides"]["rpg.algorithm"])["name"] == "rpg-ufkl"
    plain = value["command"].replace("'", "")
    assert all(argument in plain for argument in value["arguments"] if "'" not in argument)
    assert value["runtime_env"] == {"env_vars": value["environment"]}


MISTAKES = [
    (
        ("runs/chain.yaml",),
        "backend.type: 'local'; only runs on verl can be rendered; try: --set backend.type=verl",
    ),
    (("sweeps/verl-ci.yaml",), "has 9 runs; choose one with --run. There are: grpo-backend-local"),
    (("sweeps/verl-ci.yaml", "--run", "rpg-ufkl"), "--run 'rpg-ufkl' matches 2 of its runs"),
    (("sweeps/verl-ci.yaml", "--run", "dapo"), "--run 'dapo' matches none of its runs"),
    (("runs/chain.yaml", "--set", "backend.type=verl", "--set", "backend.device=gpu"), "backend.device"),
    (("runs/chain.yaml", "--set", "backend.type=verll"), "did you mean 'verl'?"),
]


@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_mistakes_say_what_would_be_accepted(capsys, monkeypatch, words, expected):
    code, _, errors = rpg(capsys, monkeypatch, "render", CONFIGS / words[0], *words[1:])
    assert code == 2 and expected in errors.replace("\n", " ") and "Traceback" not in errors
