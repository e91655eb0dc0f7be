"""What corrections for another sampler optimise, exactly; and the weights themselves."""

import pytest
import torch

from rpg.auditing.studies import CORRECTIONS, correction_study
from rpg.catalogue import AlgorithmError, algorithm
from rpg.losses.policy_loss import rollout_weights

OURS, OLDS, WHOLE = "token, sampler's prefixes", "token, old's prefixes", "response"


@pytest.fixture(scope="module")
def found():
    return {(b.name, b.setting): b for b in correction_study()}


def test_each_correction_is_exact_for_what_it_says_and_only_unbounded_ones_are(found):
    exact = {key for key, bend in found.items() if bend.bias < 1e-10 and abs(bend.scale - 1) < 1e-10}
    assert exact == {("none: exact ratio", OURS), ("no bound, sequence", OLDS)}
    assert {name for name, _ in found} == set(CORRECTIONS)


def test_bounds_trade_noise_for_bias(found):
    free, cut = found["no bound, sequence", OLDS], found["truncate 2, sequence", OLDS]
    assert cut.noise < 0.8 * free.noise and 0.05 < cut.bias < found["ignore", OLDS].bias


def test_a_sampler_that_is_old_needs_no_correction():
    bends = correction_study(gap=0.0)
    assert {b.bias < 1e-10 for b in bends if b.setting == OLDS} == {True}
    assert len({round(b.noise, 10) for b in bends}) == 1


def test_weights_by_hand():
    old = torch.tensor([[-1.0, -1.0, 9.0], [-2.0, 9.0, 9.0]])
    sampler = torch.tensor([[-2.0, -0.5, 9.0], [-1.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])

    def weights(**setting):
        correction = algorithm("grpo", rollout_correction=setting).rollout_correction
        return rollout_weights(correction, old_log_prob=old, sampler_log_prob=sampler, response_mask=mask)

    e = torch.e
    assert weights(type="none") is None and weights(type="ignore") is None
    cut = weights(type="truncate", cap=2.0)
    torch.testing.assert_close(cut[mask != 0], torch.tensor([2.0, e**-0.5, e**-1]))
    whole = weights(type="truncate", level="sequence", cap=2.0)
    torch.testing.assert_close(whole, torch.tensor([[e**0.5], [e**-1]]))
    masked = weights(type="mask", low=0.5, high=2.0)
    torch.testing.assert_close(masked[mask != 0], torch.tensor([0.0, e**-0.5, 0.0]))
    masked = weights(type="mask", level="sequence", low=0.5, high=2.0)
    torch.testing.assert_close(masked, torch.tensor([[e**0.5], [0.0]]))


def test_a_mistake_names_the_field_and_what_it_takes():
    with pytest.raises(AlgorithmError, match=r"rollout_correction\.type: 'cut'.*truncate"):
        algorithm("grpo", rollout_correction="cut")
    with pytest.raises(AlgorithmError, match=r"rollout_correction\.cap"):
        algorithm("grpo", rollout_correction={"type": "truncate", "cap": 0.5})
    with pytest.raises(AlgorithmError, match=r"correction\.hight is not a field.*did you mean 'high'"):
        algorithm("grpo", rollout_correction={"type": "mask", "hight": 3})
