"""Every field of the schema of a run, in a run that has it; and a run with one field changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rpg.config.identity import Leaf, leaves
from rpg.config.load import resolve
from rpg.config.run_spec import RunSpec

_EVERY = yaml.safe_load(Path(__file__).with_name("every_kind.yaml").read_text("utf-8"))
_RUNS = _EVERY["runs"]
_OTHER = _EVERY["other"]


def changed(leaf: Leaf) -> Any:
    """The value of a field, changed."""
    value = leaf.value
    if leaf.dotted in _OTHER and _OTHER[leaf.dotted] != value:
        return _OTHER[leaf.dotted]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 if value else 0.25
    if isinstance(value, dict):
        return {**value, "another": 2}
    if isinstance(value, list):
        is_pair_of_numbers = len(value) == 2 and isinstance(value[0], float)
        return [0.5, 0.75] if is_pair_of_numbers else [*value, "another"]
    return 0.5 if value is None else f"{value}x"


def with_field(spec: Any, dotted: str, value: Any) -> Any:
    """The same run with one field changed, and without the checks that tie fields to each other."""
    first, _, rest = dotted.partition(".")
    if isinstance(spec, tuple):  # a list of sections, whose parts are numbered
        number = int(first)
        return (*spec[:number], with_field(spec[number], rest, value), *spec[number + 1 :])
    if not rest:
        return spec.model_copy(update={first: value})
    return spec.model_copy(update={first: with_field(getattr(spec, first), rest, value)})


def _walk() -> Iterator[tuple[str, RunSpec, Leaf]]:
    seen = set()
    for name, data in _RUNS.items():
        spec = resolve(data, name)
        for leaf in leaves(spec):
            is_field = not leaf.dotted.endswith(".type") and leaf.value != "section"
            if is_field and leaf.place not in seen:
                seen.add(leaf.place)
                yield leaf.place, spec, leaf


FIELDS = {place: (spec, leaf) for place, spec, leaf in _walk()}
"""Place of a field in the schema -> a run that has it, and the field there."""
