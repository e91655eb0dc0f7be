"""Where losses end: against closed forms and maxima that share no code with the flow, and against a
training with samples."""

import math
from itertools import product
from pathlib import Path

import pytest
import torch

import rpg
from rpg.auditing.optimum import (
    BETA,
    TOKEN_FKL,
    TOKEN_RKL,
    as_markdown,
    closed_forms,
    end,
    ends,
    three_answers,
)
from rpg.auditing.subjects import from_algorithm, ratio_levels
from rpg.auditing.worlds import world

PAGE = Path(__file__).parents[2] / "docs/losses/optimum.md"
FIRST = [0.6, 0.3, 0.1]
SECOND = [[0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.05, 0.35, 0.6]]
RIGHT = {(0, 2), (1, 1), (2, 0)}


def reference(response):
    first, second = response
    return FIRST[first] * SECOND[first][second]


def test_the_world_is_the_one_that_is_described():
    place = three_answers()
    responses = list(product(range(3), repeat=2))
    assert place.tokens.tolist() == [list(response) for response in responses]
    expected = torch.tensor([reference(response) for response in responses], dtype=torch.float64)
    torch.testing.assert_close(place.sampled(), expected)
    torch.testing.assert_close(place.probabilities(place.ref), expected)
    assert place.rewards.tolist() == [float(response in RIGHT) for response in responses]


