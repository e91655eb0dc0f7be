"""What survives masking: the audit's claims against an enumeration of conversations that shares no
code with it."""

from itertools import product
from pathlib import Path

import pytest
import torch

import rpg
from rpg.auditing.turn_audit import as_markdown, audit_turns

BETA = 0.3
SYMBOLS = range(3)
PAGE = Path(__file__).parents[2] / "docs/losses/turns.md"


def tables(g, spread=1.0):
    """Log-probabilities of the first, second and third token that a policy writes, by all that was
    said before."""
    shapes = ((3,), (3, 3, 3), (3, 3, 3, 3))
    drawn = (torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes)
    return [(spread * values).requires_grad_() for values in drawn]


class Game:
    """A token of the policy, one of a random environment, two of the policy: 81 conversations."""

    def __init__(self):
        g = torch.Generator().manual_seed(1)
        self.said = torch.randn(3, 3, generator=g, dtype=torch.float64).softmax(-1)
        self.rewards = torch.randn(3, 3, 3, 3, generator=g, dtype=torch.float64)
        self.policies = self.now, self.old, self.ref = [tables(g, s) for s in (1.0, 0.8, 0.9)]

    @staticmethod
    def words(table, talk):
        first, second, third = (t.log_softmax(-1) for t in table)
        a, e, b, _ = talk
        return first[a], second[a, e, b], third[talk]

    def chance(self, table, talk):
        return self.said[talk[0], talk[1]] * sum(self.words(table, talk)).exp()

    def response_objective(self, divergence):
        """E[R] - beta D between distributions of whole conversations, the environment's tokens
        included."""
        total = 0.0
        for talk in product(SYMBOLS, repeat=4):
            pi = self.chance(self.now, talk)
            rho = self.chance(self.ref, talk).detach()
            kl = pi * (pi / rho).log() if divergence.endswith("rkl") else rho * (rho / pi).log()
            total = total + pi * self.rewards[talk] - BETA * kl
        return total

    def token_objective(self, divergence):
        """What comes before and after a token is as `old` and the environment make it."""
        total = 0.0
        for talk in product(SYMBOLS, repeat=4):
            now, old, ref = (self.words(t, talk) for t in (self.now, self.old, self.ref))
            drawn = self.chance(self.old, talk).detach()
            for p, m, r in zip(now, old, ref, strict=True):
                w = (p - m.detach()).exp()
                v = (r - m).detach().exp()
                kl = w * (p - r.detach()) if divergence.endswith("rkl") else -v * p
                total = total + drawn * (w * self.rewards[talk] - BETA * kl)
        return total

    def step(self, algo, leak=False):
        """The average step of the loss, one conversation at a time."""
        total = 0.0
        for talk in product(SYMBOLS, repeat=4):
            rows = {}
            policies = zip(("log_prob", "old_log_prob", "ref_log_prob"), self.policies, strict=True)
            for name, table in policies:
                a, b, c = self.words(table, talk)
                said = (
                    table[1].log_softmax(-1).mean(-1)[talk[0], talk[1]]
                    if leak
                    else a.detach() * torch.nan
                )
                rows[name] = torch.stack([a, said, b, c])[None]
                rows[name] = rows[name] if table is self.now else rows[name].detach()
            mask = torch.tensor([[True, leak, True, True]])
            a = self.rewards[talk] * mask
            loss = rpg.policy_loss(algo, advantages=a, response_mask=mask, **rows).loss
            total = total - self.chance(self.old, talk).detach() * loss
        return total

    def gradient(self, value):
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, self.now)])


@pytest.mark.parametrize("level", ["token", "prefix", "sequence"])
@pytest.mark.parametrize("divergence", ["fkl", "ufkl", "rkl", "urkl"])
def test_masked_losses_have_the_gradient_of_their_objective_and_leaked_ones_do_not(
    divergence, level
):
    game = Game()
    algo = rpg.algorithm(
        f"rpg-reinforce-{divergence}",
        beta=BETA,
        clip=None,
        reference={"type": "fixed"},
        ratio=level,
        loss_agg_mode="seq-mean-token-sum",
    )
    objective = game.token_objective if level == "token" else game.response_objective
    exact = game.gradient(objective(divergence))
    torch.testing.assert_close(game.gradient(game.step(algo)), exact, rtol=1e-9, atol=1e-12)
    leaked = game.gradient(game.step(algo, leak=True))
    assert (leaked - exact).norm() > 0.05 * exact.norm()


@pytest.fixture(scope="module")
def rows():
    return audit_turns()


def test_the_audit_says_so_and_the_page_has_its_table(rows):
    assert as_markdown(rows) in PAGE.read_text()
    levels = [row for row in rows if row.loss.split()[-1] in ("token", "prefix", "sequence")]
    assert len(levels) == 24
    assert all(row.masked < 1e-10 < row.leaked and len(row.exact) == 1 for row in levels)


def test_a_mean_over_a_responses_own_tokens_is_bent_where_the_environment_decides_their_number(
    rows,
):
    """Conversations of one token and of three: a mean weighs a token of the short ones three times
    as much."""
    means = {row.environment: row.masked for row in rows if row.loss == "seq-mean-token-mean"}
    assert means["random"] < 1e-10
    assert means["ends"] > 0.1
