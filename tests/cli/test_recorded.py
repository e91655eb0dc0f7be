"""`--json`: every command that prints a result has it, and prints one object of a stable form."""

import json
import re
from pathlib import Path

import pytest
import typer.main

from benchmarks.synthetic import write_sweep
from rpg.cli import load
from rpg.cli.recorded import SCHEMA, WITHOUT_RESULT

COMMANDS = typer.main.get_command(load()).commands
PAGE = Path(__file__).parents[2] / "docs" / "results.md"
KEYS = ["schema", "command", "exit_code", "result", "tables", "lines", "messages"]
TRIED = {
    "list": {"algorithms"},
    "list grpo": {"algorithms"},
    "paper": set(),
    "paper lint": set(),
    "doctor": {"findings"},
    "status": {"sweeps"},
    "report lab": {"sweep", "baseline", "benchmarks", "conclusion", "table", "equal", "notes"},
    "sql 'select variant, seed from runs'": {"columns", "rows", "more"},
    "sql 'select * from runs' --out runs.csv": {"rows", "out"},
    "note lab first": {"notes"},
    "tag lab paper": {"tags", "label"},
    "merge other": {"homes"},
    "gc --dry-run": {"items"},
    "aggregate": set(),
    "model": set(),
    "bench --list": {"measurements"},
    "export files --to csv": {"files"},
    "init my-lab": set(),
    "publish lab": {"kind", "name", "page", "files", "samples", "bytes"},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    write_sweep(folder / "rpg-data", "lab", ("grpo", "rpg-urkl"))
    write_sweep(folder / "other", "another", ("grpo", "rpg-urkl"))
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_a_result_has_the_option(name):
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT_RESULT)


@pytest.mark.parametrize("line", TRIED)
def test_the_object_has_the_documented_keys(line, lab, command_line, monkeypatch):
    monkeypatch.chdir(lab)
    monkeypatch.delenv("RPG_HOME", raising=False)
    words = [one or other for one, other in re.findall(r"'([^']*)'|(\S+)", line)]

    code, printed, _ = command_line(*words, "--json")

    made = json.loads(printed)
    assert list(made) == KEYS
    assert (made["schema"], made["command"], made["exit_code"]) == (SCHEMA, words[0], code)
    assert set(made["result"]) == TRIED[line]
    assert made["result"] or made["lines"] or made["tables"]


@pytest.mark.parametrize("line", [line for line in TRIED if TRIED[line]])
def test_the_page_names_the_values(line):
    page = PAGE.read_text("utf-8")
    rows = [row for row in page.splitlines() if f"`{line.split()[0]}`" in row]
    assert rows
    assert {key for key in TRIED[line] if f"`{key}`" not in "".join(rows)} == set()


def test_values_are_numbers_and_not_text(lab, command_line, monkeypatch):
    monkeypatch.chdir(lab)
    _, printed, _ = command_line("report", "lab", "--json")
    made = json.loads(printed)["result"]

    assert made["baseline"] == "grpo"
    assert all(isinstance(row["last"], float) for row in made["table"])


def test_messages_stay_on_standard_error_and_bad_input_prints_no_object(
    lab, command_line, monkeypatch
):
    monkeypatch.chdir(lab)
    code, printed, errors = command_line("report", "absent", "--json")
    assert (code, printed) == (2, "")
    assert "no sweep 'absent'" in errors


def test_a_command_without_the_option_prints_as_before(lab, command_line, monkeypatch):
    monkeypatch.chdir(lab)
    _, printed, _ = command_line("tag", "lab")
    assert printed.startswith("lab: ")
