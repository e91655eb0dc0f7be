"""Put on PYTHONPATH by benchmarks.chaos: lets a process believe that the wall clock has jumped by
some seconds."""

import os
import time

_JUMP = float(os.environ.get("RPG_CHAOS_CLOCK", "0"))
if _JUMP:
    _now = time.time
    time.time = lambda: _now() + _JUMP
