"""`python -m benchmarks.trivial ARGS`: the command `rpg` with trivial runs."""

import flows.sweep
import flows.training
from rpg.cli import main
from rpg.guard import die_with_parent


def install() -> None:
    """Let sweeps of this process use trivial stages. Before flows.stages is imported."""
    flows.sweep.PREPARE = "benchmarks.trivial.prepare"
    flows.training.TRAINER = "benchmarks.trivial.train"
    flows.sweep.EVALUATOR = "benchmarks.trivial.evaluate"


if __name__ == "__main__":
    die_with_parent()  # of a benchmark or a test that is stopped nothing goes on
    install()
    main()
