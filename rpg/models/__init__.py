"""Language models: loading, sampling, log-probabilities, warm starts.

In: a model section of a configuration, or a checkpoint's folder. Out: a `Policy` that samples
responses and scores tokens. Trainers and evaluation share it. Read first: policy.py, then
decoding.py.
"""
