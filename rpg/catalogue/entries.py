"""The entries of the catalogue. Settings not written here are the defaults of `catalogue.Algorithm`.

`paper` settings follow the paper that introduced a method (for RPG, arXiv 2505.17508, its Appendix H);
`released` follow the launch scripts and code published with the RPG paper, where those do something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from rpg.catalogue.components import (
    BatchAdvantage,
    BestOfGroup,
    Clip,
    DistributionKL,
    FixedReference,
    GammaGate,
    GroupAdvantage,
    GroupThenBatch,
    LeaveOneOut,
    LossKL,
    Mask,
    ModelReference,
    ObjectiveKL,
    OldReference,
    Overlong,
    RawReward,
    RewardKL,
    SigmoidGate,
)
from rpg.catalogue.divergences import DIVERGENCES, RPG_PAPER, Divergence
from rpg.catalogue.entry import Algorithm

DUAL = Clip(low=0.2, high=0.28, c=10.0)
PPO = Clip(low=0.2, high=0.2, c=None)
OVERLONG = Overlong(buffer_fraction=0.25, factor=1.0)


def _rows(label: str, *tables: str) -> tuple[str, ...]:
    return tuple(f"{table}: {label}" for table in tables)


def _rpg(divergence: Divergence, reinforce: bool) -> Iterator[Algorithm]:
    label = ("RPG-REINFORCE-" if reinforce else "RPG-") + divergence.name.upper()
    has_released = bool(divergence.paper_tables)
    common: dict[str, Any] = {
        "name": label.lower(),
        "display_name": label,
        "citation": divergence.citation,
        "paper_rows": _rows(label, *divergence.paper_tables),
        "advantage": GroupAdvantage(std=False),
        "dynamic_sampling": True,
        "overlong": OVERLONG,
        "loss_agg_mode": "token-mean",
        "reference": OldReference(),
    }
    style: Literal["reinforce", "differentiable"] = "reinforce" if reinforce else "differentiable"
    yield Algorithm(
        **common,
        preset="paper" if has_released else None,
        description=f"Exact gradient under {divergence.words}, "
        + ("REINFORCE style with RPG-Style Clip." if reinforce else "fully differentiable, dual clip."),
        formula=f"−sg({divergence.weight}) log π" if reinforce else f"−wR {divergence.term}",
        objective=f"E_π[R] − β {divergence.penalty}, clipped",
        surrogate="rpg",
        kl=ObjectiveKL(divergence=divergence.name, style=style),
        beta=1e-4,
        clip=DUAL
        if reinforce or divergence.advantage_slope
        else DUAL.model_copy(update={"gradient": "detached"}),
    )
    if not has_released:
        return
    released: dict[str, Any] = {**common, "preset": "released", "surrogate": "ppo_clip", "clip": DUAL}
    if reinforce:
        yield Algorithm(
            **released,
            description="What the released rf_clip_ppo scripts run: dual-clip PPO; the KL is never added.",
            formula="−min(wR, clip(w)R), dual clip",
            objective="E_π[R], clipped; no KL",
        )
    else:
        yield Algorithm(
            **released,
            description=f"Dual-clip PPO on the raw advantage, plus {divergence.words}, unclipped.",
            formula=f"−min(wR, clip(w)R) {divergence.term}",
            objective=f"E_π[R] − β {divergence.penalty}, reward term clipped",
            kl=ObjectiveKL(divergence=divergence.name, style="differentiable"),
            beta=1e-4,
        )


def _baselines() -> Iterator[Algorithm]:
    all_tables = ("Table 3", "Table 5", "Table 6", "Table 7", "Table 8")
    grpo: dict[str, Any] = {
        "name": "grpo",
        "display_name": "GRPO",
        "citation": "Shao et al., DeepSeekMath, arXiv 2402.03300",
        "formula": "−min(wA, clip(w)A) + β k3(ref/π)",
        "objective": "E_π[R] clipped; on-policy − β KL(ref‖π)",
        "paper_rows": _rows("GRPO", *all_tables),
        "surrogate": "ppo_clip",
        "kl": LossKL(estimator="k3", weighted=False),
        "beta": 1e-3,
        "reference": FixedReference(),
        "advantage": GroupAdvantage(std=True),
    }
    yield Algorithm(
        **grpo,
        preset="paper",
        description="PPO clip on group-normalised rewards, unweighted k3 to the initial model.",
        clip=PPO,
        loss_agg_mode="seq-mean-token-mean",
    )
    yield Algorithm(
        **grpo,
        preset="released",
        description="With dual clip (c = 10) and the mean over all tokens, as in the released scripts.",
        clip=PPO.model_copy(update={"c": 10.0}),
        loss_agg_mode="token-mean",
    )
    yield Algorithm(
        **{
            **grpo,
            "name": "grpo-corrected",
            "display_name": "GRPO (corrected KL)",
            "citation": f"{RPG_PAPER}; DeepSeek-V3.2, eq. 7",
            "description": "GRPO whose k3 carries the importance ratio: the KL term is exactly URKL's.",
            "formula": "−min(wA, clip(w)A) + β w k3(ref/π)",
            "objective": "E_π[R] − β KL(π‖ref), reward term clipped",
            "paper_rows": (),
            "kl": LossKL(estimator="k3", weighted=True),
        },
        clip=PPO,
        loss_agg_mode="seq-mean-token-mean",
    )
    yield Algorithm(
        name="dr-grpo",
        display_name="Dr. GRPO",
        description="GRPO without its two biases: no division by standard deviation or length.",
        citation="Liu et al., Dr. GRPO, arXiv 2503.20783",
        formula="−min(wA, clip(w)A), summed over tokens / budget",
        objective="E_π[R], clipped",
        surrogate="ppo_clip",
        clip=PPO,
        advantage=GroupAdvantage(std=False),
        loss_agg_mode="seq-mean-token-sum-norm",
    )
    dapo: dict[str, Any] = {
        "name": "dapo",
        "display_name": "DAPO",
        "citation": "Yu et al., DAPO, arXiv 2503.14476",
        "objective": "E_π[R], clipped",
        "paper_rows": _rows("DAPO", *all_tables),
        "surrogate": "ppo_clip",
        "loss_agg_mode": "token-mean",
        "dynamic_sampling": True,
        "overlong": OVERLONG,
    }
    yield Algorithm(
        **dapo,
        preset="paper",
        description="Clip-higher, mean over tokens, no KL, dynamic sampling, overlong penalty.",
        formula="−min(wA, clip(w, 0.8, 1.28)A)",
        clip=DUAL.model_copy(update={"c": None}),
    )
    yield Algorithm(
        **dapo,
        preset="released",
        description="Like DAPO, with dual clip (c = 10) as in the released scripts.",
        formula="−min(wA, clip(w, 0.8, 1.28)A), dual clip",
        clip=DUAL,
    )
    rpp: dict[str, Any] = {
        "name": "reinforce-pp",
        "display_name": "REINFORCE++",
        "citation": "Hu, REINFORCE++, arXiv 2501.03262",
        "paper_rows": _rows("REINFORCE++", "Table 5", "Table 7", "Table 8"),
        "surrogate": "ppo_clip",
        "beta": 1e-4,
        "reference": FixedReference(),
        "advantage": BatchAdvantage(std=True),
    }
    yield Algorithm(
        **rpp,
        preset="paper",
        description="Token-level k1 in the reward, advantages whitened over the batch, PPO clip.",
        formula="−min(wA, clip(w)A), A = whiten(R − β Σ k1)",
        objective="E_π[R] − β KL(π‖ref), clipped",
        kl=RewardKL(estimator="k1"),
        clip=PPO,
    )
    rpp_released = {
        "description": "As in the released scripts: k1 in the loss, whose on-policy gradient averages to zero.",
        "formula": "−min(wA, clip(w)A) + β log(π/ref), dual clip",
        "objective": "E_π[R], clipped; on-policy no KL",
        "reference": OldReference(),  # they set use_iterative_ref_model
        "kl": LossKL(estimator="k1", weighted=False),
        "clip": DUAL,
        "dynamic_sampling": True,
        "overlong": OVERLONG,
        "preset": "released",
    }
    yield Algorithm(**{**rpp, **rpp_released})
    baseline = {
        **rpp,
        "name": "reinforce-pp-baseline",
        "display_name": "REINFORCE++-Baseline",
        "paper_rows": _rows("REINFORCE++-Baseline", "Table 5", "Table 7", "Table 8"),
        "advantage": GroupThenBatch(),
    }
    yield Algorithm(
        **baseline,
        preset="paper",
        description="Group mean as baseline, then whitened over the batch; k2 in the loss.",
        formula="−min(wA, clip(w)A) + β ½ log²(π/ref)",
        objective="E_π[R] clipped; on-policy − β KL(π‖ref)",
        kl=LossKL(estimator="k2", weighted=False),
        clip=PPO,
    )
    yield Algorithm(**{**baseline, **rpp_released})


def _more() -> Iterator[Algorithm]:
    yield Algorithm(
        name="rloo",
        display_name="RLOO",
        description="REINFORCE with the mean of the group's other rewards as baseline, k1 in the reward.",
        citation="Ahmadian et al., RLOO, arXiv 2402.14740",
        formula="−(R − mean of the others) log π",
        objective="E_π[R] − β KL(π‖ref), on-policy",
        surrogate="policy_gradient",
        kl=RewardKL(estimator="k1"),
        beta=1e-3,
        reference=FixedReference(),
        advantage=LeaveOneOut(),
        loss_agg_mode="seq-mean-token-sum",
    )
    yield Algorithm(
        name="ppo",
        display_name="PPO",
        description="Clipped surrogate, k1 in the reward; whitened returns, or a critic with advantage: gae.",
        citation="Schulman et al., PPO, arXiv 1707.06347",
        formula="−min(wA, clip(w)A)",
        objective="E_π[R] − β KL(π‖ref), clipped",
        surrogate="ppo_clip",
        kl=RewardKL(estimator="k1"),
        beta=1e-3,
        reference=FixedReference(),
        clip=PPO,
        advantage=BatchAdvantage(std=True),
    )
    yield Algorithm(
        name="gpg",
        display_name="GPG",
        description="Plain policy gradient on group-centred rewards, rescaled for groups without a signal.",
        citation="Chu et al., GPG, arXiv 2504.02546",
        formula="−α (R − group mean) log π",
        objective="E_π[R], on-policy",
        surrogate="policy_gradient",
        advantage=GroupAdvantage(std=False, rescale=True),
    )
    yield Algorithm(
        name="gspo",
        display_name="GSPO",
        description="PPO clip on the length-normalised ratio of the whole response.",
        citation="Zheng et al., GSPO, arXiv 2507.18071",
        formula="−min(sA, clip(s)A), s = (Π w)^(1/length)",
        objective="E_π[R], on-policy",
        surrogate="gspo",
        clip=Clip(low=3e-4, high=4e-4, c=None),
        ratio="sequence",
        loss_agg_mode="seq-mean-token-mean",
    )
    yield Algorithm(
        name="cispo",
        display_name="CISPO",
        description="The clipped ratio is a constant weight on log π, so no token loses its gradient.",
        citation="MiniMax, MiniMax-M1, arXiv 2506.13585",
        formula="−sg(clip(w)) A log π",
        objective="E_π[R], ratio truncated",
        surrogate="cispo",
        clip=Clip(low=1.0, high=0.28, c=None),
    )
    yield Algorithm(
        name="gmpo",
        display_name="GMPO",
        description="The geometric mean of a response's ratios, each clipped by itself (bounds of log w).",
        citation="Zhao et al., GMPO, arXiv 2507.20673",
        formula="−sA, s = (Π clip(w))^(1/length)",
        objective="E_π[R], on-policy",
        surrogate="gmpo",
        clip=Clip(low=0.4, high=0.4, c=None),
        ratio="sequence",
        loss_agg_mode="seq-mean-token-mean",
    )
    yield Algorithm(
        name="sapo",
        display_name="SAPO",
        description="A sigmoid of the ratio instead of a clip: tokens lose their gradient gradually.",
        citation="Gao et al., SAPO, arXiv 2511.20347",
        formula="−(4/τ) σ(τ(w − 1)) A",
        objective="E_π[R], on-policy",
        surrogate="gated",
        gate=SigmoidGate(),
        loss_agg_mode="seq-mean-token-mean",
    )
    yield Algorithm(
        name="opo",
        display_name="OPO",
        description="Plain policy gradient; the baseline is the group's mean weighted by length.",
        citation="Hao et al., OPO, arXiv 2505.23585",
        formula="−(R − Σ length R / Σ length) log π",
        objective="E_π[R], on-policy",
        surrogate="policy_gradient",
        advantage=GroupAdvantage(std=False, by_length=True),
    )
    yield Algorithm(
        name="luspo",
        display_name="LUSPO",
        description="GSPO with each response weighted by its length, so that no token of a long one counts less.",
        citation="Liu et al., LUSPO, arXiv 2602.05261",
        formula="−length min(sA, clip(s)A), s = (Π w)^(1/length)",
        objective="E_π[R], on-policy",
        surrogate="gspo",
        clip=Clip(low=2e-3, high=2.5e-3, c=None),
        ratio="sequence",
        loss_agg_mode="seq-mean-token-sum",
    )
    yield Algorithm(
        name="vespo",
        display_name="VESPO",
        description="The response's ratio W enters through a gamma density, which is 1 at W = 1 and vanishes at both ends.",
        citation="Shen et al., VESPO, arXiv 2602.10693",
        formula="−sg(W^k exp(λ(1 − W))) A log π, W = Π w",
        objective="E_π[R], on-policy",
        surrogate="gated",
        gate=GammaGate(),
        ratio="sequence",
    )
    measures: dict[Any, str] = {"tv": "probability", "kl": "two-outcome KL"}
    for by, measure in measures.items():
        yield Algorithm(
            name=f"dppo-{by}",
            display_name=f"DPPO-{by.upper()}",
            description=f"Tokens are masked by how far their {measure} has moved, not by their ratio.",
            citation="Qi et al., DPPO, arXiv 2602.04879",
            formula="−sg(min(w, c)) A log π, masked",
            objective="E_π[R], ratio truncated",
            surrogate="cispo",
            clip=Clip(low=1.0, high=19.0, c=None),
            mask=Mask(by=by),
        )
    prime: dict[str, Any] = {
        "citation": "Prime Intellect, prime-rl, 2026",
        "surrogate": "cispo",
        "drift_penalty": 1e-3,
        "advantage": GroupAdvantage(std=False),
    }
    yield Algorithm(
        **prime,
        name="prime-rl",
        display_name="prime-rl",
        description="The default loss of prime-rl: DPPO's mask and a penalty on log² w.",
        formula="−sg(w) A log π, masked, + τ log² w",
        objective="E_π[R], masked",
        mask=Mask(),
    )
    yield Algorithm(
        **prime,
        name="ipo",
        display_name="IPO",
        description="As prime-rl, and a token is masked whichever way its probability has moved.",
        formula="−sg(w) A log π where |π − old| ≤ 0.1, + τ log² w",
        objective="E_π[R], masked",
        mask=Mask(low=0.1, high=0.1, always=True),
    )
    yield Algorithm(
        name="dro",
        display_name="DRO",
        description="Plain policy gradient with a quadratic penalty on the log-ratio in place of a clip.",
        citation="Richemond et al., DRO, arXiv 2405.19107",
        formula="−A log π + ½ β log² w, β = 0.1",
        objective="E_π[R], on-policy",
        surrogate="policy_gradient",
        drift_penalty=0.05,
    )
    yield Algorithm(
        name="grpo-passk",
        display_name="GRPO-pass@k",
        description="Only a group's best response is reinforced, by its distance to the second best.",
        citation="Tang et al., GRPO-pass@k, arXiv 2503.19595",
        formula="−min(wA, clip(w)A), A = R₁ − R₂ for the best",
        objective="E_π[max of a group's R], clipped",
        surrogate="ppo_clip",
        clip=PPO,
        advantage=BestOfGroup(),
    )
    yield Algorithm(
        name="reinforce",
        display_name="REINFORCE",
        description="The score-function gradient with a batch-mean baseline; exact only on-policy.",
        citation="Williams, Machine Learning 8, 1992",
        formula="−(R − batch mean) log π",
        objective="E_π[R], on-policy",
        surrogate="policy_gradient",
        advantage=BatchAdvantage(std=False),
        loss_agg_mode="seq-mean-token-sum",
    )


def _distillation() -> Iterator[Algorithm]:
    """Entries whose reference is a teacher, and whose rewards are measured only."""
    shared: dict[str, Any] = {
        "beta": 1.0,
        "reference": ModelReference(),
        "advantage": RawReward(),
        "rewarded": False,
    }
    gkd = "Agarwal et al., GKD, arXiv 2306.13649"
    yield Algorithm(
        name="opd",
        display_name="OPD",
        description="On-policy distillation by the sampled token: each token's log(teacher/π) is its advantage.",
        citation="Lu et al., On-Policy Distillation, Thinking Machines Lab, 2025",
        formula="−sg(w log(teacher/π)) log π",
        objective="−KL(π‖teacher) at each token",
        surrogate="rpg",
        kl=ObjectiveKL(divergence="urkl", style="reinforce"),
        **shared,
    )
    penalties: dict[Any, str] = {"rkl": "KL(π‖teacher)", "fkl": "KL(teacher‖π)", "jsd": "JSD(teacher, π)"}
    for divergence, penalty in penalties.items():
        yield Algorithm(
            name=f"opd-{divergence}",
            display_name=f"OPD-{divergence.upper()}",
            description=f"On-policy distillation by {penalty} of the whole next-token distributions.",
            citation=gkd,
            formula=f"{penalty} at each token",
            objective=f"−{penalty} at each token",
            surrogate="rpg",
            kl=DistributionKL(divergence=divergence),
            **shared,
        )
    yield Algorithm(
        name="gkd",
        display_name="GKD",
        description="As OPD-JSD, and half of the responses are demonstrations (λ = 0.5).",
        citation=gkd,
        formula="JSD(teacher, π) at each token",
        objective="−JSD(teacher, π) at each token, of π's samples and demonstrations",
        surrogate="rpg",
        kl=DistributionKL(divergence="jsd"),
        demonstrations=0.5,
        **shared,
    )
    yield Algorithm(
        name="minillm",
        display_name="MiniLLM",
        description="The reverse KL of whole responses by clipped policy gradient: log(teacher/π) to go is the return.",
        citation="Gu et al., MiniLLM, arXiv 2306.08543",
        formula="−min(wA, clip(w)A), A = whiten(Σ log(teacher/old) from here on)",
        objective="−KL(π‖teacher) of responses, clipped",
        surrogate="ppo_clip",
        kl=RewardKL(estimator="k1"),
        clip=PPO,
        **{**shared, "advantage": BatchAdvantage(std=True)},
    )


def entries() -> Iterator[Algorithm]:
    """Every (name, preset) of the catalogue, in the order of the documentation."""
    for reinforce in (False, True):
        for divergence in DIVERGENCES.values():
            yield from _rpg(divergence, reinforce)
    yield from _baselines()
    yield from _more()
    yield from _distillation()
