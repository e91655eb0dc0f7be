"""bfloat16 weights beside float32 masters: as on a GPU (`RunSpec.half_weights`), computed here on a
CPU."""

import pytest
import torch
from torch import nn

from rpg.backends.local.optimizers import Optimizer
from rpg.config.load import resolve
from rpg.config.training import AdamW, ScheduleFreeAdamW
from tests.tiny import make_spec, make_trainer

OPTIMIZERS = {
    "adamw": {"learning_rate": 3e-6, "weight_decay": 0.0},
    "schedule_free": {"type": "schedule_free", "learning_rate": 3e-6, "weight_decay": 0.0},
}


def halves(number=40):
    """A linear map whose weights are between 0.25 and 1: neighbours in bfloat16 are 0.002 apart, or
    more."""
    torch.manual_seed(0)
    made = nn.Linear(number, 1, bias=False)
    made.weight.data = torch.rand(1, number).mul_(0.75).add_(0.25).bfloat16().float()
    return made


def updated(model, settings, steps, **how):
    """The optimizer after `steps` steps with the same gradients, all of which bfloat16 can hold."""
    optimizer = Optimizer(model, settings, **how)
    inputs = torch.randn(steps, model.in_features, generator=torch.Generator().manual_seed(1))
    for step, row in enumerate(inputs.bfloat16().abs(), 1):
        optimizer.update_mode()
        model(row.to(model.weight.dtype)).sum().backward()
        optimizer.step(step, None)
        optimizer.zero_grad()
    optimizer.rollout_mode()
    return optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_that_bfloat16_would_swallow_are_not_lost(name):
    settings = make_spec(training={"optimizer": OPTIMIZERS[name]}).training.optimizer
    steps = 2000
    full = halves()
    half = halves()
    plain = halves().bfloat16()
    start = full.weight.detach().clone()
    updated(full, settings, steps)
    optimizer = updated(half, settings, steps, half_weights=True)
    updated(plain, settings, steps)
    assert plain.weight.float().equal(start)  # 2,000 updates, and nothing of them is left
    assert half.weight.dtype == torch.bfloat16
    assert optimizer.weights()["weight"].equal(full.weight)
    assert half.weight.equal(full.weight.bfloat16())
    assert float((half.weight != start).float().mean()) > 0.9


def test_micro_batches_are_added_up_in_float32():
    model = halves(4)
    optimizer = Optimizer(model, make_spec().training.optimizer, half_weights=True)
    rows = [1.0, *[2.0**-9] * 256]  # each of the small ones is less than bfloat16 resolves beside 1
    for value in rows:
        model(torch.full((4,), value, dtype=torch.bfloat16)).sum().backward()
        assert model.weight.grad is None
    assert optimizer.masters[0].grad.tolist() == [[sum(rows)] * 4]
    assert optimizer.step(1, None)[0] == pytest.approx(2 * sum(rows))


def trainer_of(home, half, **changes):
    spec = make_spec(training={"mini_batch_prompts": 8, "micro_batch_rows": 16}, **changes)
    return make_trainer(spec, home, half=half)


def test_it_trains_as_float32_does_to_rounding(home):
    """Three steps on the same responses."""
    full, half = (trainer_of(home, half, algorithm="grpo-corrected") for half in (False, True))
    before = {name: value.clone() for name, value in full.optimizer.weights().items()}
    rolled = {}
    roll = full.roller.roll
    full.roller.roll = lambda policy, step: rolled.setdefault(step, roll(policy, step))
    half.roller.roll = lambda policy, step: rolled[step]
    rows = [(full.step(step), half.step(step)) for step in (1, 2, 3)]
    for whole, rounded in rows:
        assert rounded["grad_norm"] == pytest.approx(whole["grad_norm"], rel=0.05)
        assert rounded["kl_policy_to_ref"] == pytest.approx(
            whole["kl_policy_to_ref"], rel=0.1, abs=1e-4
        )
    moved = [
        torch.cat(
            [(value - before[name]).flatten() for name, value in one.optimizer.weights().items()]
        )
        for one in (full, half)
    ]
    assert torch.cosine_similarity(*moved, dim=0) > 0.9
    assert moved[1].norm() == pytest.approx(float(moved[0].norm()), rel=0.1)
    weights = dict(half.policy.model.named_parameters())
    assert all(
        weights[name].equal(value.bfloat16()) for name, value in half.optimizer.weights().items()
    )
    assert any(
        not weights[name].float().equal(value) for name, value in half.optimizer.weights().items()
    )


