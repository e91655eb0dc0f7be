"""Estimated gradients against those they should be: right where the truth is known, and on a
checkpoint."""

from typing import get_args

import numpy as np
import pytest

import rpg.cli.algorithms
from rpg.auditing.gradient_agreement import agreement
from rpg.backends.local.checkpoint_fidelity import _UNCLIPPED, Settings, _losses, fidelity
from rpg.backends.local.training_loop import train
from rpg.catalogue import AlgorithmError, algorithm, algorithms
from rpg.catalogue.components import Estimator
from rpg.catalogue.lookup import ESTIMATED, divergence_of
from rpg.models.model_loading import ModelError
from tests.tiny import make_run, make_spec

quiet = lambda line: None  # noqa: E731


def blocks(mean, count, noise, seed):
    return mean + noise * np.random.default_rng(seed).normal(size=(count, len(mean)))


@pytest.mark.parametrize(("cosine", "length"), [(1.0, 1.0), (0.6, 2.0), (-0.5, 0.5), (0.0, 1.0)])
def test_noise_does_not_hide_the_direction(cosine, length):
    """Blocks whose noise is ten times their mean: a plain cosine of averages would say 0.3 for
    1."""
    target = np.zeros(2000)
    other = np.zeros(2000)
    target[0] = 1.0
    other[1] = 1.0
    mean = length * (cosine * target + (1 - cosine**2) ** 0.5 * other)
    bias = ((length * cosine - 1) ** 2 + length**2 * (1 - cosine**2)) ** 0.5
    hits = 0
    estimates = []
    for seed in range(20):
        right = blocks(target, 60, 0.25, 1000 + seed)
        noisy = blocks(mean, 60, 0.25, seed)
        found = agreement(noisy, right, draws=200)
        estimates.append([found.cosine[0], found.bias[0]])
        hits += found.cosine[1] <= cosine <= found.cosine[2]
        a, b = noisy.mean(0), right.mean(0)
        assert abs(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) < 0.5
    assert np.median(estimates, 0)[0] == pytest.approx(cosine, abs=0.12)
    assert np.median(estimates, 0)[1] == pytest.approx(bias, abs=0.25)
    assert hits >= 15


def test_noise_is_the_deviation_of_a_block():
    """2,000 coordinates of deviation 0.25 around a target of length 1: 0.25 * 2000^(1/2) = 11.2."""
    target = np.zeros(2000)
    target[0] = 1.0
    right = blocks(target, 400, 0.01, seed=0)
    noise, low, high = agreement(blocks(target, 60, 0.25, seed=1), right, draws=200).noise
    assert noise == pytest.approx(11.2, rel=0.02)
    assert low < noise < high


def test_too_few_blocks_are_said():
    with pytest.raises(ValueError, match="1 blocks and 4 targets"):
        agreement(np.ones((1, 3)), np.ones((4, 3)))


def test_each_loss_is_held_against_its_own_objective():
    found = {name: divergence_of(algo) for name, algo in algorithms().items()}
    assert found["rpg-ufkl"] == found["rpg-fkl"] == "fkl"
    assert found["rpg-reinforce-urkl"] == "rkl"
    assert found["grpo"] == found["reinforce-pp"] == "rkl"
    assert found["dapo"] == "none"
    assert divergence_of(algorithm("rpg-urkl", beta=0.0)) == "none"


def test_an_estimator_of_an_unknown_divergence_is_refused(monkeypatch):
    assert set(ESTIMATED) == set(get_args(Estimator))
    monkeypatch.delitem(ESTIMATED, "k2")
    assert divergence_of(algorithm("grpo")) == "rkl"
    with pytest.raises(AlgorithmError, match="does not say what estimator k2 estimates"):
        divergence_of(algorithm("grpo", kl={"estimator": "k2"}))


def test_each_loss_with_a_limit_is_also_measured_without_it():
    made = _losses(Settings(), 0.3)
    limited = {name for name, algo in made.items() if algo.clip or algo.mask or algo.drift_penalty}
    assert limited == {name.removesuffix(_UNCLIPPED) for name in made if name.endswith(_UNCLIPPED)}


@pytest.fixture(scope="module")
def run(home):
    spec = make_spec(
        algorithm={"name": "rpg-urkl", "reference": "fixed"},
        training={"steps": 3, "keep_checkpoints": "all", "optimizer": {"learning_rate": 2e-3}},
        evaluation={"every": 1},
    )
    folder = make_run(home, "fidelity", spec)
    train(folder, home, quiet)
    return folder


def test_on_policy_exact_losses_point_where_they_should(home, run):
    names = ["rpg-urkl", "rpg-ufkl", "reinforce"]
    settings = Settings(staleness=0, beta=0.5, names=names, blocks=12, prompts=8)
    found = fidelity(run, 2, home, settings, say=quiet)
    rows = {row.name: row for row in found.rows}
    assert found.policy_step == found.sampler_step == 2
    assert abs(found.kl) < 1e-6
    assert found.responses == 12 * 8 * 8
    assert found.coordinates == found.parameters
    for name in ("rpg-urkl", "rpg-ufkl"):
        cosine, low, high = rows[name].unclipped.cosine
        assert low < 1.0 and high > 0.9 and cosine > 0.7, (name, cosine, low, high)
    assert rows["reinforce"].clipped is None
    assert rows["rpg-urkl"].clipped is not None


def test_losses_that_are_given_are_measured_under_their_own_names(home, run):
    losses = {
        "narrow": algorithm("rpg-urkl", clip={"low": 0.01, "high": 0.01}),
        "wide": algorithm("rpg-urkl", clip={"low": 0.9, "high": 9.0}),
    }
    settings = Settings(staleness=1, beta=0.5, losses=losses, blocks=4, prompts=4)
    narrow, wide = fidelity(run, 2, home, settings, say=quiet).rows
    assert (narrow.name, wide.name) == ("narrow", "wide")
    assert narrow.unclipped == wide.unclipped
    assert narrow.clipped != wide.clipped


def test_old_samples_are_those_of_the_checkpoint_and_the_policy_is_trained_on(home, run):
    settings = Settings(staleness=3, beta=2.0, names=["grpo"], blocks=6, prompts=8)
    found = fidelity(run, 0, home, settings, say=quiet)
    assert (found.sampler_step, found.policy_step) == (0, 3)
    assert found.kl > 1e-3
    run.checkpoint(0).rename(run.path / "elsewhere")  # the initial model can be made again
    assert fidelity(run, 0, home, settings, say=quiet) == found
    assert found.rows[0].clipped != found.rows[0].unclipped


def test_a_step_that_is_not_there_names_those_that_are(home, run):
    with pytest.raises(ModelError, match=r"no checkpoint of step 7; there are: .*1, 2, 3"):
        fidelity(run, 7, home, Settings(), say=quiet)


def test_a_log_that_is_no_terminal_hears_how_far_it_is(home, run, command_line, monkeypatch):
    monkeypatch.setattr(rpg.cli.algorithms, "_SAY_SECONDS", 0.0)
    where = ("--checkpoint", f"{run.path}/2", "--blocks", "4", "--prompts", "2", "--home", home)
    code, out, said = command_line("audit", "rpg-urkl", *where)
    assert not code and "rpg-urkl" in out and "block 4 of 4" in said, said
