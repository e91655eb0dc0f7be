"""`rpg render`: what would be started, without starting it."""

import json
from pathlib import Path

import pytest

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_a_run_file_is_rendered(command_line, tmp_path):
    words = (
        "render",
        CONFIGS / "runs/chain.yaml",
        "--home",
        tmp_path,
        "--set",
        "backend.type=verl",
    )
    code, out, _ = command_line(*words)
    assert code == 0
    assert f"data.train_files={tmp_path}/cache/data/" in out
    assert "trainer.total_training_steps=40" in out
    assert "python -m rpg.backends.verl.main" in out
    assert '"VERL_PLATFORM": "cpu"' in out
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_json_holds_the_same(command_line, tmp_path):
    words = (
        "render",
        CONFIGS / "sweeps/verl-ci.yaml",
        "--home",
        tmp_path,
        "--run",
        "rpg-ufkl-backend-verl",
    )
    code, out, _ = command_line(*words, "--json")
    value = json.loads(out)
    assert code == 0
    assert value["run"].startswith("rpg-ufkl-backend-verl")
    assert value["overrides"]["trainer.experiment_name"] == value["run"]
    assert json.loads(value["overrides"]["rpg.algorithm"])["name"] == "rpg-ufkl"
    plain = value["command"].replace("'", "")
    assert all(argument in plain for argument in value["arguments"] if "'" not in argument)
    assert value["runtime_env"] == {"env_vars": value["environment"]}


MISTAKES = [
    (("runs/chain.yaml",), "only runs on verl can be rendered; try: --set backend.type=verl"),
    (("sweeps/verl-ci.yaml",), "has 9 runs; choose one with --run. There are: grpo-backend-local"),
    (("sweeps/verl-ci.yaml", "--run", "rpg-ufkl"), "--run 'rpg-ufkl' matches 2 of its runs"),
    (("sweeps/verl-ci.yaml", "--run", "dapo"), "--run 'dapo' matches none of its runs. There"),
    (
        ("runs/chain.yaml", "--slurm", "--kuberay"),
        "--slurm, --kuberay and --skypilot: give one of them",
    ),
]


@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_mistakes_say_what_would_be_accepted(command_line, words, expected):
    code, _, errors = command_line("render", CONFIGS / words[0], *words[1:])
    assert code == 2
    assert expected in errors
    assert "Traceback" not in errors
