"""Pure torch functions: the loss of any algorithm, its parts, the advantages.

In: log-probabilities, advantages and a mask, all (B, T): responses, tokens; and an `Algorithm` of
the catalogue. Out: a scalar loss with its gradient, and metrics as floats. No effects, no files.
Read first: policy_loss.py.
"""
