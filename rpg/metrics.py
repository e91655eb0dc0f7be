"""The metrics of a training step, each declared once.

The database takes the documentation of its columns from here; the report, the dashboard and the nightly comparison take
titles, axes, groups and bands. Metrics files may hold further numbers (specific to a back end, or from an older version):
they become columns too, under the names they have in the file. docs/extending.md shows how to add a metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["Rewards", "Ratios and clipping", "Divergence", "Updates", "Work"]


@dataclass(frozen=True)
class Band:
    """How far tonight's number may be from the median of earlier nights: at least `part` of the median, at least `least`,
    and at least the usual spread. Without such a floor the smallest harmless change of the code would be red, because
    numbers on a CPU repeat to the bit.
    """

    part: float
    least: float
    only_above: bool = False  # lower is never worse
    never_red: bool = False  # depends on the load of the machine: reported, but never red


@dataclass(frozen=True)
class Metric:
    """`title` and `unit` stand above its panel; `axis` is the number format of its axis (d3-format; with the scale
    `decades`, of a logarithmic axis only).
    """

    name: str
    meaning: str
    title: str
    group: Group
    unit: str = ""
    scale: Literal["linear", "log", "decades"] = "linear"  # decades: logarithmic if the values span several
    axis: str = ""
    shown: bool = False  # in the report's figure and on the page of a run by default
    nightly: Band | None = None
    of_reference: bool = False
    """Measured against the reference policy: comparable only between variants with the same reference."""

    @property
    def heading(self) -> str:
        """Title and unit, the heading of a panel."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


