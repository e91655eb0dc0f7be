"""`rpg adopt` and its input and output, for the tests of this folder."""

import json

from typer.testing import CliRunner

from rpg.cli import load
from rpg.config.sweep_spec import load_file
from rpg.tasks.preparation import data_digest


def adopt(*words, **options):
    return CliRunner().invoke(load(), ["adopt", *words], catch_exceptions=False, **options)


def gsm8k(path, count=60):
    """As GSM8K's files are, with what ordinary files have: repeats, a NaN, a broken line, all kinds
    of line ends."""
    rows = [
        {
            "question": f"Ann has {n} pens and gets 7. How many?",
            "answer": f"{n} + 7 = {n + 7}\n#### {n + 7}",
        }
        for n in range(count)
    ]
    lines = [json.dumps(row) for row in [*rows, rows[3]]]
    odd = (
        '{"question": "broken',
        '{"question": "q", "answer": NaN}',
        "",
        '{"question": "no gold", "answer": "?"}',
    )
    lines[5:5] = odd
    text = "".join(line + ("\n", "\r\n", "\r")[n % 3] for n, line in enumerate(lines))
    path.write_text("\ufeff" + text, "utf-8", newline="")


def adopted(folder):
    return load_file(folder / "sweep.yaml", {}, data_digest).runs[0].spec


def rows_of(folder, name="train"):
    lines = (folder / f"{name}.jsonl").read_text("utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
