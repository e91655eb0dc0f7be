"""Loaded by verl itself, in every process, through
VERL_USE_EXTERNAL_MODULES=rpg.backends.verl.plugin.

On a GPU it registers nothing that changes verl: trainer, workers, loss and reward are named in the
job's config and loaded from there. With VERL_PLATFORM=cpu it adds what verl lacks on a CPU
(rpg/backends/verl/cpu.py).
"""

from rpg.backends.verl import cpu

if cpu.is_chosen():
    cpu.part("install")()
