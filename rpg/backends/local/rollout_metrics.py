"""The numbers that a step reports of its rollout."""

from rpg.backends.local.rollout import Rollout


def rollout_metrics(rollout: Rollout, group_size: int) -> dict[str, float]:
    """Metrics of the first round's groups, except for the counts of groups."""
    graded = rollout.first
    samples = graded.samples
    lengths = samples.batch.written
    entropy = samples.entropy.sum(-1)
    right = graded.correct
    metrics = {}
    for name, rows in (("entropy_correct", right), ("entropy_wrong", ~right)):
        if rows.any():
            metrics[name] = float(entropy[rows].sum() / lengths[rows].sum())
    metrics["reward"] = float(graded.rewards.mean())
    metrics["accuracy"] = float(right.float().mean())
    metrics["entropy"] = float(samples.entropy.sum() / lengths.sum())
    metrics["response_length"] = float(lengths.float().mean())
    metrics["truncation_rate"] = float(samples.truncated.float().mean())
    metrics["groups_sampled"] = rollout.groups_sampled
    metrics["groups_kept"] = 0
    if rollout.kept is not None:
        metrics["groups_kept"] = len(rollout.kept) // group_size
    return metrics | graded.part_means() | graded.talk
