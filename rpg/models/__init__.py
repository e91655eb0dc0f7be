"""Language models: loading, sampling, log-probabilities. What trainers and evaluation share."""
