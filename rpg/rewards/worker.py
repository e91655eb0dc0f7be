"""The process in which answers are compared: `python -m rpg.rewards.worker`, one JSON object per line in and out.

Whatever an answer makes it do, it ends: the kernel kills it when it has used its CPU time for one answer (a timer
whose signal Python does not handle, so no C code can hold it up), and memory beyond its limit is refused. The time
is that of the processor, so a verdict does not depend on how busy the machine is.
"""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import signal
import sys


def main() -> None:
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    # Only our own lines may go to the pipe: a library that prints must not break the protocol.
    replies = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.CRITICAL)  # math-verify warns that its own time limits are off
    forbid_evaluation()

    from rpg.rewards.compare import equivalent

    equivalent("x^2-1", "(x-1)(x+1)")  # loads grammar and simplifier, which takes longer than most answers
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    replies.write("ready\n")
    for line in sys.stdin:
        gold, answer, tolerance = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            right, reason = equivalent(gold, answer, tolerance)
        except MemoryError:
            right, reason = False, "memory limit"
        except RecursionError:
            right, reason = False, "nested too deeply"
        except Exception as error:  # a library that fails on an answer says that it cannot be read
            right, reason = False, f"cannot be compared ({type(error).__name__})"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps([right, reason]) + "\n")


_NUMBER = r"(?:Integer|Float) \( *'?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)'? *\)"
_LITERAL = re.compile(rf"({_NUMBER})(?: */ *({_NUMBER}))? *")


def forbid_evaluation() -> None:
    """Replace the `eval` at the bottom of sympy's reader of Python expressions in this process.

    The LaTeX reader of latex2sympy2-extended builds its numbers through it (`sympy.Number(text)`), so literals of
    numbers are made here without evaluation; anything else raises. sympy's own modules name constants through it
    while they are imported, so those are imported first.
    """
    import sympy
    import sympy.physics.units
    from sympy.parsing import sympy_parser

    def number(text: str):
        value = text.partition("(")[2].strip(" ')")
        return sympy.Integer(int(value)) if text.startswith("Integer") else sympy.Float(value)

    def literal(code, _local, _global):
        match = _LITERAL.fullmatch(code.strip())
        if not match:
            raise ValueError("evaluation of text is not allowed here")
        return number(match[1]) / (number(match[2]) if match[2] else 1)

    sympy_parser.eval_expr = literal


if __name__ == "__main__":
    main()
