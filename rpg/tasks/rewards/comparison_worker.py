"""The process that compares answers (rpg.tasks.rewards.json_process). First it is told its limits,
in seconds and bytes.

Whatever an answer makes it do, it ends: the kernel kills it when it has used its CPU time for one
answer (a timer whose signal Python does not handle, so no C code can hold it up), and memory beyond
its limit is refused. The time is that of the processor, so a verdict does not depend on how busy
the machine is.
"""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from rpg.system.processes import quick_imports


def serve(prepare: Callable[[], Callable[..., tuple[Any, str]]]) -> None:
    """Answer questions until standard input ends. `prepare` imports what is needed, and returns
    what answers a question's parts with a verdict and its reason."""
    # Only our own lines may go to the pipe: a library that prints must not break the protocol.
    replies = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.CRITICAL)  # math-verify warns that its own time limits are off
    with quick_imports():
        answer = prepare()
    cpu_seconds, memory_bytes = json.loads(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    replies.write("true\n")
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        verdict: Any = False
        try:
            verdict, reason = answer(*question)
        except MemoryError:
            reason = "memory limit"
        except RecursionError:
            reason = "nested too deeply"
        except Exception as error:  # noqa: BLE001 - scorers and sympy raise anything on an answer they cannot read
            reason = f"cannot be compared ({type(error).__name__})"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps([verdict, reason]) + "\n")


def _prepare() -> Callable[..., tuple[Any, str]]:
    from rpg.answers.comparison import equivalent, reread  # noqa: PLC0415 - what its imports print must not reach the pipe

    equivalent("x^2-1", "(x-1)(x+1)")

    def compare(gold: str, answer: str, tolerance: float, again: bool) -> tuple[Any, str]:
        return (reread(gold, answer), "") if again else equivalent(gold, answer, tolerance)

    return compare


if __name__ == "__main__":
    serve(_prepare)
