"""Sparse YAML in, resolved and hashed specifications out."""
