"""What a training step is measured by: every metric once.

The database documents its columns from here; the report, the dashboard and the nightly comparison take titles,
axes, groups and bands from here. Files may hold other numbers too (a back end's own, those of an older version):
they become columns like these, under their own name. docs/extending.md adds one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["Rewards", "Ratios and clipping", "Divergence", "Updates", "Work"]


@dataclass(frozen=True)
class Band:
    """Which nightly numbers count as different: those further from the median than `part` of it, than `least`, and
    than the usual spread. Numbers on a CPU repeat to the bit, so without a floor the smallest harmless change of the
    code would be red.
    """

    part: float
    least: float
    only_above: bool = False  # less of it is never worse
    never_red: bool = (
        False  # what else the machine does moves it: said when outside, but no reason to wake anybody
    )


@dataclass(frozen=True)
class Metric:
    """`title` and `unit` head its panel; `axis` is the number format of its axis (d3-format), for `decades` of a
    logarithmic one.
    """

    name: str
    meaning: str
    title: str
    unit: str
    group: Group
    scale: Literal["linear", "log", "decades"] = "linear"  # decades: logarithmic where values span several
    axis: str = ""
    shown: bool = False  # in the report's figure and on a run's page without being asked for
    nightly: Band | None = None
    of_reference: bool = False
    """About the reference policy: comparable only between variants that have the same one."""

    @property
    def heading(self) -> str:
        """Title and unit: what stands above a panel."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


METRICS: dict[str, Metric] = {}


def declare(metric: Metric) -> None:
    """Adds a metric; raises ValueError for a name that is taken."""
    if metric.name in METRICS:
        raise ValueError(f"metric {metric.name!r} is declared twice")
    METRICS[metric.name] = metric


def shown() -> tuple[str, ...]:
    """Names of the metrics that figures show without being asked."""
    return tuple(name for name, metric in METRICS.items() if metric.shown)


def groups() -> dict[str, tuple[str, ...]]:
    """Group -> its metrics, in the order they are declared."""
    found: dict[str, tuple[str, ...]] = {}
    for name, metric in METRICS.items():
        found[metric.group] = (*found.get(metric.group, ()), name)
    return found