_DECLARED = (
    Metric(
        name="reward",
        meaning="mean reward of the rollout, penalties included",
        title="Training reward",
        group="Rewards",
        shown=True,
        nightly=Band(0.0, 0.12),
    ),
    Metric(
        name="accuracy",
        meaning="share of the rollout's responses that are right",
        title="Training accuracy",
        group="Rewards",
        nightly=Band(0.0, 0.06),
    ),
    Metric(
        name="validation_accuracy",
        meaning="share of right responses in verl's own validation, if the run has one",
        title="Validation accuracy",
        unit="share",
        group="Rewards",
    ),
    Metric(
        name="entropy",
        meaning="mean entropy of the policy's next-token distribution, nats",
        title="Entropy",
        unit="nats per token",
        group="Updates",
        shown=True,
        nightly=Band(0.25, 0.02),
    ),
    Metric(
        name="loss",
        meaning="policy loss, mean over the step's updates",
        title="Loss",
        group="Updates",
    ),
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
    ),
    Metric(
        name="kl_policy_to_old",
        meaning="KL(policy || old), nats per token",
        title="KL(policy || old)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        shown=True,
    ),
    Metric(
        name="kl_ref_to_policy",
        meaning="KL(reference || policy), nats per token",
        title="KL(reference || policy)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        of_reference=True,
    ),
    Metric(
        name="kl_policy_to_ref",
        meaning="KL(policy || reference), nats per token",
        title="KL(policy || reference)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
        of_reference=True,
    ),
    Metric(
        name="ratio_mean",
        meaning="mean importance ratio policy / old",
        title="Mean importance ratio",
        group="Ratios and clipping",
    ),
    Metric(
        name="ratio_max",
        meaning="largest importance ratio",
        title="Largest importance ratio",
        group="Ratios and clipping",
        scale="decades",
    ),
    Metric(
        name="ess",
        meaning="effective sample size of the ratios, as a fraction",
        title="Effective sample size",
        unit="share",
        group="Ratios and clipping",
    ),
    Metric(
        name="clip_fraction",
        meaning="share of tokens (or sequences) whose gradient was clipped away",
        title="Clipped",
        unit="share",
        group="Ratios and clipping",
        shown=True,
    ),
    Metric(
        name="clip_fraction_upper",
        meaning="share clipped at the upper bound",
        title="Clipped at the upper bound",
        unit="share",
        group="Ratios and clipping",
    ),
    Metric(
        name="clip_fraction_lower",
        meaning="share clipped at the lower bound",
        title="Clipped at the lower bound",
        unit="share",
        group="Ratios and clipping",
    ),
    Metric(
        name="clip_fraction_dual",
        meaning="share clipped by the dual clip c",
        title="Clipped by the dual clip",
        unit="share",
        group="Ratios and clipping",
    ),
    Metric(
        name="grad_norm",
        meaning="gradient norm before clipping, mean over the step's updates",
        title="Gradient norm",
        group="Updates",
        scale="log",
        shown=True,
        nightly=Band(0.75, 0.01, only_above=True),
    ),
    Metric(
        name="grad_norm_max",
        meaning="largest gradient norm of the step",
        title="Largest gradient norm",
        group="Updates",
        scale="log",
    ),
    Metric(
        name="response_length",
        meaning="mean response length in tokens",
        title="Response length",
        unit="tokens",
        group="Rewards",
        shown=True,
        nightly=Band(0.15, 1.0),
    ),
    Metric(
        name="truncation_rate",
        meaning="share of responses cut at the length limit",
        title="Truncated responses",
        unit="share",
        group="Updates",
    ),
    Metric(
        name="learning_rate",
        meaning="learning rate",
        title="Learning rate",
        group="Updates",
        axis="~e",
    ),
    Metric(
        name="groups_sampled",
        meaning="prompt groups sampled, refills included",
        title="Groups sampled",
        group="Work",
    ),
    Metric(
        name="groups_kept",
        meaning="prompt groups trained on",
        title="Groups kept",
        group="Work",
    ),
    Metric(
        name="tokens",
        meaning="response tokens sampled so far",
        title="Response tokens",
        group="Work",
        axis="~s",
    ),
    Metric(
        name="tokens_per_second",
        meaning="response tokens per second of the step",
        title="Tokens per second",
        group="Work",
    ),
    Metric(
        name="seconds_rollout",
        meaning="seconds spent sampling",
        title="Sampling",
        unit="seconds",
        group="Work",
    ),
    Metric(
        name="seconds_reward",
        meaning="seconds spent grading",
        title="Grading",
        unit="seconds",
        group="Work",
    ),
    Metric(
        name="seconds_log_prob",
        meaning="seconds spent on log-probabilities of old and reference",
        title="Log-probabilities",
        unit="seconds",
        group="Work",
    ),
    Metric(
        name="seconds_update",
        meaning="seconds spent on updates",
        title="Updates",
        unit="seconds",
        group="Work",
    ),
    Metric(
        name="seconds_step",
        meaning="seconds of the whole step",
        title="Whole step",
        unit="seconds",
        group="Work",
        nightly=Band(1.0, 0.2, only_above=True, never_red=True),
    ),
    Metric(
        name="reference_age",
        meaning="optimizer steps since the reference policy was last renewed",
        title="Age of the reference",
        unit="optimizer steps",
        group="Divergence",
    ),
    Metric(
        name="sampler_age",
        meaning="rollouts between the policy that sampled and the one that is updated (rollout.staleness)",
        title="Age of the sampler",
        unit="rollouts",
        group="Divergence",
    ),
    Metric(
        name="kl_sampler_to_policy",
        meaning="KL(sampler || policy) before the step's updates, nats per token: how stale or rounded the sampler is",
        title="KL(sampler || policy)",
        unit="nats per token",
        group="Divergence",
        scale="decades",
        axis="~e",
    ),
    Metric(
        name="rollout_weight_mean",
        meaning="mean weight of the samples, policy over sampler (algorithm.rollout_correction)",
        title="Weight of the samples",
        group="Divergence",
    ),
    Metric(
        name="rollout_weight_ess",
        meaning="effective sample size of the samples' weights, as a fraction (algorithm.rollout_correction)",
        title="Effective sample size of the weights",
        unit="share",
        group="Divergence",
    ),
    Metric(
        name="rollout_weight_bounded",
        meaning="share of the samples' weights that were truncated or masked (algorithm.rollout_correction)",
        title="Weights truncated or masked",
        unit="share",
        group="Divergence",
    ),
    Metric(
        name="ratio_p01",
        meaning="1st percentile of the tokens' importance ratios, in the step's last update",
        title="Importance ratio, 1st percentile",
        group="Ratios and clipping",
        scale="decades",
    ),
    Metric(
        name="ratio_p50",
        meaning="median of the tokens' importance ratios, in the step's last update",
        title="Importance ratio, median",
        group="Ratios and clipping",
    ),
    Metric(
        name="ratio_p99",
        meaning="99th percentile of the tokens' importance ratios, in the step's last update",
        title="Importance ratio, 99th percentile",
        group="Ratios and clipping",
        scale="decades",
    ),
    Metric(
        name="kl_gradient_share",
        meaning="norm of the KL term's gradient with respect to the log-probabilities, divided by the sum of this norm "
        "and that of the remaining gradient, in the step's last update",
        title="Share of the KL in the gradient",
        unit="share",
        group="Divergence",
    ),
    Metric(
        name="entropy_correct",
        meaning="entropy of the policy's next-token distribution in right responses, nats",
        title="Entropy in right responses",
        unit="nats per token",
        group="Updates",
    ),
    Metric(
        name="entropy_wrong",
        meaning="entropy of the policy's next-token distribution in wrong responses, nats",
        title="Entropy in wrong responses",
        unit="nats per token",
        group="Updates",
    ),
    Metric(
        name="policy_entropy",
        meaning="mean entropy of the policy during the updates, nats; only for a loss with an entropy bonus",
        title="Entropy during updates",
        unit="nats per token",
        group="Updates",
    ),
    Metric(
        name="gradient_cosine",
        meaning="cosine between the gradient of the step's last update and the exact gradient of its objective on the "
        "same responses (training.fidelity_every)",
        title="Cosine to the exact gradient",
        group="Updates",
    ),
    Metric(
        name="gradient_bias",
        meaning="distance between the same two gradients, relative to the norm of the exact one",
        title="Bias of the gradient",
        unit="share of the exact one",
        group="Updates",
    ),
    # Further metrics go here.
)

METRICS = {metric.name: metric for metric in _DECLARED}
if len(METRICS) < len(_DECLARED):
    raise ValueError("rpg/metrics.py declares a metric twice")


def shown() -> tuple[str, ...]:
    """Names of the metrics that figures show by default."""
    return tuple(name for name, metric in METRICS.items() if metric.shown)


def groups() -> dict[str, tuple[str, ...]]:
    """Group -> names of its metrics, in the order of declaration."""
    by_group: dict[str, tuple[str, ...]] = {}
    for name, metric in METRICS.items():
        by_group[metric.group] = (*by_group.get(metric.group, ()), name)
    return by_group