def test_it_samples_and_trains_from_its_own_samples(home):
    trainer = trainer_of(
        home, True, algorithm={"name": "grpo", "beta": 0.1}, rollout={"temperature": 0.8}
    )
    start = {name: value.clone() for name, value in trainer.policy.model.named_parameters()}
    metrics = trainer.step(1)
    reference = dict(trainer.reference.policy.model.named_parameters())
    assert {value.dtype for value in reference.values()} == {torch.bfloat16}
    assert all(value.equal(start[name]) for name, value in reference.items())
    # Policy, old policy and reference have the same weights here, but each is scored in passes of
    # its own, which round in other places on other processors. Rounding to bfloat16 moves a number
    # by at most u = eps/2 of it: two log-probabilities of at most `largest` differ by two roundings
    # each, and k3 of such a difference d is d²/2 to third order.
    largest = 8.0  # nats; a vocabulary of 40 characters and temperature 0.8
    difference = 4 * largest * torch.finfo(torch.bfloat16).eps / 2
    assert abs(metrics["ratio_max"] - 1) <= difference
    assert metrics["kl_policy_to_ref"] == metrics["kl_policy_to_old"] <= difference**2 / 2


def test_the_exact_gradient_s_cosine_is_that_of_the_masters_gradient(home):
    changes = {"training": {"fidelity_every": 1, "mini_batch_prompts": 8}, "algorithm": "reinforce"}
    rows = []
    for half in (False, True):
        trainer = trainer_of(home, half)
        trainer.spec = make_spec(**changes)
        rows.append(trainer.step(1))
    assert rows[1]["gradient_cosine"] == pytest.approx(rows[0]["gradient_cosine"], abs=0.05)


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("cuda", "bfloat16", True),
        ("cuda", "float32", False),
        ("cpu", "bfloat16", False),
    ],
)
def test_which_runs_have_masters(device, dtype, expected):
    model = {"type": "pretrained", "path": "some/model", "dtype": dtype}
    assert resolve({"model": model, "backend": {"device": device}}, "x").half_weights() is expected


KINDS = {"adamw": AdamW, "schedule_free": ScheduleFreeAdamW}


@pytest.mark.parametrize("kind", KINDS)
def test_norms_and_biases_decay_or_do_not(kind):
    """Without a gradient only decay moves a weight."""
    for decays in (True, False):
        layer = nn.Linear(3, 2)
        before = [p.detach().clone() for p in layer.parameters()]
        settings = KINDS[kind](
            type=kind, learning_rate=0.1, weight_decay=0.5, decay_vectors=decays, warmup_steps=0
        )
        optimizer = Optimizer(layer, settings)
        optimizer.update_mode()
        optimizer.step(1, None)
        moved = [not now.equal(old) for now, old in zip(layer.parameters(), before, strict=True)]
        assert moved == [True, decays]
        again = Optimizer(layer, settings)
        again.load(optimizer.tensors(), optimizer.numbers())
        groups = again._inner.param_groups
        assert [g["weight_decay"] for g in groups] == ([0.5] if decays else [0.5, 0.0])


@pytest.mark.parametrize("decays", [True, False])
def test_updates_are_those_of_torch_with_the_same_groups(decays):
    """AdamW with one group, or with norms and biases in a group that does not decay."""
    torch.manual_seed(3)
    layer = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    peer = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    peer.load_state_dict(layer.state_dict())
    settings = AdamW(
        type="adamw", learning_rate=0.05, weight_decay=0.3, decay_vectors=decays, warmup_steps=0
    )
    optimizer = Optimizer(layer, settings)
    vectors = [peer[0].bias, peer[1].weight, peer[1].bias]
    groups = [
        {"params": [peer[0].weight], "weight_decay": 0.3},
        {"params": vectors, "weight_decay": 0.3 if decays else 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=0.05, betas=settings.betas)
    for step in (1, 2, 3):
        inputs = torch.randn(5, 4)
        targets = torch.randn(5, 3)
        for model in (layer, peer):
            model.zero_grad()
            (model(inputs) - targets).square().sum().backward()
        optimizer.step(step, None)
        theirs.step()
    for ours, other in zip(layer.parameters(), peer.parameters(), strict=True):
        assert torch.allclose(ours, other, rtol=1e-5, atol=1e-6)
