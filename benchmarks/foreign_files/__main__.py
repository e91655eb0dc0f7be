"""Whether files of other people's repositories are read as what they are.

    python -m benchmarks.foreign_files FOLDER

FOLDER holds copies, as FOLDER/owner+name/path, of the files named in readings.yaml at the commits
given there. Printed is one line a file; files that are not there are counted. Ends with 1 where a
reading differs from the expected one. TRL's and verl's files need the extra `peers`.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rpg.auditing.configured_losses import described
from rpg.auditing.foreign_settings import read_settings
from rpg.auditing.linter import read_loss
from rpg.auditing.pinned import trainers
from rpg.errors import UserError

READINGS = Path(__file__).with_name("readings.yaml")


@dataclass(frozen=True)
class Expected:
    """One row of the table. `refused` is a part of the refusal; else the file is read as a trainer,
    with these settings, and `said` is a part of what is said about it."""

    repository: str
    path: str
    read_as: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    refused: str = ""

    def copy(self, folder: Path) -> Path:
        return folder / self.repository.replace("/", "+") / self.path


@dataclass(frozen=True)
class Outcome:
    expected: Expected
    reading: str
    differences: list[str]


def expectations() -> Iterator[Expected]:
    """The rows of readings.yaml."""
    table = yaml.safe_load(READINGS.read_text("utf-8"))
    for repository, entry in table.items():
        for path, reading in entry["files"].items():
            yield Expected(repository, path, **reading)


def check(expected: Expected, folder: Path) -> Outcome:
    """Read one file, and compare."""
    file = expected.copy(folder)
    try:
        given = read_settings(file)
        reading = read_loss(file, given)
    except UserError as error:
        refusal = " ".join(str(error).replace(f"{file}", "").split())
        differs = not expected.refused or expected.refused not in refusal
        return Outcome(expected, f"refused: {refusal}", ["refused"] if differs else [])
    _, defaults = described(trainers()[given.trainer], given.configuration)
    settings = defaults | given.values
    differences = list[str]()
    if given.trainer != expected.read_as:
        differences.append(f"read as {given.trainer}")
    for key, value in expected.settings.items():
        if settings.get(key) != value or key in given.unresolved:
            differences.append(f"{key} is {settings.get(key)!r}, not {value!r}")
    sentences = " ".join([*reading.missing, *reading.remarks])
    if expected.said not in sentences:
        differences.append(f"not said: {expected.said}")
    return Outcome(expected, f"{reading.source}: {reading.subject.name}", differences)


def main(folder: Path) -> int:
    rows = list(expectations())
    there = [expected for expected in rows if expected.copy(folder).is_file()]
    outcomes = [check(expected, folder) for expected in there]
    for outcome in outcomes:
        mark = "DIFFERS" if outcome.differences else "ok"
        address = f"{outcome.expected.repository}/{outcome.expected.path}"
        print(f"{mark:8}{address}\n        {outcome.reading[:160]}")
        for difference in outcome.differences:
            print(f"        {difference}")
    wrong = sum(bool(outcome.differences) for outcome in outcomes)
    print(f"{len(there)} of {len(rows)} files are there, {wrong} read otherwise than expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
