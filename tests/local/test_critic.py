"""A critic: verl's own functions on given numbers, values of whole responses, kills, warm-up, and
what it is refused for."""

import pytest
import torch
from pydantic import ValidationError
from transformers import GPT2LMHeadModel

import rpg
from rpg.backends.local.critic import Critic, means
from rpg.backends.progress_reporter import step_line
from rpg.config.run_spec import RunSpec
from rpg.losses.advantages import value_loss, value_targets
from rpg.models.micro_batches import Limits
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.planning.space import memory
from tests.tiny import make_spec, make_trainer, numbers, whole_and_resumed

GAE = {"name": "ppo", "advantage": {"type": "gae", "lam": 0.9}}


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7)])
def test_advantages_targets_and_loss_are_verls(gamma, lam):
    core = pytest.importorskip(
        "verl.trainer.ppo.core_algos", reason="compared with verl's own functions"
    )
    g = torch.Generator().manual_seed(0)
    values, now, rewards = torch.randn(3, 5, 6, generator=g)
    mask = (torch.arange(6) < torch.tensor([[6], [4], [1], [3], [5]])).float()
    values = values * mask
    ends = rewards[:, 0]
    at_end = torch.zeros(5, 6).scatter(1, mask.sum(-1, keepdim=True).long() - 1, ends[:, None])
    theirs, returns = core.compute_gae_advantage_return(at_end, values, mask, gamma, lam)
    kind = {"type": "gae", "gamma": gamma, "lam": lam, "std": True}
    algo = rpg.algorithm("ppo", advantage=kind, kl="none")
    inputs = {"rewards": ends, "group": torch.arange(5), "response_mask": mask, "values": values}
    torch.testing.assert_close(rpg.advantages(algo, **inputs), theirs * mask, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(value_targets(algo, **inputs), returns * mask, rtol=1e-5, atol=1e-6)
    apart = rpg.algorithm("ppo", advantage=kind | {"critic_lam": 1.0}, kl="none")
    monte_carlo = core.compute_gae_advantage_return(at_end, values, mask, gamma, 1.0)[1]
    torch.testing.assert_close(
        value_targets(apart, **inputs), monte_carlo * mask, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(rpg.advantages(apart, **inputs), rpg.advantages(algo, **inputs))
    for clip in (0.2, None):
        given = {"old_values": values, "targets": returns, "response_mask": mask, "clip": clip}
        wide = 1e9 if clip is None else clip
        meant = core.compute_value_loss(now, returns, values, mask, wide, "token-mean")[0]
        torch.testing.assert_close(value_loss(now, **given), meant)


def test_the_critic_learns_the_returns_of_a_batch(home):
    """And its values are those of transformers' last hidden states, each response by itself."""
    spec = make_spec(algorithm=GAE, training={"optimizer": {"learning_rate": 1e-2}})
    trainer = make_trainer(spec, home)
    critic = trainer.critic
    limits = Limits(rows=5, tokens=200, tokens_of_long=200)
    batch = trainer.roller.roll(trainer.policy, 1).kept.samples.batch
    targets = batch.mask * batch.lengths[:, None] / 10
    first = critic.score(batch, limits)
    assert not first.any(), "a head of zeros"
    update = lambda: critic.update(batch, critic.score(batch, limits), targets, limits)  # noqa: E731
    losses = [update()["value_loss"] for _ in range(20)]
    assert losses[-1] < 0.2 * losses[0], losses
    values = critic.score(batch, limits)
    for row in (0, 9):
        prompt = batch.prompts[int(batch.prompt_of[row])]
        length = int(batch.lengths[row])
        ids = torch.tensor([prompt + batch.tokens[row, :length].tolist()])
        states = critic.policy.model.model(ids).last_hidden_state[0, len(prompt) - 1 : -1]
        torch.testing.assert_close(
            values[row, :length], critic.head(states)[:, 0], rtol=1e-4, atol=1e-4
        )


def test_with_bfloat16_weights_it_has_masters_and_targets_of_one_value_explain_nothing(
    home, monkeypatch
):
    """As on a GPU, where the trainer has rounded the policy before the critic copies it."""
    trainer = make_trainer(make_spec(algorithm=GAE), home, half=True)
    monkeypatch.setattr(RunSpec, "half_weights", lambda spec: True)
    critic = trainer.critic = Critic(make_spec(algorithm=GAE), trainer.policy)
    trainer.step(1)
    batch = trainer.roller.roll(trainer.policy, 2).kept.samples.batch
    metrics = critic.update(batch, batch.mask * 0.0, batch.mask * 0.5, Limits(99, 9999, 9999))
    assert means([metrics, {"value_loss": 0.0, "value_explained": 1.0}])["value_explained"] == 1


def test_a_killed_training_with_a_critic_goes_on_to_the_same_bits(home):
    algorithm = GAE | {"advantage": {"type": "gae", "lam": 0.9, "critic_warmup": 1}}
    training = {"steps": 4, "optimizer": {"schedule": "linear"}}
    spec = make_spec(algorithm=algorithm, training=training, evaluation={"every": 4})
    whole, _ = whole_and_resumed(home, "critic", spec, 2)
    rows = numbers(whole)
    assert [row["optimizer_step"] for row in rows] == [0, 2, 4, 6], (
        "the first step trains the critic only"
    )
    assert all("value_loss" in row for row in rows)
    assert "grad_norm" not in rows[0]
    assert "critic only" in step_line(1, 4, whole.read_metrics()[0])
    assert rows[-1]["learning_rate"] == pytest.approx(spec.training.optimizer.learning_rate / 6)


def test_what_is_refused_and_what_it_costs(home):
    with pytest.raises(ValidationError, match=r"advantage gae: the critic is a second model"):
        make_spec(algorithm=GAE, model={"lora": {}})
    trainer = make_trainer(make_spec(), home)
    config = {"n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 40}
    other = Policy(
        GPT2LMHeadModel(GPT2LMHeadModel.config_class(**config)), trainer.policy.tokenizer
    )
    with pytest.raises(ModelError, match=r"Llama, Mistral, Qwen2 or Qwen3, not GPT2LMHeadModel"):
        Critic(make_spec(algorithm=GAE), other)
    without = memory(make_spec(algorithm="ppo")).fixed
    parameters = sum(p.numel() for p in trainer.policy.model.parameters())
    assert memory(make_spec(algorithm=GAE)).fixed - without == pytest.approx(
        16 * parameters, rel=0.02
    )
