"""Invented results: the database, the files of the report, and what commands print."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from pathlib import Path

from benchmarks.golden.commands import VOLATILE, Commands, clean, stable
from benchmarks.synthetic import Shape, write_sweep

HOME = Path("lab")
OPTIONS = ("--home", str(HOME))
_LONG_NUMBER = re.compile(r"-?\b\d+\.\d{8,}(?:e[+-]?\d+)?\b")
RECORD = "made-of.json"
"""What a report was made of."""
_OF_FILES = {"bytes", "sha256"}
"""In the table of file records: of files that hold times."""
MOST_ROWS = 3000
"""Of a table, the first rows are written out; the others count through a digest."""


def dump(folder: Path) -> None:
    small = Shape(steps=20, eval_every=10, problems=12, samples=2)
    write_sweep(HOME, "seven", seeds=(0, 1, 2), shape=small)
    write_sweep(HOME, "two-seeds", variants=("grpo", "rpg-urkl"), seeds=(0, 1), shape=small)
    write_sweep(HOME, "one-seed", variants=("grpo", "dapo"), seeds=(0,), shape=small)
    large = Shape(steps=20, eval_every=20, problems=60, samples=4, benchmarks=("chain-hard",))
    betas = [f"rpg-urkl beta={beta}" for beta in ("0.001", "0.01", "0.1")]
    write_sweep(HOME, "betas", variants=("grpo", *betas), seeds=(0, 1, 2, 3, 4), shape=large)
    commands = Commands()
    for sweep in ("seven", "two-seeds", "one-seed", "betas"):
        commands.write(
            folder / f"printed-{sweep}.txt",
            [["report", sweep, *OPTIONS], ["status", sweep, *OPTIONS]],
        )
    commands.write(
        folder / "printed.txt",
        [
            ["report", "betas", "--at", "seconds", "--paper", "paper", *OPTIONS],
            ["report", "seven", "--paper", "paper-narrow", "--columns", "1", *OPTIONS],
            ["report", "sevenn", *OPTIONS],
            ["status", *OPTIONS],
            ["note", "seven", "a note", *OPTIONS],
            ["tag", "seven", "kept", *OPTIONS],
            [
                "sql",
                "select sweep, variant, count(*) from runs group by all order by all",
                *OPTIONS,
            ],
            ["sql", "select * from nothing", *OPTIONS],
            ["gc", *OPTIONS],
            ["rm", "one-seed", *OPTIONS],
            ["status", *OPTIONS],
            ["export", "tables", "--to", "csv", *OPTIONS],
        ],
    )
    for table in sorted(Path("tables").glob("*.csv")):
        _write_table(folder / "database" / table.name, table)
    for written in (HOME / "reports", Path("paper"), Path("paper-narrow")):
        for file in sorted(path for path in written.rglob("*") if path.is_file()):
            _write_file(folder / "reports" / written.name / file.relative_to(written), file)


def _write_table(path: Path, table: Path) -> None:
    """A table of the database, a row a line, without fields that change with each run."""
    left_out = VOLATILE | _OF_FILES if table.stem == "file_records" else VOLATILE
    csv.field_size_limit(2**30)
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    lines = [
        ", ".join(f"{name}={value}" for name, value in row.items() if name not in left_out)
        for row in rows
    ]
    lines = sorted(_rounded(clean(line)).strip() for line in lines)
    rest = hashlib.sha256("\n".join(lines[MOST_ROWS:]).encode()).hexdigest()
    lines = [f"{len(rows)} rows", *lines[:MOST_ROWS], f"the others: {rest}"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _write_file(path: Path, file: Path) -> None:
    """A file of a report: its text, or the digest of a picture. PDF files hold their date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".pdf":
        path.write_text("a PDF file\n")
    elif file.name == RECORD:
        value = json.loads(file.read_text("utf-8"))
        del value["results"]  # a fingerprint of files that hold times
        path.write_text(json.dumps(stable(value), indent=1) + "\n")
    elif file.suffix == ".png":
        path.write_text(hashlib.sha256(file.read_bytes()).hexdigest() + "\n")
    else:
        path.write_text(_rounded(clean(file.read_text("utf-8"))))


def _rounded(text: str) -> str:
    """Numbers to 12 digits: DuckDB adds in the order in which its threads end."""
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.12g}", text)
