"""`python -m benchmarks.trivial ARGS`: the command `rpg` with trivial runs."""

from flows.machine import programs
from rpg.cli import main
from rpg.processes import die_with_parent


def install() -> None:
    """Let sweeps of this process use trivial stages."""
    programs.PREPARE = "benchmarks.trivial.prepare"
    programs.TRAINER = "benchmarks.trivial.train"
    programs.EVALUATOR = "benchmarks.trivial.evaluate"


if __name__ == "__main__":
    die_with_parent()  # of a benchmark or a test that is stopped nothing goes on
    install()
    main()
