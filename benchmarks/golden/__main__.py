"""Compare what two revisions of this repository do, on this machine.

    python -m benchmarks.golden compare REV_A REV_B [--only PART ...] [--lines N]
    python -m benchmarks.golden dump OUT [--only PART ...]
    python -m benchmarks.golden parts

A revision is a name that git knows, or `.`: the files as they are in the working tree. `compare`
checks both out, runs this copy of the dumper on each, and prints what differs; exit code 1 if
anything does. Revisions, digests of sources, times and paths are left out. Dumps are kept in
git's folder, so that a revision is dumped once for each version of the dumper.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.golden.differences import describe
from benchmarks.golden.dumping import PARTS, dump_part
from benchmarks.golden.revisions import Repository


def compare(first: str, second: str, parts: list[str], most_lines: int) -> int:
    """Print the differences between two revisions, part by part. 1 if there are any."""
    repository = Repository()
    before = repository.resolve(first)
    after = repository.resolve(second)
    print(f"comparing {before.label} with {after.label}", flush=True)
    differing = 0
    for part in parts:
        differences = describe(
            repository.dumped(before, part), repository.dumped(after, part), most_lines
        )
        if differences:
            print(f"{part}: DIFFERS", *differences, sep="\n", flush=True)
            differing += 1
        else:
            print(f"{part}: equal", flush=True)
    return 1 if differing else 0


def dump(out: Path, parts: list[str]) -> int:
    for part in parts:
        dump_part(part, out / part)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare")
    comparing.add_argument("first")
    comparing.add_argument("second")
    comparing.add_argument("--lines", type=int, default=20, help="most lines printed for a file")
    dumping = commands.add_parser("dump")
    dumping.add_argument("out", type=Path)
    commands.add_parser("parts")
    for subparser in (comparing, dumping):
        subparser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    if arguments.command == "parts":
        for part, what in PARTS.items():
            print(f"{part:10s} {what}")
        return 0
    if arguments.command == "compare":
        return compare(arguments.first, arguments.second, arguments.only, arguments.lines)
    return dump(arguments.out, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
