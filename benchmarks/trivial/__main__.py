"""`python -m benchmarks.trivial ARGS`: the command `rpg` with trivial runs."""

from flows.machine import children as processes
from rpg.cli import main
from rpg.processes import die_with_parent


def install() -> None:
    """Let sweeps of this process use trivial stages."""
    processes.PREPARE = "benchmarks.trivial.prepare"
    processes.TRAINER = "benchmarks.trivial.train"
    processes.EVALUATOR = "benchmarks.trivial.evaluate"


if __name__ == "__main__":
    die_with_parent()  # of a benchmark or a test that is stopped nothing goes on
    install()
    main()
