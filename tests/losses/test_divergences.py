"""Every declared divergence, whatever their number: records and formulas agree, slopes are
autograd's, and the terms have the gradient of the divergence itself, summed over everything that
can happen.
"""

from dataclasses import replace

import pytest
import torch

import rpg
from rpg.catalogue import DIVERGENCES, AlgorithmError
from rpg.losses.kl_terms import MATHEMATICS, Mathematics, check, mathematics
from tests.losses import oracle

ALL = list(DIVERGENCES)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quantities(log_prob, old, ref):
    return log_prob, (log_prob - old).exp(), (ref - old).exp(), log_prob - ref


@pytest.mark.parametrize("name", ALL)
def test_slope_is_autograds(name):
    log_prob, old, ref = (-draw(3, 50).abs()).unbind()
    log_prob.requires_grad_()
    value, slope = mathematics(name).term(*quantities(log_prob, old, ref))
    torch.testing.assert_close(
        oracle.gradient(value.sum(), log_prob), slope, rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("name", ALL)
def test_mean_over_old_has_the_gradient_of_the_divergence(name):
    """Policies for every divergence, measures of any mass for the unnormalised ones."""
    raw, old, ref = draw(3, 7, seed=1).unbind()
    measures = DIVERGENCES[name].unnormalised
    raw.requires_grad_()
    log_prob, old, ref = (x if measures else torch.log_softmax(x, 0) for x in (raw, old, ref))
    term = old.exp() @ mathematics(name).term(*quantities(log_prob, old, ref))[0]
    exact = oracle.gradient(mathematics(name).exact(log_prob, ref), raw)
    assert exact.norm() > 1e-3
    torch.testing.assert_close(oracle.gradient(term, raw), exact, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ALL)
def test_is_the_divergence_that_it_names_where_policies_sum_to_one(name):
    log_pi, log_ref = torch.log_softmax(draw(2, 4, 6, seed=2), -1)
    twin = mathematics(DIVERGENCES[name].normalised).exact(log_pi, log_ref)
    torch.testing.assert_close(
        mathematics(name).exact(log_pi, log_ref), twin, rtol=1e-12, atol=1e-14
    )
    assert (twin > 0).all()
    assert mathematics(name).exact(log_ref, log_ref).abs().max() < 1e-15


# --- what is not declared is refused
# -------------------------------------------------------------------


def test_an_unknown_name_is_an_error_everywhere():

    algo = rpg.algorithm("rpg-urkl")
    odd = algo.model_copy(update={"kl": algo.kl.model_copy(update={"divergence": "jkl"})})
    x = torch.zeros(2, 3, requires_grad=True)
    data = {
        "old_log_prob": x.detach(),
        "advantages": x.detach() + 1,
        "response_mask": x.detach() + 1,
    }
    for call in (
        lambda: rpg.algorithm("rpg-urkl", kl={"divergence": "jkl"}),
        lambda: mathematics("jkl"),
        lambda: rpg.policy_loss(odd, log_prob=x, **data),
        lambda: rpg.audit(odd),
        lambda: rpg.audit(lambda **_: x.sum(), beta=0.1, divergence="jkl"),
    ):
        with pytest.raises(
            AlgorithmError, match=r"'jkl' is not known.* Accepted: fkl, rkl, ufkl, urkl"
        ):
            call()


@pytest.fixture
def bare(monkeypatch):
    """urkl as if only its term were known."""
    monkeypatch.setitem(
        MATHEMATICS, "urkl", Mathematics(MATHEMATICS["urkl"].exact, MATHEMATICS["urkl"].term)
    )
    record = replace(DIVERGENCES["urkl"], prefix=False, advantage_slope=False)
    monkeypatch.setitem(DIVERGENCES, "urkl", record)


def test_without_a_prefix_slope_ratio_prefix_is_refused(bare):
    assert rpg.algorithm("rpg-reinforce-urkl", ratio="sequence").ratio == "sequence"
    words = "which divergence urkl does not declare; accepted: token, sequence"
    with pytest.raises(AlgorithmError, match=words):
        rpg.algorithm("rpg-reinforce-urkl", ratio="prefix")


def test_without_its_slope_the_clip_has_to_hold_the_advantage_constant(bare):
    words = "regularised advantage, which divergence urkl does not declare"
    for gradient in ("exact", "through"):
        with pytest.raises(AlgorithmError, match=words):
            rpg.algorithm("rpg-urkl", clip={"gradient": gradient})
    assert rpg.algorithm("rpg-urkl", clip={"gradient": "detached"}).clip
    assert rpg.algorithm("rpg-urkl", clip=None).kl.divergence == "urkl"
    assert (
        rpg.algorithm("rpg-reinforce-urkl").clip.gradient == "exact"
    )  # a REINFORCE weight is held anyway


def test_the_two_places_have_to_agree():
    check(DIVERGENCES, MATHEMATICS)
    with pytest.raises(RuntimeError, match=r"'urkl' is missing in rpg/losses/kl_terms.py"):
        check(DIVERGENCES, {n: m for n, m in MATHEMATICS.items() if n != "urkl"})
    with pytest.raises(RuntimeError, match=r"'urkl' is missing in rpg/catalogue/divergences.yaml"):
        check({n: d for n, d in DIVERGENCES.items() if n != "urkl"}, MATHEMATICS)
    with pytest.raises(
        RuntimeError, match=r"says prefix=False, rpg/losses/kl_terms.py declares one"
    ):
        check({**DIVERGENCES, "rkl": replace(DIVERGENCES["rkl"], prefix=False)}, MATHEMATICS)
    for taken in ("jsd", "none"):
        with pytest.raises(RuntimeError, match=f"'{taken}': the audit means"):
            check(
                {**DIVERGENCES, taken: replace(DIVERGENCES["fkl"], name=taken, normalised=taken)},
                {**MATHEMATICS, taken: MATHEMATICS["fkl"]},
            )
    with pytest.raises(RuntimeError, match="names no record"):
        check({**DIVERGENCES, "rkl": replace(DIVERGENCES["rkl"], normalised="kl")}, MATHEMATICS)
