"""An independent truth for the losses: plain formulas under autograd, and exact enumeration.

Nothing here imports rpg. `plain_*` write each loss as the papers do and let autograd differentiate;
`objective` is the regularised objective itself, summed over all outcomes of a categorical policy.
"""

import torch

DIVERGENCES = ("fkl", "rkl", "ufkl", "urkl")
STYLES = ("differentiable", "reinforce")


def name(divergence, style):
    """Of the RPG loss in the catalogue."""
    return f"rpg-{'reinforce-' if style == 'reinforce' else ''}{divergence}"


def policies(outcomes=6, seed=0, drift=1.0, third=True):
    """(logits, log old, log ref, reward): float64, distinct; `third=False` makes ref equal to
    old."""
    g = torch.Generator().manual_seed(seed)

    def draw():
        return torch.randn(outcomes, generator=g, dtype=torch.float64)

    old = draw()
    logits = (old + drift * draw()).requires_grad_()
    log_old = torch.log_softmax(old, 0)
    log_ref = torch.log_softmax(draw(), 0) if third else log_old
    return logits, log_old, log_ref, draw()


def kl(p_log, q_log):
    return (p_log.exp() * (p_log - q_log)).sum()


def objective(divergence, log_pi, log_ref, reward, beta):
    """J = E_pi[R] - beta D, with the masses written out: of normalised policies they are zero."""
    masses = log_pi.exp().sum() - log_ref.exp().sum()
    value = {
        "fkl": lambda: kl(log_ref, log_pi),
        "rkl": lambda: kl(log_pi, log_ref),
        "ufkl": lambda: kl(log_ref, log_pi) + masses,
        "urkl": lambda: kl(log_pi, log_ref) - masses,
        "none": lambda: torch.zeros((), dtype=log_pi.dtype),
    }[divergence]()
    return (log_pi.exp() * reward).sum() - beta * value


def gradient(scalar, parameter):
    return torch.autograd.grad(scalar, parameter, retain_graph=True)[0]


def plain_rpg(divergence, style, lp, olp, rlp, reward, beta):
    """Per-sample loss, paper.md sections 2 and 3, no clipping; differentiable UFKL less a constant,
    to be zero at w = 1."""
    w = (lp - olp).exp()
    v = (rlp - olp).exp()
    d = lp - rlp
    if style == "reinforce":
        weight = {
            "fkl": w * reward + beta * v,
            "rkl": w * (reward - beta * (d + 1)),
            "ufkl": w * reward - beta * (w - v),
            "urkl": w * (reward - beta * d),
        }[divergence]
        return -weight.detach() * lp
    return {
        "fkl": -w * reward - beta * v * lp,
        "rkl": w * (-reward + beta * d),
        "ufkl": -w * reward + beta * (w - v - v * d),
        "urkl": w * (-reward + beta * (d - 1)),
    }[divergence]


def regularised_advantage(divergence, lp, olp, rlp, reward, beta):
    w = (lp - olp).exp()
    v = (rlp - olp).exp()
    d = lp - rlp
    return {
        "fkl": reward + beta * v / w,
        "rkl": reward - beta * (d + 1),
        "ufkl": reward - beta * (w - v) / w,
        "urkl": reward - beta * d,
    }[divergence]


def plain_dual_clip(w, A, low, high, c):
    """Algorithm 1's value, differentiated by autograd through whatever w and A depend on."""
    clipped = torch.maximum(-w * A, -w.clamp(1 - low, 1 + high) * A)
    return torch.where(A >= 0, clipped, torch.minimum(clipped, -c * A))
