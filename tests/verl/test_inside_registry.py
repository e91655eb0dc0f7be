"""Our losses and advantages in verl's own trainers: as verl calls them, against verl's own and
against the whole batch."""

import types

import numpy
import pytest
import torch

import rpg
from rpg.losses.aggregation import Counts
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.usefixtures("cpu_verl")


@pytest.fixture(scope="module")
def core(cpu_verl):
    from verl.trainer.ppo import core_algos

    import rpg.interop.integrations.verl  # noqa: F401 (registers)

    return core_algos


def test_what_verl_cannot_give_a_reference_or_a_sampler_is_left_out(core):
    """TPO's advantages follow the policy, and M2PO's weights need the sampler."""
    ours = {name for name in core.POLICY_LOSS_REGISTRY if name.startswith("rpg/")}
    fits = {f"rpg/{name}" for name, a in rpg.algorithms().items() if not a.needs_reference}
    assert ours == fits - {"rpg/tpo", "rpg/m2po"}
    assert {"rpg/rpg-reinforce-urkl", "rpg/dapo"} <= ours
    assert "rpg/grpo" not in ours
    assert not core.POLICY_LOSS_REGISTRY["gspo"].__module__.startswith("rpg")


def test_advantages_are_those_of_verls_grpo(core):
    rewards = torch.zeros(12, 5)
    rewards[:, 3] = torch.randn(12, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(12, 5)
    mask[::2, 4] = 0
    index = numpy.array([f"prompt {i % 3}" for i in range(12)], dtype=object)
    given = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    ours, _ = core.get_adv_estimator_fn("rpg/dapo")(**given, config=None)
    theirs, _ = core.compute_grpo_outcome_advantage(**given, norm_adv_by_std_in_grpo=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_micro_batches_and_workers_add_up(core, mode):
    generator = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    old = -draw(6, 4).abs()
    advantages = draw(6, 1).expand(6, 4)
    log_prob = (old + 0.2 * draw(6, 4)).requires_grad_()
    mask = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4, 3])[:, None]
    algorithm = rpg.algorithm("rpg-reinforce-urkl", loss_agg_mode=mode)
    counts = Counts.of(mask, 4)
    fields = {
        "log_prob": log_prob,
        "old_log_prob": old,
        "advantages": advantages,
        "response_mask": mask,
    }
    whole = rpg.policy_loss(algorithm, counts=counts, **fields)
    (expected,) = torch.autograd.grad(whole.loss, log_prob)
    info = {"dp_size": 2, "batch_num_tokens": counts.tokens, "global_batch_size": counts.sequences}
    config = types.SimpleNamespace(global_batch_info={**info, "loss_scale_factor": 4})
    total = 0.0
    for rows in ([0, 3], [4], [1, 2, 5]):
        part = {name: value[rows] for name, value in fields.items()}
        loss, metrics = core.get_policy_loss_fn("rpg/rpg-reinforce-urkl")(
            **part, loss_agg_mode=mode, config=config, rollout_is_weights=None
        )
        total = total + loss / 2
        assert metrics["rpg/ratio_mean"] > 0
    assert total.item() == pytest.approx(whole.loss.item(), rel=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(total, log_prob)[0], expected, rtol=1e-5, atol=1e-8
    )


def test_the_script_of_the_documentation_runs(core):
    library = blocks(ROOT / "docs" / "library.md")
    (script,) = [block for block in library if "rpg.integrations.verl" in block.text]
    exec(compile(script.text, script.where, "exec"), {"__name__": "__main__"})
    assert len(script.text.splitlines()) <= 30
