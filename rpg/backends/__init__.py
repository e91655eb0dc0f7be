"""What trains a run, and what both back ends share.

In: a run folder with its manifest. Out: metrics, checkpoints and token records in that folder.
`local` trains in one process; `verl` runs verl on Ray. Beside them stand what both use: the
manifest, prompts, optimizer steps, records of tokens, the process. Read first: local/trainer.py.
"""
