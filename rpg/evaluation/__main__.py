"""python -m rpg.evaluation SWEEP_DIR: evaluate the checkpoints of all runs of a sweep as they
appear.

It ends when its standard input is closed (all trainings are over) and no checkpoint has a pending
evaluation; with --drain it evaluates the existing checkpoints and ends. Exit codes: 0 done, 1 it
cannot continue, 75 another process evaluates this sweep. A checkpoint that cannot be evaluated is a
warning and a file `step-*.error.json`, and does not stop the rest.
"""

import argparse
import sys
from pathlib import Path

from rpg.errors import UserError
from rpg.evaluation.resource_limits import confine
from rpg.store.layout import Layout
from rpg.store.locks import Busy, only_one
from rpg.system.processes import BUSY, die_with_parent, quick_imports, stdin_closed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpg.evaluation", description=__doc__)
    parser.add_argument("sweep", type=Path, help="the sweep's folder, with a folder per run")
    parser.add_argument(
        "--drain", action="store_true", help="evaluate the existing checkpoints, then end"
    )
    share = "only the I-th of N parts"
    parser.add_argument("--share", type=_share, default=(1, 1), metavar="I/N", help=share)
    options = parser.parse_args(arguments)
    die_with_parent()

    sweep = options.sweep.resolve()
    if not sweep.is_dir():
        print(f"{sweep}: no such folder; expected a sweep's", file=sys.stderr)
        return 1
    try:
        lock = (
            ".evaluator"
            if options.share == (1, 1)
            else ".evaluator-{}-of-{}".format(*options.share)
        )
        with only_one(sweep / lock, f"{sweep} is already being evaluated"):
            _evaluate(sweep, options.drain, options.share)
    except UserError as error:
        print(error, file=sys.stderr)
        return BUSY if isinstance(error, Busy) else 1
    return 0


def _share(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected I/N, e.g. 1/8")
    return int(part), int(parts)


def _evaluate(sweep: Path, drain: bool, share: tuple[int, int]) -> None:
    with quick_imports():
        from rpg.evaluation.evaluator import Evaluator, limits_of  # noqa: PLC0415 (torch, imported quickly)

    layout = Layout(sweep.parents[1])
    limits = limits_of(layout, sweep.name)
    if limits is not None:
        confine(limits)
    evaluator = Evaluator(layout, sweep.name, lambda line: print(line, flush=True), limits, share)
    evaluator.until((lambda: True) if drain else stdin_closed)


if __name__ == "__main__":
    sys.exit(main())
