NOT_ON_VERL = {"entropy_correct", "entropy_wrong", "ratio_p01", "ratio_p50", "ratio_p99", "kl_gradient_share"}
"""Metrics that only the embedded trainer measures."""
