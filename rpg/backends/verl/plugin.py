"""Loaded by verl itself, in every process, through VERL_USE_EXTERNAL_MODULES=rpg.backends.verl.plugin.

On a GPU it registers nothing that changes verl: trainer, workers, loss and reward are named in the job's config and
loaded from there. With VERL_PLATFORM=cpu it adds the CPU platform (rpg/backends/verl/cpu).
"""

from __future__ import annotations

import os

if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from rpg.backends.verl import cpu

    cpu.install()