def best_response(forward):
    """The distribution of whole responses with the largest E[R] - beta KL, by Newton's steps on
    nine logits (torch's LBFGS)."""
    ref = torch.tensor([reference(r) for r in product(range(3), repeat=2)], dtype=torch.float64)
    rewards = torch.tensor(
        [float(r in RIGHT) for r in product(range(3), repeat=2)], dtype=torch.float64
    )
    logits = ref.log().clone().requires_grad_()
    search = torch.optim.LBFGS(
        [logits],
        max_iter=2000,
        tolerance_grad=1e-14,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def lost():
        search.zero_grad()
        log_pi = logits.log_softmax(-1)
        pi = log_pi.exp()
        kl = ref @ (ref.log() - log_pi) if forward else pi @ (log_pi - ref.log())
        value = BETA * kl - pi @ rewards
        value.backward()
        return value

    search.step(lost)
    return logits.detach().softmax(-1)


def best_tokens(best):
    """From the last token backwards: `best(ref, reward)` of the second token after each first, then
    of the first."""
    seconds = [
        best(SECOND[first], [float((first, second) in RIGHT) for second in range(3)])
        for first in range(3)
    ]
    chances = [
        sum(p for second, p in enumerate(seconds[first]) if (first, second) in RIGHT)
        for first in range(3)
    ]
    firsts = best(FIRST, chances)
    return torch.tensor(
        [firsts[a] * seconds[a][b] for a, b in product(range(3), repeat=2)], dtype=torch.float64
    )


def tilted(ref, rewards):
    weights = [p * math.exp(r / BETA) for p, r in zip(ref, rewards, strict=True)]
    return [weight / sum(weights) for weight in weights]


def forward(ref, rewards):
    """beta ref / (Lambda - R), Lambda by Newton's steps from below, which do not overshoot."""
    best = max(range(len(ref)), key=lambda place: rewards[place])
    bound = rewards[best] + BETA * ref[best]
    for _ in range(60):
        values = [BETA * p / (bound - r) for p, r in zip(ref, rewards, strict=True)]
        slope = -sum(v / (bound - r) for v, r in zip(values, rewards, strict=True))
        bound -= (sum(values) - 1) / slope
    return [BETA * p / (bound - r) for p, r in zip(ref, rewards, strict=True)]


def test_the_closed_forms_are_maxima():
    forms = closed_forms(three_answers(), BETA)
    torch.testing.assert_close(forms["resp. RKL"], best_response(forward=False), rtol=0, atol=1e-7)
    torch.testing.assert_close(forms["resp. FKL"], best_response(forward=True), rtol=0, atol=1e-7)
    torch.testing.assert_close(forms[TOKEN_RKL], best_tokens(tilted), rtol=0, atol=1e-12)
    torch.testing.assert_close(forms[TOKEN_FKL], best_tokens(forward), rtol=0, atol=1e-12)
    assert all(abs(form.sum() - 1) < 1e-12 for form in forms.values())


@pytest.mark.parametrize(
    ("name", "best"),
    [
        *((f"rpg-{style}{kl}", tilted) for style in ("", "reinforce-") for kl in ("rkl", "urkl")),
        *((f"rpg-{style}{kl}", forward) for style in ("", "reinforce-") for kl in ("fkl", "ufkl")),
        ("grpo", forward),
        ("grpo-corrected", tilted),
    ],
)
def test_a_loss_ends_at_the_optimum_of_its_objective(name, best):
    """Also with its clip; GRPO's uncorrected k3 at that of the forward KL."""
    found = end(from_algorithm(rpg.algorithm(name), BETA))
    expected = best_tokens(best)
    torch.testing.assert_close(
        torch.tensor(found.probabilities, dtype=torch.float64), expected, rtol=0, atol=1e-8
    )
    assert found.form == (TOKEN_RKL if best is tilted else TOKEN_FKL)


@pytest.mark.parametrize("divergence", ["rkl", "urkl", "fkl", "ufkl"])
def test_a_ratio_of_whole_responses_ends_at_the_optimum_of_whole_responses(divergence):
    by_name = {subject.name: subject for subject in ratio_levels(BETA)}
    found = end(by_name[f"{divergence} sequence"])
    expected = best_response(forward=divergence.endswith("fkl"))
    torch.testing.assert_close(
        torch.tensor(found.probabilities, dtype=torch.float64), expected, rtol=0, atol=1e-7
    )
    assert found.form == ("resp. FKL" if divergence.endswith("fkl") else "resp. RKL")


def test_other_languages_and_rewards_end_at_their_forms_too():
    """Random rewards, a start that is not the reference."""
    place = world(2, 2, 5)
    for name, form in (("rpg-urkl", TOKEN_RKL), ("rpg-fkl", TOKEN_FKL)):
        found = end(from_algorithm(rpg.algorithm(name), BETA), place)
        assert found.form == form and found.apart < 1e-8


def test_without_a_kl_there_is_no_end():
    found = end(from_algorithm(rpg.algorithm("reinforce")))
    assert found.form == "" and found.probabilities == () and "no end" in found.note


@pytest.mark.parametrize(("name", "best"), [("grpo", forward), ("rpg-reinforce-urkl", tilted)])
def test_a_training_with_samples_ends_where_it_is_said(name, best):
    """600 updates of 2,048 sampled responses, one update each; the last 200 averaged."""
    place = three_answers()
    algo = rpg.algorithm(name, beta=BETA, reference={"type": "fixed"})
    g = torch.Generator().manual_seed(0)
    logits = place.ref.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.03)
    ref = place.log_probs(place.ref)
    tail = torch.zeros(len(place.rewards), dtype=torch.float64)
    for update in range(600):
        with torch.no_grad():
            chances = place.probabilities(logits)
            rows = torch.multinomial(chances, 2048, replacement=True, generator=g)
            old = place.log_probs(logits)
            rewards = place.rewards[rows]
            tail += chances / 200 * (update >= 400)
        loss = rpg.policy_loss(
            algo,
            log_prob=place.log_probs(logits)[rows],
            old_log_prob=old[rows],
            ref_log_prob=ref[rows],
            advantages=(rewards - rewards.mean())[:, None].expand(-1, 2),
            response_mask=place.mask[rows],
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (tail - best_tokens(best)).abs().max() < 0.02
    other = forward if best is tilted else tilted
    assert (tail - best_tokens(other)).abs().max() > 0.08, "the other KL's end is far from it"


@pytest.mark.system
def test_the_page_shows_what_the_audit_finds():
    assert as_markdown(ends()).strip() in PAGE.read_text("utf-8")