declare(
    Metric(
        name="reward",
        meaning="mean reward of the rollout, penalties included",
        title="Training reward",
        unit="",
        group="Rewards",
        shown=True,
        nightly=Band(0.0, 0.12),
    )
)
declare(
    Metric(
        name="accuracy",
        meaning="share of the rollout's responses that are right",
        title="Training accuracy",
        unit="",
        group="Rewards",
        nightly=Band(0.0, 0.06),
    )
)
declare(
    Metric(
        name="validation_accuracy",
        meaning="share of right responses in verl's own validation, where the run asks for it",
        title="Validation accuracy",
        unit="share",
        group="Rewards",
    )
)
declare(
    Metric(
        name="entropy",
        meaning="mean entropy of the policy's next-token distribution, nats",
        title="Entropy",
        unit="nats per token",
        group="Updates",
        shown=True,
        nightly=Band(0.25, 0.02),
    )
)
declare(
    Metric(
        name="loss",
        meaning="policy loss, mean over the step's updates",
        title="Loss",
        unit="",
        group="Updates",
    )
)
declare(
    Metric(
        name="kl_old_to_policy",
        meaning="KL(old || policy), nats per token: how far the updates have moved",
        title="KL(old || policy)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        shown=True,
        nightly=Band(1.0, 1e-4, only_above=True),
    )
)
declare(
    Metric(
        name="kl_policy_to_old",
        meaning="KL(policy || old), nats per token",
        title="KL(policy || old)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        shown=True,
    )
)
declare(
    Metric(
        name="kl_ref_to_policy",
        meaning="KL(reference || policy), nats per token",
        title="KL(reference || policy)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        of_reference=True,
    )
)
declare(
    Metric(
        name="kl_policy_to_ref",
        meaning="KL(policy || reference), nats per token",
        title="KL(policy || reference)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        of_reference=True,
    )
)
declare(
    Metric(
        name="ratio_mean",
        meaning="mean importance ratio policy / old",
        title="Mean importance ratio",
        unit="",
        group="Ratios and clipping",
    )
)
declare(
    Metric(
        name="ratio_max",
        meaning="largest importance ratio",
        title="Largest importance ratio",
        unit="",
        group="Ratios and clipping",
        scale="decades",
    )
)
declare(
    Metric(
        name="ess",
        meaning="effective sample size of the ratios, as a fraction",
        title="Effective sample size",
        unit="share",
        group="Ratios and clipping",
    )
)
declare(
    Metric(
        name="clip_fraction",
        meaning="share of tokens (or sequences) whose gradient was clipped away",
        title="Clipped",
        unit="share",
        group="Ratios and clipping",
        shown=True,
    )
)
declare(
    Metric(
        name="clip_fraction_upper",
        meaning="share clipped at the upper bound",
        title="Clipped at the upper bound",
        unit="share",
        group="Ratios and clipping",
    )
)
declare(
    Metric(
        name="clip_fraction_lower",
        meaning="share clipped at the lower bound",
        title="Clipped at the lower bound",
        unit="share",
        group="Ratios and clipping",
    )
)
declare(
    Metric(
        name="clip_fraction_dual",
        meaning="share clipped by the dual clip c",
        title="Clipped by the dual clip",
        unit="share",
        group="Ratios and clipping",
    )
)
declare(
    Metric(
        name="grad_norm",
        meaning="gradient norm before clipping, mean over the step's updates",
        title="Gradient norm",
        unit="",
        group="Updates",
        scale="log",
        shown=True,
        nightly=Band(0.75, 0.01, only_above=True),
    )
)
declare(
    Metric(
        name="grad_norm_max",
        meaning="largest gradient norm of the step",
        title="Largest gradient norm",
        unit="",
        group="Updates",
        scale="log",
    )
)
declare(
    Metric(
        name="response_length",
        meaning="mean response length in tokens",
        title="Response length",
        unit="tokens",
        group="Rewards",
        shown=True,
        nightly=Band(0.15, 1.0),
    )
)
declare(
    Metric(
        name="truncation_rate",
        meaning="share of responses cut at the length limit",
        title="Truncated responses",
        unit="share",
        group="Updates",
    )
)
declare(
    Metric(
        name="learning_rate",
        meaning="learning rate",
        title="Learning rate",
        unit="",
        group="Updates",
        axis="~e",
    )
)
declare(
    Metric(
        name="groups_sampled",
        meaning="prompt groups sampled, refills included",
        title="Groups sampled",
        unit="",
        group="Work",
    )
)
declare(
    Metric(
        name="groups_kept",
        meaning="prompt groups trained on",
        title="Groups kept",
        unit="",
        group="Work",
    )
)
declare(
    Metric(
        name="tokens",
        meaning="response tokens sampled so far",
        title="Response tokens",
        unit="",
        group="Work",
        axis="~s",
    )
)
declare(
    Metric(
        name="tokens_per_second",
        meaning="response tokens per second of the step",
        title="Tokens per second",
        unit="",
        group="Work",
    )
)
declare(
    Metric(
        name="seconds_rollout",
        meaning="seconds spent sampling",
        title="Sampling",
        unit="seconds",
        group="Work",
    )
)
declare(
    Metric(
        name="seconds_reward",
        meaning="seconds spent grading",
        title="Grading",
        unit="seconds",
        group="Work",
    )
)
declare(
    Metric(
        name="seconds_log_prob",
        meaning="seconds spent on log-probabilities of old and reference",
        title="Log-probabilities",
        unit="seconds",
        group="Work",
    )
)
declare(
    Metric(
        name="seconds_update",
        meaning="seconds spent on updates",
        title="Updates",
        unit="seconds",
        group="Work",
    )
)
declare(
    Metric(
        name="seconds_step",
        meaning="seconds of the whole step",
        title="Whole step",
        unit="seconds",
        group="Work",
        nightly=Band(1.0, 0.2, only_above=True, never_red=True),
    )
)
declare(
    Metric(
        name="reference_age",
        meaning="optimizer steps since the reference was renewed",
        title="Age of the reference",
        unit="optimizer steps",
        group="Divergence",
    )
)
declare(
    Metric(
        name="sampler_age",
        meaning="rollouts between the policy that sampled and the one that is updated (rollout.staleness)",
        title="Age of the sampler",
        unit="rollouts",
        group="Divergence",
    )
)
declare(
    Metric(
        name="kl_sampler_to_policy",
        meaning="KL(sampler || policy) before the step's updates, nats per token: how stale or rounded the sampler is",
        title="KL(sampler || policy)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
    )
)
declare(
    Metric(
        name="rollout_weight_mean",
        meaning="mean weight of the samples, policy over sampler (algorithm.rollout_correction)",
        title="Weight of the samples",
        unit="",
        group="Divergence",
    )
)
declare(
    Metric(
        name="rollout_weight_ess",
        meaning="effective sample size of the samples' weights, as a fraction (algorithm.rollout_correction)",
        title="Effective sample size of the weights",
        unit="share",
        group="Divergence",
    )
)
declare(
    Metric(
        name="rollout_weight_bounded",
        meaning="share of the samples' weights that were truncated or masked (algorithm.rollout_correction)",
        title="Weights truncated or masked",
        unit="share",
        group="Divergence",
    )
)
declare(
    Metric(
        name="ratio_p01",
        meaning="1st percentile of the tokens' importance ratios, in the step's last update",
        title="Importance ratio, 1st percentile",
        unit="",
        group="Ratios and clipping",
        scale="decades",
    )
)
declare(
    Metric(
        name="ratio_p50",
        meaning="median of the tokens' importance ratios, in the step's last update",
        title="Importance ratio, median",
        unit="",
        group="Ratios and clipping",
    )
)
declare(
    Metric(
        name="ratio_p99",
        meaning="99th percentile of the tokens' importance ratios, in the step's last update",
        title="Importance ratio, 99th percentile",
        unit="",
        group="Ratios and clipping",
        scale="decades",
    )
)
declare(
    Metric(
        name="kl_gradient_share",
        meaning="norm of what the KL adds to the gradient with respect to the log-probabilities, "
        "as a share of the norms of this part and of the rest added up, "
        "in the last update",
        title="Share of the KL in the gradient",
        unit="share",
        group="Divergence",
    )
)
declare(
    Metric(
        name="entropy_correct",
        meaning="entropy of the policy's next-token distribution in right responses, nats",
        title="Entropy in right responses",
        unit="nats per token",
        group="Updates",
    )
)
declare(
    Metric(
        name="entropy_wrong",
        meaning="entropy of the policy's next-token distribution in wrong responses, nats",
        title="Entropy in wrong responses",
        unit="nats per token",
        group="Updates",
    )
)
declare(
    Metric(
        name="policy_entropy",
        meaning="mean entropy of the policy during the updates, nats; where the loss has an entropy bonus",
        title="Entropy during updates",
        unit="nats per token",
        group="Updates",
    )
)
declare(
    Metric(
        name="gradient_cosine",
        meaning="cosine between the gradient of the step's last update and the exact one of its objective on the same "
        "responses (training.fidelity_every)",
        title="Cosine to the exact gradient",
        unit="",
        group="Updates",
    )
)
declare(
    Metric(
        name="gradient_bias",
        meaning="distance between these two gradients, relative to the exact one",
        title="Bias of the gradient",
        unit="share of the exact one",
        group="Updates",
    )
)
