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
        return f"{self.title} ({self.unit})" if self.unit else self.title


_DECLARED = (
    Metric(
        "reward",
        "mean reward of the rollout, penalties included",
        "Training reward",
        "Rewards",
        shown=True,
        nightly=Band(0.0, 0.12),
    ),
    Metric(
        "accuracy",
        "share of the rollout's responses that are right",
        "Training accuracy",
        "Rewards",
        nightly=Band(0.0, 0.06),
    ),
    Metric(
        "validation_accuracy",
        "share of right responses in verl's own validation, if the run has one",
        "Validation accuracy",
        "Rewards",
        unit="share",
    ),
    Metric(
        "entropy",
        "mean entropy of the policy's next-token distribution, nats",
        "Entropy",
        "Updates",
        unit="nats per token",
        shown=True,
        nightly=Band(0.25, 0.02),
    ),
    Metric(
        "tool_calls",
        "calls of an environment's tools per response",
        "Calls of tools",
        "Rewards",
        unit="per response",
    ),
    Metric(
        "failed_calls",
        "share of the calls that could not be read or failed",
        "Failed calls",
        "Rewards",
        unit="share",
    ),
    Metric(
        "environment_tokens",
        "tokens per response that an environment wrote: context, never in a loss",
        "Tokens of the environment",
        "Work",
        unit="per response",
    ),
    Metric(
        "value_loss", "the critic's loss before each update, mean over the step's", "Value loss", "Updates"
    ),
    Metric(
        "value_explained",
        "share of the variance of the critic's targets that its values explain; below 0: worse than their mean",
        "Explained variance of returns",
        "Updates",
    ),
    Metric("loss", "policy loss, mean over the step's updates", "Loss", "Updates"),
    Metric(
        "kl_old_to_policy",
        "KL(old || policy), nats per token: how far the updates have moved",
        "KL(old || policy)",
        "Divergence",
        unit="nats per token",
        scale="decades",
        axis="~e",
        shown=True,
        nightly=Band(1.0, 1e-4, only_above=True),
    ),
    Metric(
        "kl_policy_to_old",
        "KL(policy || old), nats per token",
        "KL(policy || old)",
        "Divergence",
        unit="nats per token",
        scale="decades",
        axis="~e",
        shown=True,
    ),
    Metric(
        "kl_ref_to_policy",
        "KL(reference || policy), nats per token",
        "KL(reference || policy)",
        "Divergence",
        unit="nats per token",
        scale="decades",
        axis="~e",
        of_reference=True,
    ),
    Metric(
        "ref_mass_left_out",
        "the reference's probability of tokens beyond its top k, which the KL of whole distributions takes as one",
        "Reference's mass beyond top k",
        "Divergence",
        of_reference=True,
    ),
    Metric(
        "kl_policy_to_ref",
        "KL(policy || reference), nats per token",
        "KL(policy || reference)",
        "Divergence",
        unit="nats per token",
        scale="decades",
        axis="~e",
        of_reference=True,
    ),
    Metric(
        "ratio_mean", "mean importance ratio policy / old", "Mean importance ratio", "Ratios and clipping"
    ),
    Metric(
        "ratio_max",
        "largest importance ratio",
        "Largest importance ratio",
        "Ratios and clipping",
        scale="decades",
    ),
    Metric(
        "ess",
        "effective sample size of the ratios, as a fraction",
        "Effective sample size",
        "Ratios and clipping",
        unit="share",
    ),
    Metric(
        "clip_fraction",
        "share of tokens (or sequences) whose gradient was clipped away",
        "Clipped",
        "Ratios and clipping",
        unit="share",
        shown=True,
    ),
    Metric(
        "clip_fraction_upper",
        "share clipped at the upper bound",
        "Clipped at the upper bound",
        "Ratios and clipping",
        unit="share",
    ),
    Metric(
        "clip_fraction_lower",
        "share clipped at the lower bound",
        "Clipped at the lower bound",
        "Ratios and clipping",
        unit="share",
    ),
    Metric(
        "clip_fraction_dual",
        "share clipped by the dual clip c",
        "Clipped by the dual clip",
        "Ratios and clipping",
        unit="share",
    ),
    Metric(
        "grad_norm",
        "gradient norm before clipping, mean over the step's updates",
        "Gradient norm",
        "Updates",
        scale="log",
        shown=True,
        nightly=Band(0.75, 0.01, only_above=True),
    ),
    Metric(
        "grad_norm_max", "largest gradient norm of the step", "Largest gradient norm", "Updates", scale="log"
    ),
    Metric(
        "response_length",
        "mean response length in tokens",
        "Response length",
        "Rewards",
        unit="tokens",
        shown=True,
        nightly=Band(0.15, 1.0),
    ),
    Metric(
        "truncation_rate",
        "share of responses cut at the length limit",
        "Truncated responses",
        "Updates",
        unit="share",
    ),
    Metric("learning_rate", "learning rate", "Learning rate", "Updates", axis="~e"),
    Metric("groups_sampled", "prompt groups sampled, refills included", "Groups sampled", "Work"),
    Metric("groups_kept", "prompt groups trained on", "Groups kept", "Work"),
    Metric("tokens", "response tokens sampled so far", "Response tokens", "Work", axis="~s"),
    Metric("tokens_per_second", "response tokens per second of the step", "Tokens per second", "Work"),
    Metric("seconds_rollout", "seconds spent sampling", "Sampling", "Work", unit="seconds"),
    Metric("seconds_reward", "seconds spent grading", "Grading", "Work", unit="seconds"),
    Metric(
        "seconds_log_prob",
        "seconds spent on log-probabilities of old and reference",
        "Log-probabilities",
        "Work",
        unit="seconds",
    ),
    Metric("seconds_update", "seconds spent on updates", "Updates", "Work", unit="seconds"),
    Metric(
        "seconds_step",
        "seconds of the whole step",
        "Whole step",
        "Work",
        unit="seconds",
        nightly=Band(1.0, 0.2, only_above=True, never_red=True),
    ),
    Metric(
        "reference_age",
        "optimizer steps since the reference policy was last renewed",
        "Age of the reference",
        "Divergence",
        unit="optimizer steps",
    ),
    Metric(
        "sampler_age",
        "rollouts between the policy that sampled and the one that is updated (rollout.staleness)",
        "Age of the sampler",
        "Divergence",
        unit="rollouts",
    ),
    Metric(
        "kl_sampler_to_policy",
        "KL(sampler || policy) before the step's updates, nats per token: how stale or rounded the sampler is",
        "KL(sampler || policy)",
        "Divergence",
        unit="nats per token",
        scale="decades",
        axis="~e",
    ),
    Metric(
        "rollout_weight_mean",
        "mean weight of the samples, policy over sampler (algorithm.rollout_correction)",
        "Weight of the samples",
        "Divergence",
    ),
    Metric(
        "rollout_weight_ess",
        "effective sample size of the samples' weights, as a fraction (algorithm.rollout_correction)",
        "Effective sample size of the weights",
        "Divergence",
        unit="share",
    ),
    Metric(
        "rollout_weight_bounded",
        "share of the samples' weights that were truncated or masked (algorithm.rollout_correction)",
        "Weights truncated or masked",
        "Divergence",
        unit="share",
    ),
    Metric(
        "ratio_p01",
        "1st percentile of the tokens' importance ratios, in the step's last update",
        "Importance ratio, 1st percentile",
        "Ratios and clipping",
        scale="decades",
    ),
    Metric(
        "ratio_p50",
        "median of the tokens' importance ratios, in the step's last update",
        "Importance ratio, median",
        "Ratios and clipping",
    ),
    Metric(
        "ratio_p99",
        "99th percentile of the tokens' importance ratios, in the step's last update",
        "Importance ratio, 99th percentile",
        "Ratios and clipping",
        scale="decades",
    ),
    Metric(
        "kl_gradient_share",
        "norm of the KL term's gradient with respect to the log-probabilities, divided by the sum of this norm "
        "and that of the remaining gradient, in the step's last update",
        "Share of the KL in the gradient",
        "Divergence",
        unit="share",
    ),
    Metric(
        "entropy_correct",
        "entropy of the policy's next-token distribution in right responses, nats",
        "Entropy in right responses",
        "Updates",
        unit="nats per token",
    ),
    Metric(
        "entropy_wrong",
        "entropy of the policy's next-token distribution in wrong responses, nats",
        "Entropy in wrong responses",
        "Updates",
        unit="nats per token",
    ),
    Metric(
        "policy_entropy",
        "mean entropy of the policy during the updates, nats; only for a loss with an entropy bonus",
        "Entropy during updates",
        "Updates",
        unit="nats per token",
    ),
    Metric(
        "gradient_cosine",
        "cosine between the gradient of the step's last update and the exact gradient of its objective on the "
        "same responses (training.fidelity_every)",
        "Cosine to the exact gradient",
        "Updates",
    ),
    Metric(
        "gradient_bias",
        "distance between the same two gradients, relative to the norm of the exact one",
        "Bias of the gradient",
        "Updates",
        unit="share of the exact one",
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
