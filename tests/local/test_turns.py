"""Training with turns: a run killed within a conversation goes on to the same bits, and the game is
learnt."""

from pathlib import Path

import pytest

from rpg.backends.local.training_loop import train
from rpg.config.code import kept_sources
from rpg.store.run_writer import write_manifest
from rpg.tasks.environments.process import Environments
from tests.specs import load_run
from tests.tiny import Killed, make_run, numbers

GAME = Path(__file__).parents[2] / "configs/environments/guessing.yaml"
quiet = lambda line: None  # noqa: E731


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Both begin with the same warm start."""
    return tmp_path_factory.mktemp("home")


def run(home, name, **overrides):
    spec = load_run(GAME, overrides)
    folder = make_run(home, name, spec)
    write_manifest(folder, folder.read_manifest() | {"rewards": kept_sources(spec)})
    return folder


@pytest.mark.system
def test_killed_within_a_conversation_it_goes_on_to_the_same_bits(home, monkeypatch):
    """Our process, after the first answers of a step's conversations; and the environments'
    process, between any two."""
    short = {"training.steps": 2, "evaluation.every": 2}
    whole, parts, torn = (run(home, name, **short) for name in ("whole", "parts", "torn"))
    train(whole, home, quiet)
    asked = 0
    call = Environments.call

    def killed(self, row, text):
        nonlocal asked
        asked += 1
        if asked == 400:  # in step 2: step 1 has 256 calls or fewer
            raise Killed
        return call(self, row, text)

    monkeypatch.setattr(Environments, "call", killed)
    with pytest.raises(Killed):
        train(parts, home, quiet)
    assert [row["step"] for row in numbers(parts)] == [1]

    def restarted(self, row, text):
        if row == 7:
            self.close()
        return call(self, row, text)

    monkeypatch.setattr(Environments, "call", restarted)
    train(torn, home, quiet)
    monkeypatch.setattr(Environments, "call", call)
    train(parts, home, quiet)
    rows = numbers(whole)
    assert len(rows) == 2
    assert numbers(parts) == rows
    assert numbers(torn) == rows
    assert all(row["tool_calls"] > 1 and row["environment_tokens"] > 0.5 for row in rows)
    weights = [
        (folder.checkpoint(2) / "model.safetensors").read_bytes() for folder in (whole, parts, torn)
    ]
    assert weights[0] == weights[1] == weights[2]


@pytest.mark.system
def test_the_game_of_two_turns_is_learnt(home):
    """Without the answer to the first guess nobody wins more than one game in three."""
    folder = run(home, "game", **{"training.steps": 50, "evaluation.every": 50})
    train(folder, home, quiet)
    won = [row["accuracy"] for row in numbers(folder)]
    assert sum(won[:5]) / 5 < 0.4
    assert sum(won[-10:]) / 10 > 0.45
