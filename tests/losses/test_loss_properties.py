"""What must not matter does not matter: padding, order, sharding (hypothesis)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rpg
from rpg.losses.aggregation import Counts

NAMES = [name for name, algo in rpg.algorithms().items() if not algo.reads_distributions]
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@st.composite
def cases(draw):
    name = draw(st.sampled_from(NAMES))
    overrides = {"loss_agg_mode": draw(st.sampled_from(MODES))}
    if name.startswith("rpg"):
        overrides["ratio"] = draw(st.sampled_from(["token", "prefix", "sequence"]))
    rows = draw(st.integers(1, 7))
    tokens = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**20))
    g = torch.Generator().manual_seed(seed)
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]))

    def near(x):
        return x + scale * torch.randn(rows, tokens, generator=g, dtype=torch.float64)

    old = -torch.rand(rows, tokens, generator=g, dtype=torch.float64)
    data = {
        "log_prob": near(old),
        "old_log_prob": old,
        "advantages": torch.randn(rows, 1, generator=g, dtype=torch.float64).repeat(1, tokens),
        "response_mask": torch.rand(rows, tokens, generator=g) < 0.7,
    }
    algo = rpg.algorithm(name, **overrides)
    if draw(st.booleans()) or algo.needs_reference:
        data["ref_log_prob"] = near(old)
    return algo, data


def run(algo, data, **kwargs):
    log_prob = data["log_prob"].clone().requires_grad_()
    out = rpg.policy_loss(algo, **{**data, "log_prob": log_prob}, **kwargs)
    out.loss.backward()
    return out, log_prob.grad


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.component
@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(1, 4), st.booleans())
def test_padding_changes_neither_loss_nor_gradient(case, width, left):
    algo, data = case
    rows, tokens = data["log_prob"].shape
    counts = Counts.of(data["response_mask"], horizon=10)
    filler = torch.full((rows, width), float("nan"), dtype=torch.float64)
    padded = {}
    for name, value in data.items():
        fill = torch.zeros(rows, width, dtype=torch.bool) if name == "response_mask" else filler
        padded[name] = torch.cat([fill, value] if left else [value, fill], 1)
    a, grad_a = run(algo, data, counts=counts)
    b, grad_b = run(algo, padded, counts=counts)
    same(a.loss, b.loss)
    same(grad_a, grad_b[:, width:] if left else grad_b[:, :tokens])
    same(torch.tensor(list(a.metrics.values())), torch.tensor(list(b.metrics.values())))


@pytest.mark.component
@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(1, 4))
def test_sharding_into_micro_batches(case, size):
    """Rows move to other places, so their order does not matter either."""
    algo, data = case
    whole, grad = run(algo, data)
    counts = Counts.of(data["response_mask"])
    parts = [
        run(algo, {name: v[i : i + size] for name, v in data.items()}, counts=counts)
        for i in range(0, len(data["log_prob"]), size)
    ]
    same(whole.loss, sum(out.loss for out, _ in parts))
    same(grad, torch.cat([g for _, g in parts]))
    assert sum(out.weight for out, _ in parts) == whole.weight == counts.tokens
    kl = sum(out.metrics["kl_policy_to_ref"] * out.weight for out, _ in parts)
    same(torch.tensor(kl), torch.tensor(whole.metrics["kl_policy_to_ref"] * whole.weight))


@pytest.mark.component
@settings(max_examples=60, deadline=None)
@given(cases())
def test_piecewise_passes_equal_one_pass(case):
    """The CPU path works through cache-sized pieces; their size must not be visible."""
    algo, data = case
    a, grad_a = run(algo, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rpg.losses.policy_loss._CHUNK", 1)
        b, grad_b = run(algo, data)
    same(a.loss, b.loss)
    same(grad_a, grad_b)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(1, 9),
    st.integers(0, 2**20),
    st.randoms(use_true_random=False),
)
def test_advantages_do_not_depend_on_order_or_padding(name, rows, seed, random):
    g = torch.Generator().manual_seed(seed)
    data = {
        "rewards": torch.randint(0, 3, (rows,), generator=g).double(),
        "group": torch.randint(0, 4, (rows,), generator=g),
        "response_mask": torch.rand(rows, 3, generator=g) < 0.8,
        "old_log_prob": -torch.rand(rows, 3, generator=g),
        "ref_log_prob": -torch.rand(rows, 3, generator=g),
    }
    algo = rpg.algorithm(name)
    plain = rpg.advantages(algo, **data)
    order = list(range(rows))
    random.shuffle(order)
    same(plain[order], rpg.advantages(algo, **{key: value[order] for key, value in data.items()}))
    wide = {
        key: torch.nn.functional.pad(
            value, (0, 2), value=0.0 if key == "response_mask" else float("nan")
        )
        if value.dim() == 2
        else value
        for key, value in data.items()
    }
    same(plain, rpg.advantages(algo, **wide)[:, :3])
    assert (plain[~data["response_mask"]] == 0).all()
