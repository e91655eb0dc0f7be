"""Every bias that the catalogue's table prints, computed again in another way: the loss of one
response at a time, weighted with its probability, differentiated by autograd to the logits; and the
objectives from their definitions."""

import re
from pathlib import Path

import pytest
import torch

import rpg
from rpg.auditing.measure import Settings, measure
from rpg.auditing.subjects import catalogue
from rpg.auditing.worlds import world

BETA = 0.3
DRIFT = 0.4
SUBJECTS = {subject.name: subject for subject in catalogue(BETA)}
TABLE = Path(__file__).parents[2] / "docs" / "audit.md"


def token_log_probs(place, logits):
    return logits.log_softmax(-1)[place.states, place.tokens]


def expected_loss(subject, loss, place, logits):
    """The mean over responses of `old`, each of which is a batch of its own."""
    old = token_log_probs(place, place.old)
    probability = old.sum(-1).exp()
    inputs = {
        "log_prob": token_log_probs(place, logits),
        "old_log_prob": old,
        "ref_log_prob": token_log_probs(place, place.ref),
        "advantages": subject.advantages(place, place.ref),
        "response_mask": place.mask,
    }
    if subject.centred:
        log_pi = logits.log_softmax(-1)
        of_states = (log_pi.exp() * (log_pi - place.ref.log_softmax(-1))).sum(-1)
        inputs["token_kl"] = of_states.detach()[place.states]
    total = torch.zeros((), dtype=torch.float64)
    for row, p in enumerate(probability):
        result = loss(**{name: value[row : row + 1] for name, value in inputs.items()})
        tokens = place.tokens.shape[1] if subject.per_token else 1
        total = total + p * tokens * getattr(result, "loss", result)
        if subject.whole is not None:
            table = logits.log_softmax(-1)[place.states[row]]
            reference = place.ref.log_softmax(-1)[place.states[row]]
            kl = rpg.distribution_kl(subject.whole, table, reference)
            total = total + p * subject.beta * kl.sum()
    return total


def objective(level, divergence, subject, place, logits):
    """E[R] - beta D, from its definition."""
    log_p = token_log_probs(place, logits)
    log_old = token_log_probs(place, place.old)
    log_ref = token_log_probs(place, place.ref)
    drawn = log_old.sum(-1).exp()
    rewards = place.rewards * subject.rewarded
    if level == "sequence":
        p = log_p.sum(-1).exp()
        apart = log_p.sum(-1) - log_ref.sum(-1)
        reward = p @ rewards
        kl = {"rkl": p @ apart, "fkl": -(log_ref.sum(-1).exp() @ apart), "none": 0.0}
    else:
        reward = (drawn[:, None] * (log_p - log_old).exp() * rewards[:, None]).sum()
        p, q = logits.log_softmax(-1), place.ref.log_softmax(-1)
        of_state = {"rkl": (p.exp() * (p - q)).sum(-1), "fkl": (q.exp() * (q - p)).sum(-1)}
        kl = {
            name: (drawn[:, None] * value[place.states]).sum() for name, value in of_state.items()
        }
        kl["none"] = 0.0
    return reward - subject.beta * kl[divergence]


def gradient(value, logits):
    return torch.autograd.grad(value, logits, allow_unused=True)[0]


def bias(subject, loss, level, divergence):
    worst = 0.0
    for seed in (0, 1):
        place = world(3, 3, seed)
        logits = place.policy(DRIFT).clone().requires_grad_()
        step = -gradient(expected_loss(subject, loss, place, logits), logits)
        wanted = gradient(objective(level, divergence, subject, place, logits), logits)
        worst = max(worst, float((step - wanted).norm() / wanted.norm()))
    return worst


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_bias_is_that_of_another_enumeration(name):
    subject = SUBJECTS[name]
    divergence = subject.divergence
    if divergence == "none" and not subject.rewarded:
        pytest.skip("a divergence that no objective of the table has")
    result = measure(subject, Settings(drifts=(0.0, DRIFT)))
    penalty = {"none": "", "rkl": " − β KL(π‖ref)", "fkl": " − β KL(ref‖π)"}[divergence]
    numbers = []
    for clipped, loss in zip((False, True), subject.losses, strict=False):
        for level in ("token", "sequence"):
            again = bias(subject, loss, level, divergence)
            printed = result.point(DRIFT, clipped).bias[f"{level}-level E[R]{penalty}"]
            assert printed == pytest.approx(again, abs=1e-9)
            numbers.append("0" if again < 1e-10 else f"{again:.1%}")
    row = re.search(rf"^\| `{re.escape(name)}` \|(.*)$", TABLE.read_text(), re.MULTILINE)
    cells = [cell.strip() for cell in row[1].split("|")]
    assert [cells[place] for place in (2, 3, 5, 6)][: len(numbers)] == numbers
