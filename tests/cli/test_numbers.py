"""Numbers that are not finite are no values of an option."""

import pytest
from typer.main import get_command

from rpg.cli import load
from rpg.config.errors import ConfigError

COMMANDS = get_command(load()).commands


OPTIONS = [
    ("audit", "--beta"),
    ("compare", "--matters"),
    ("evaluate", "--temperature"),
    ("evaluate", "--top-p"),
    ("evaluate", "--min-p"),
    ("evaluate", "--gpus"),
    ("publish", "--samples"),
]


def parse(command, option, value):
    described = COMMANDS[command]
    needed = ["x"] * sum(parameter.required for parameter in described.params)
    described.make_context(command, [*needed, f"{option}={value}"])


@pytest.mark.parametrize(("command", "option"), OPTIONS)
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "1e999", "-inf"])
def test_a_number_that_is_not_finite_is_refused_in_a_sentence(command, option, value):
    with pytest.raises(Exception, match=r"expected a finite number|should be (less|greater)|range"):
        parse(command, option, value)


@pytest.mark.parametrize("option", ["--temperature", "--gpus"])
def test_what_no_bound_refuses_is_refused_with_the_name_of_its_option(option):
    with pytest.raises(ConfigError, match=f"{option}: is inf; expected a finite number"):
        parse("evaluate", option, "inf")
