def my_loss(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
    """-w (A - 0.3 log(policy/ref)), averaged over tokens: all arguments have the shape (responses,
    tokens)."""
    w = (log_prob - old_log_prob).exp()
    return ((-w * advantages + 0.3 * w * (log_prob - ref_log_prob)) * response_mask).mean()
