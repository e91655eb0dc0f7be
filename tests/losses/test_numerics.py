"""Extreme, empty and hostile inputs: a defined result or a clear error, never a silent NaN."""

import warnings

import pytest
import torch

import rpg
from rpg.losses import policy_loss
from rpg.losses.policy_loss import rollout_weights, token_terms

NAN = float("nan")
INF = float("inf")
SAMPLED = [name for name, algo in rpg.algorithms().items() if not algo.reads_distributions]
LOSSES = [*SAMPLED, "rpg-urkl prefix", "rpg-reinforce-rkl sequence", "rpg-fkl sequence"]


def make(label):
    name, _, ratio = label.partition(" ")
    return rpg.algorithm(name, ratio=ratio) if ratio else rpg.algorithm(name)


def tensors(rows=3, tokens=4, dtype=torch.float32, **changes):
    g = torch.Generator().manual_seed(0)
    data = {
        "log_prob": -torch.rand(rows, tokens, generator=g),
        "old_log_prob": -torch.rand(rows, tokens, generator=g),
        "ref_log_prob": -torch.rand(rows, tokens, generator=g),
        "advantages": torch.randn(rows, 1, generator=g).expand(rows, tokens).clone(),
        "response_mask": torch.ones(rows, tokens),
    }
    data = {
        name: value.to(dtype) if name != "response_mask" else value for name, value in data.items()
    }
    return data | changes


def run(label, data):
    data = dict(data)
    data["log_prob"] = data["log_prob"].detach().clone().requires_grad_()
    out = rpg.policy_loss(make(label), **data)
    out.loss.backward()
    return out, data["log_prob"].grad


@pytest.mark.parametrize("label", LOSSES)
def test_masked_garbage_never_leaks(label):
    clean = tensors()
    clean["response_mask"][:, 2:] = 0
    dirty = {name: value.clone() for name, value in clean.items()}
    for i, name in enumerate(("log_prob", "old_log_prob", "ref_log_prob", "advantages")):
        dirty[name][:, 2] = (NAN, INF, -INF, 1e38)[i]
        dirty[name][:, 3] = (-INF, NAN, INF, NAN)[i]
    weights = torch.ones(3, 4)
    weights[:, 2:] = NAN
    a, grad_a = run(label, clean)
    b, grad_b = run(label, dirty | {"rollout_weights": weights})
    assert a.loss == b.loss
    assert a.metrics == b.metrics
    assert torch.equal(grad_a, grad_b)
    assert (grad_b[:, 2:] == 0).all()


@pytest.mark.parametrize("shift", [-50.0, 50.0, -INF])
@pytest.mark.parametrize("which", ["log_prob", "old_log_prob", "ref_log_prob"])
@pytest.mark.parametrize("label", LOSSES)
def test_extreme_log_ratios_stay_finite(label, which, shift):
    data = tensors()
    data[which] = data[which] + shift
    out, grad = run(label, data)
    assert out.loss.isfinite()
    assert grad.isfinite().all()
    assert all(abs(value) < INF for value in out.metrics.values())
    assert min(value for name, value in out.metrics.items() if name.startswith("kl_")) >= 0


def test_clamped_ratio_by_hand():
    one = torch.zeros(1, 1)
    data = {
        "log_prob": one + 50,
        "old_log_prob": one,
        "advantages": one + 1,
        "response_mask": one + 1,
    }
    out, grad = run("cispo", data)
    assert out.metrics["ratio_max"] == pytest.approx(4.851652e8)
    assert grad.item() == pytest.approx(-1.28)
    algo = rpg.algorithm("rpg-reinforce-urkl", clip=None, beta=0.0)
    data["log_prob"] = data["log_prob"].requires_grad_()
    rpg.policy_loss(algo, **data).loss.backward()
    assert data["log_prob"].grad.item() == pytest.approx(-4.851652e8)  # exp(20), not exp(50)


@pytest.mark.parametrize("label", LOSSES)
def test_all_masked_rows_and_batches(label):
    data = tensors()
    data["response_mask"][1] = 0
    out, grad = run(label, data)
    assert out.loss.isfinite()
    assert (grad[1] == 0).all()
    assert out.weight == 8
    data["response_mask"][:] = 0
    out, grad = run(label, data)
    assert out.loss == 0
    assert (grad == 0).all()
    assert out.weight == 0
    assert all(value == 0 for value in out.metrics.values())


@pytest.mark.parametrize("label", LOSSES)
def test_a_batch_without_rows_or_tokens_has_loss_zero(label):
    for rows, tokens in ((0, 4), (3, 0)):
        out, grad = run(label, tensors(rows, tokens))
        assert out.loss == 0
        assert grad.shape == (rows, tokens)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("label", LOSSES)
