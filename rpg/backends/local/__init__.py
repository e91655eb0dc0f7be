"""The embedded trainer: reinforcement learning of a causal language model in one process, on a CPU
or one GPU.

Run as `python -m rpg.backends.local RUN_DIR`; see `rpg.backends.local.__main__`.
"""
