"""What `rpg import` is told about a run that was trained elsewhere, on the command line or in a small YAML file."""

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
    """A run that was trained elsewhere, as it shall stand here."""

    sweep: Text
    """The sweep it joins, or a new one."""
    variant: Text
    """Its name in tables and figures."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    algorithm: Text | None = None
    """What trained it, if it has a name."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Where it stands on the sweep's axes."""
    map: dict[Text, Text] = Field(default_factory=dict)
    """Our name of a metric -> its column."""
    updates: Annotated[int, Field(ge=1)] = 1
    """Steps of the log that are one of ours, a rollout: TRL's are optimizer steps, of which a rollout may have several."""
    eval: dict[Text, Text] = Field(default_factory=dict)
    """Benchmark -> the column of its accuracy (0 to 1)."""


def read_import(file: Path | None, told: dict[str, Any]) -> Import:
    """What the file says, with what the command line says over it.

    Raises:
        ConfigError: a field that is missing, unknown or cannot be; it names the file (or `import`) and the field.
    """
    found = read_mapping(file) if file is not None else {}
    merged: dict[str, Any] = {**found}
    for name, value in told.items():
        both = isinstance(value, dict) and isinstance(found.get(name), dict)
        merged[name] = {**found[name], **value} if both else value
    try:
        return Import.model_validate(merged)
    except ValidationError as error:
        at = partial(place, file) if file else None
        raise explain(error, Import, str(file or "import"), at) from None
