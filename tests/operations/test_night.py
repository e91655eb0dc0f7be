"""A night as somebody lives it: red for a planted mistake with metric and commit, accepted,
green."""

import shlex
import shutil
import subprocess

import pytest

from tests.real_sweep import ROOT, rpg

pytestmark = pytest.mark.system
TINY = """\
name: tiny
run:
  task: {type: chain, tiers: {easy: 1}, train_problems: 80, benchmark_problems: 16}
  model:
    type: tiny
    hidden_size: 32
    intermediate_size: 64
    warm_start:
      target_accuracy: 0
      consolidation_steps: 0
      behaviour_steps: 120
      behaviour_learning_rate: 3.0e-3
  training:
    steps: 3
    prompts_per_step: 16
    mini_batch_prompts: 8
    optimizer: {type: adamw, learning_rate: 5.0e-4}
  rollout: {group_size: 8}
  evaluation: {every: 3, samples_per_problem: 4}
axes:
  seed: [0]
set: {algorithm: rpg-reinforce-urkl}
drill: {kill_after: 2}
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout of its own, whose code a night runs; `commit` records what was changed and returns
    its name."""
    tree = tmp_path / "tree"
    for part in ("rpg", "flows", "configs"):
        shutil.copytree(ROOT / part, tree / part)  # with what is compiled
    (tree / ".gitignore").write_text("__pycache__\n")
    git = ["git", "-C", str(tree), "-c", "user.name=anna", "-c", "user.email=anna@localhost"]

    def commit(message):
        for words in (["add", "-A"], ["commit", "-qm", message]):
            subprocess.run([*git, *words], check=True)
        found = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        )
        return found.stdout.strip()

    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree, commit


def test_a_night_goes_red_for_a_flipped_sign_and_green_once_it_is_accepted(
    tmp_path, checkout, prefect
):
    tree, commit = checkout
    before = commit("as it was")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "few.yaml").write_text(TINY)

    def nightly(*words):
        return rpg(tmp_path, "nightly", *words, PYTHONPATH=str(tree), **prefect)

    first = nightly("mine")
    assert first.returncode == 0 and "none yet" in first.stdout, first.stdout + first.stderr
    [failed] = (tmp_path / "data" / "runs").rglob("FAILED-1.json")
    assert "killed by signal 9" in failed.read_text()

    losses = tree / "rpg" / "losses" / "policy_loss.py"
    text = losses.read_text()
    losses.write_text(
        text.replace("apply(log_prob, sums[0], slope)", "apply(log_prob, sums[0], -slope)")
    )
    assert losses.read_text() != text
    after = commit("a sign is flipped")
    red = nightly("mine")
    assert red.returncode == 1, red.stdout + red.stderr
    for words in (
        f"results changed since commit {before[:8]}",
        f"to commit {after[:8]}",
        "1 of 1 runs differ, first at step 1, metric loss",
        f"commit {after[:7]} (anna: a sign is flipped) is the cause, found by running sweep few",
    ):
        assert words in red.stderr, red.stderr

    accepted = nightly(*shlex.split(red.stderr.rpartition(" nightly ")[2].splitlines()[0]))
    assert accepted.returncode == 0, accepted.stderr
    green = nightly("mine")
    assert green.returncode == 0 and "already done" in green.stdout, green.stdout + green.stderr
