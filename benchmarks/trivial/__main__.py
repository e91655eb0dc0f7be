"""`python -m benchmarks.trivial ARGS`: the command `rpg` with trivial runs."""

import sys

from flows.machine import programs
from rpg.cli import main
from rpg.system.processes import die_with_parent


def install() -> None:
    """Let sweeps of this process use trivial stages, and a night audit nothing."""
    programs.PREPARE = "benchmarks.trivial.prepare"
    programs.TRAINER = "benchmarks.trivial.train"
    programs.EVALUATOR = "benchmarks.trivial.evaluate"
    if "nightly" in sys.orig_argv:
        from flows import nightly

        nightly._audit = dict  # computed with PyTorch, whose import takes longer than such a night


if __name__ == "__main__":
    die_with_parent()  # of a benchmark or a test that is stopped nothing goes on
    install()
    main()
