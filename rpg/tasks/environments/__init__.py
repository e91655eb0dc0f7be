"""Environments with which a policy takes turns: `Environments` (process) runs them in a bounded
process (worker)."""
