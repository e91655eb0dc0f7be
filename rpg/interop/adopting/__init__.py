"""From what somebody has (data, a script for TRL, a command for verl) to files that this project
trains from.

`read_source` says what is there, executing nothing; `propose` chooses columns, a verifier and a
split for the rows, and writes them; `rpg.interop.adopting.first_samples` says what the model makes
of them before anything is trained.
"""

from rpg.interop.adopting.proposal import propose, shown_prompts
from rpg.interop.adopting.sources import read_source
from rpg.interop.adopting.taken_over import Source

__all__ = ["Source", "propose", "read_source", "shown_prompts"]