def test_half_precision_is_computed_in_float32(label, dtype):
    half = tensors(dtype=dtype)
    full = {name: value.float() for name, value in half.items()}
    a, grad_a = run(label, half)
    b, grad_b = run(label, full)
    assert a.loss.dtype == torch.float32
    assert torch.equal(a.loss, b.loss)
    assert a.metrics == b.metrics
    assert grad_a.dtype == dtype
    assert torch.equal(grad_a, grad_b.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_divergences_and_weights_of_half_precision_are_computed_in_float32(dtype):
    p, q = -8 * torch.rand(
        2, 4, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float32
    ).to(dtype)
    p[0, 0] = q[0, 0] = -INF  # which is -1e4 in both
    kl = rpg.algorithm("opd-jsd", kl={"top_k": 8}).kl
    assert torch.equal(rpg.distribution_kl(kl, p, q), rpg.distribution_kl(kl, p.float(), q.float()))
    correction = rpg.algorithm("grpo", rollout_correction="mask").rollout_correction
    given = [
        {"old_log_prob": x, "sampler_log_prob": y} for x, y in ((p, q), (p.float(), q.float()))
    ]
    half, full = (rollout_weights(correction, response_mask=p, **inputs) for inputs in given)
    assert torch.equal(half, full)
    assert half[0, 0] == 1


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
def test_the_masks_type_changes_nothing(mask_dtype):
    data = tensors()
    data["response_mask"][0, 1:] = 0
    expected, _ = run("grpo", data)
    data["response_mask"] = (255 * data["response_mask"]).to(mask_dtype)  # only zero means masked
    assert run("grpo", data)[0].metrics == expected.metrics


@pytest.mark.parametrize("label", LOSSES)
def test_inputs_are_not_modified_and_only_log_prob_gets_a_gradient(label):
    data = tensors(advantages=torch.full((3, 4), 2.0), rollout_weights=torch.rand(3, 1))
    data["log_prob"][0, 0] = -INF
    for name, value in data.items():
        if name != "response_mask":
            value.requires_grad_()
    before = {name: value.detach().clone() for name, value in data.items()}
    rpg.policy_loss(make(label), **data).loss.backward()
    for name, value in data.items():
        assert torch.equal(value, before[name])
        assert (value.grad is not None) == (name == "log_prob")


def put(name, row, token, value):
    data = tensors()
    data[name][row, token] = value
    return {name: data[name]}


DOWN = torch.full(
    (3, 4), -INF
)  # beside a log-probability of -inf, the logarithm of zero, which is allowed
MISTAKES = [
    (
        "grpo",
        put("ref_log_prob", 1, 2, NAN),
        FloatingPointError,
        r"ref_log_prob\[1, 2\] is nan; 1 unmasked",
    ),
    ("rpg-urkl", put("log_prob", 2, 3, INF), FloatingPointError, r"log_prob\[2, 3\] is inf"),
    (
        "grpo",
        put("log_prob", 2, 3, -INF) | {"advantages": DOWN},
        FloatingPointError,
        r"s\[0, 0\] is -inf; 12 unmasked",
    ),
    ("dapo", {"rollout_weights": NAN * DOWN[:, :1]}, FloatingPointError, "rollout_weights"),
    (
        "grpo",
        {"advantages": torch.zeros(3)},
        ValueError,
        r"advantages: shape \(3,\), accepted: \(3, 4\) like log_prob",
    ),
    (
        "grpo",
        {"rollout_weights": torch.zeros(4, 1)},
        ValueError,
        r"rollout_weights: shape \(4, 1\)",
    ),
    (
        "grpo",
        {name: x[0] for name, x in tensors().items()},
        ValueError,
        r"accepted: \(responses, tokens\)",
    ),
    (
        "grpo",
        {name: x.long() for name, x in tensors().items()},
        ValueError,
        "log_prob: dtype torch.int64",
    ),
    *(
        (
            "rpg-urkl",
            {name: x.numpy()},
            TypeError,
            f"^{name}: numpy.ndarray, accepted: torch.Tensor",
        )
        for name, x in tensors(rollout_weights=torch.ones(3, 4)).items()
    ),
]


@pytest.mark.parametrize(("label", "changes", "error", "words"), MISTAKES)
def test_what_makes_a_loss_meaningless_is_named(label, changes, error, words):
    with pytest.raises(error, match=words):
        rpg.policy_loss(make(label), **tensors(**changes))


def test_metrics_by_hand():
    """Two tokens, ratios 2 and 1/2."""
    old = torch.full((1, 2), -1.0, dtype=torch.float64)
    log2 = torch.log(torch.tensor(2.0, dtype=torch.float64)).item()
    log_prob = old + torch.tensor([[log2, -log2]])
    advantages = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    mask = torch.ones(1, 2)
    given = {
        "log_prob": log_prob,
        "old_log_prob": old,
        "advantages": advantages,
        "response_mask": mask,
    }
    out = rpg.policy_loss(rpg.algorithm("dapo"), **given)
    m = out.metrics
    assert (m["ratio_mean"], m["ratio_max"]) == (pytest.approx(1.25), pytest.approx(2.0))
    assert m["ess"] == pytest.approx(2.5**2 / (2 * 4.25))
    assert (m["clip_fraction"], m["clip_fraction_upper"], m["clip_fraction_lower"]) == (
        1.0,
        0.5,
        0.5,
    )
    assert out.weight == 2
    assert m["loss"] == pytest.approx((-1.28 + 0.8) / 2)
    assert all(isinstance(value, float) for value in m.values())
    for name in ("dapo", "gmpo", "rpg-urkl"):  # nothing is cut from a token that has no advantage
        out = rpg.policy_loss(
            rpg.algorithm(name, beta=0.0), **given | {"advantages": 0 * advantages}
        )
        assert out.metrics["clip_fraction"] == 0


def test_every_sum_over_tokens_becomes_a_metric(monkeypatch):
    counts = dict.fromkeys(policy_loss._TOTALS + policy_loss._RATIO_SUMS, 2.0)
    sums = counts | dict.fromkeys([*policy_loss._TOKEN_MEANS, "surprisal"], 6.0)
    monkeypatch.setattr(policy_loss, "_TOKEN_MEANS", (*policy_loss._TOKEN_MEANS, "surprisal"))
    assert policy_loss._metrics(sums, ratio_max=1.0)["surprisal"] == 3.0


def test_a_sum_that_is_not_declared_is_an_error(monkeypatch):
    declared = tuple(name for name in policy_loss._SUMS if name != "kl_old_to_policy")
    monkeypatch.setattr(policy_loss, "_SUMS", declared)
    x = torch.zeros(1, 2)
    with pytest.raises(AssertionError, match="not declared"):
        rpg.policy_loss(
            rpg.algorithm("grpo"),
            log_prob=x.clone().requires_grad_(),
            old_log_prob=x,
            ref_log_prob=x,
            advantages=x,
            response_mask=torch.ones(1, 2),
        )


def test_small_divergences_survive_float32():
    old = torch.zeros(1, 1000)
    out, _ = run("dapo", tensors(1, 1000, log_prob=old + 1e-4, old_log_prob=old, ref_log_prob=None))
    assert out.metrics["kl_old_to_policy"] == pytest.approx(5.00017e-9, rel=1e-2)


# ------------------------------------------------- inputs that would train something else, or end
# in an AttributeError


@pytest.mark.parametrize("which", ["log_prob", "old_log_prob", "ref_log_prob"])
@pytest.mark.parametrize(
    ("wrong", "likely"),
    [(torch.exp, "Pass their logarithm"), (torch.neg, "Pass their logarithm|sign")],
)
def test_probabilities_and_wrong_signs_are_named(which, wrong, likely):
    data = tensors()
    with pytest.warns(UserWarning, match=rf"{which}\[\d, \d\] is .*({likely})"):
        run("rpg-urkl", data | {which: wrong(data[which])})


def test_one_wrong_sign_among_others_is_named():
    with pytest.warns(
        UserWarning, match=r"old_log_prob\[1, 2\] is 0.5, .*; 1 unmasked .*is a sign wrong"
    ):
        run("rpg-urkl", tensors(**put("old_log_prob", 1, 2, 0.5)))


@pytest.mark.filterwarnings("error")
def test_no_warning_of_log_probabilities_nor_of_what_is_masked():
    data = tensors()
    data["response_mask"][:, 2:] = 0
    data["log_prob"][:, 2:], data["log_prob"][0, 0] = 7.0, 0.01  # rounded
    assert run("rpg-urkl", data)[0].loss.isfinite()


def test_a_name_is_no_algorithm():
    rewards = {"rewards": torch.rand(3), "group": torch.zeros(3), "response_mask": torch.ones(3, 4)}
    for call, data in ((rpg.policy_loss, tensors()), (rpg.advantages, rewards)):
        with pytest.raises(TypeError, match=r"algo: str 'grpo', accepted: rpg.algorithm\('grpo'\)"):
            call("grpo", **data)


def test_groups_of_one_response_are_said_to_teach_nothing():
    given = {"rewards": torch.rand(4), "response_mask": torch.ones(4, 2)}
    with pytest.warns(UserWarning, match="each of the 4 responses is a group of its own"):
        assert not rpg.advantages(make("grpo"), group=torch.arange(4), **given).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rpg.advantages(make("grpo"), group=torch.tensor([0, 0, 1, 2]), **given).any()


def test_the_terms_of_tokens_are_those_of_the_metrics():
    data = {name: value.double() for name, value in tensors().items()}
    algo = make("grpo")
    metrics = rpg.policy_loss(algo, **data).metrics
    kl = token_terms(algo, **data)["kl"].mean()
    assert kl.item() == pytest.approx(metrics["kl_policy_to_ref"], rel=1e-9)
    assert kl > 0.01
