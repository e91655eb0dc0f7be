"""What `rpg import` needs to know about a run trained elsewhere, from the command line or a small YAML file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from rpg.config.errors import explain
from rpg.config.load import read_mapping
from rpg.config.section import Section
from rpg.config.yaml_lines import place

Text = Annotated[str, Field(min_length=1)]


class Import(Section):
    """How a run that was trained elsewhere appears here."""

    sweep: Text
    """The sweep it joins, or a new one."""
    variant: Text
    """Its name in tables and figures."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    algorithm: Text | None = None
    """What trained it, if it has a name."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Its values on the sweep's axes."""
    map: dict[Text, Text] = Field(default_factory=dict)
    """Our name of a metric -> its column in the log."""
    updates: Annotated[int, Field(ge=1)] = 1
    """Logged steps per rollout. TRL logs optimizer steps, of which a rollout may have several."""
    eval: dict[Text, Text] = Field(default_factory=dict)
    """Benchmark -> the column with its accuracy (0 to 1)."""


def read_import(file: Path | None, options: dict[str, Any]) -> Import:
    """The fields of the file, overridden by `options` from the command line.

    Raises:
        ConfigError: a field is missing, unknown or invalid; it names the file (or `import`) and the field.
    """
    merged = read_mapping(file) if file is not None else {}
    for name, value in options.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if both else value
    try:
        return Import.model_validate(merged)
    except ValidationError as error:
        at = partial(place, file) if file else None
        raise explain(error, Import, str(file or "import"), at) from None
