"""What `rpg --help` and `rpg COMMAND --help` say."""

import re
import subprocess
import sys

import pytest
from typer.main import get_command

import rpg.cli.app
from rpg.cli import load

CLONE_ONLY = re.compile(r"\bmake \w+`|\bdocs/|constraints\.txt|-e \.|\.ci/|Dockerfile|benchmarks/")


def test_the_terminal_alone_breaks_the_lines_of_the_list_of_commands():
    commands = get_command(load()).commands
    assert not [name for name, command in commands.items() if "\n" in command.short_help]
    assert commands["show"].short_help.endswith("their expected cost. Downloads nothing.")


@pytest.mark.parametrize(("clone", "named"), [(True, True), (False, False)])
def test_help_names_pages_of_the_documentation_only_where_they_are(monkeypatch, clone, named):
    if not clone:
        monkeypatch.setattr(rpg.cli.app, "see", lambda page: "")
    texts = []
    for command in get_command(load()).commands.values():
        texts += [command.help, command.short_help, command.epilog]
        texts += [parameter.help for parameter in command.params]
    found = [text for text in texts if text and CLONE_ONLY.search(text)]
    assert bool(found) == named, found


@pytest.mark.component
def test_commands_are_listed_without_loading_what_one_of_them_needs():
    code = (
        "import sys, rpg.cli; rpg.cli.load(); "
        "print({'duckdb', 'numpy', 'pandas', 'pyarrow', 'torch'} & set(sys.modules) or 'none')"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout == "none\n"
