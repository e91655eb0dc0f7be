"""Engines with a log of every sample that they draw."""

import os
import signal
import time

from rpg.evaluation import graded_samples
from rpg.evaluation.engines.local import LocalEngine
from tests.waiting import until

ROWS = 8


def count(log, kill=0, together=0, patch=setattr):
    """Have engines append a line per sample to `log` before they draw it, and draw and store few
    samples at a time. In the batch with the number `kill` (0: never) the process kills itself; it
    draws when `together` processes are there."""
    if together:
        log.with_name(f"{log.name}.{os.getpid()}").touch()
    complete = LocalEngine.complete
    decode = LocalEngine._decode
    batches = []

    def few(self, requests):
        self.rows = ROWS
        return complete(self, requests)

    def counted(self, requests):
        batches.append(len(requests))
        with open(log, "a") as file:
            file.write("".join(f"{request.key[2]} {request.key[3]}\n" for request in requests))
        if len(batches) == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if together:
            until(
                lambda: len(list(log.parent.glob(f"{log.name}.*"))) >= together, "the other process"
            )
            time.sleep(0.3)
        return decode(self, requests)

    patch(LocalEngine, "complete", few)
    patch(LocalEngine, "_decode", counted)
    patch(graded_samples, "_FLUSH_ROWS", ROWS)
