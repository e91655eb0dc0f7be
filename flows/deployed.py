"""The flows of `rpg serve` for a Prefect worker of your own (prefect.yaml), which is not told what the command is."""

import os

from flows.prefect.flow_runs import COMMAND
from flows.serve.deployments import aggregate, audit, evaluate, nightly, study, sweep

__all__ = ["aggregate", "audit", "evaluate", "nightly", "study", "sweep"]

os.environ.setdefault(COMMAND, "rpg.__main__")
