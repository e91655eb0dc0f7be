"""How much a form may ask for: limits.yaml in the data folder, written by whoever runs the server; else these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rpg.config.errors import ConfigError, explain
from rpg.config.load import read_mapping
from rpg.config.model import TinyModel
from rpg.config.run_spec import RunSpec
from rpg.config.section import Section
from rpg.config.sweep_spec import Sweep

FILE = "limits.yaml"
_CHARACTERS = 200
"""More than a tiny model's vocabulary has."""


class Limits(Section):
    """Limits of a sweep that is started from a form; the command line has none."""

    runs: int = Field(default=1_000, gt=0)
    steps: int = Field(default=1_000_000, gt=0)
    model_parameters: int = Field(default=200_000_000, gt=0)
    """Of a model that is built from its settings; the size of a pretrained one is given."""
    samples_per_step: int = Field(default=65_536, gt=0)
    samples_per_problem: int = Field(default=4_096, gt=0)
    tokens: int = Field(default=131_072, gt=0)
    """Of a prompt, and of a response."""
    workers: int = Field(default=1_024, gt=0)
    """GPUs or processes that one run may ask a cluster for."""
    addresses: tuple[str, ...] = ("auto", "http://127.0.0.1:8265")
    """Ray clusters that may be named."""


def limits_of(home: Path) -> Limits:
    """Raises ConfigError when the file cannot be used."""
    path = home / FILE
    if not path.exists():
        return Limits()
    try:
        return Limits.model_validate(read_mapping(path))
    except ValidationError as error:
        raise explain(error, Limits, str(path)) from None


def check(planned: Sweep, limits: Limits, home: Path) -> None:
    """Raises ConfigError, which names the field, the value, the limit and where it is set."""
    where = f"the server's limit ({home / FILE})"
    if len(planned.runs) > limits.runs:
        raise ConfigError(f"axes: {len(planned.runs):,} runs; {where} is {limits.runs:,}")
    for run in planned.runs:
        for field, value, name in _sizes(run.spec):
            most = getattr(limits, name)
            if value > most:
                raise ConfigError(f"{field}: {value:,}; {where}: {name} {most:,}")
        for field, address in _addresses(run.spec.model_dump(mode="json")):
            if address not in limits.addresses:
                raise ConfigError(
                    f"{field}: {address!r} may not be named from here; {where}: addresses {', '.join(limits.addresses)}"
                )


def _sizes(spec: RunSpec) -> Iterator[tuple[str, int, str]]:
    """(field, value, limit's name)."""
    training, rollout, model = spec.training, spec.rollout, spec.model
    yield "training.steps", training.steps, "steps"
    samples = training.prompts_per_step * rollout.group_size
    yield "training.prompts_per_step x rollout.group_size", samples, "samples_per_step"
    yield "rollout.max_prompt_tokens", rollout.max_prompt_tokens, "tokens"
    yield "rollout.max_response_tokens", rollout.max_response_tokens, "tokens"
    yield "evaluation.samples_per_problem", spec.evaluation.samples_per_problem, "samples_per_problem"
    if isinstance(model, TinyModel):
        # A block: queries and output, keys and values, and the three matrices of the gated feed-forward part.
        attention = 2 * model.hidden_size**2 * (1 + model.kv_heads / model.heads)
        block = attention + 3 * model.hidden_size * model.intermediate_size
        size = round(model.layers * block + 2 * _CHARACTERS * model.hidden_size)
        yield "model: parameters", size, "model_parameters"
        yield "model.max_positions", model.max_positions, "tokens"
    nodes = getattr(spec.backend, "nodes", 1) * getattr(spec.backend, "gpus_per_node", 1)
    yield "backend.nodes x backend.gpus_per_node", nodes, "workers"
    yield "evaluation.place.workers", getattr(spec.evaluation.place, "workers", 1), "workers"


def _addresses(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            field = f"{at}.{key}".strip(".")
            if key == "address" and isinstance(inner, str):
                yield field, inner
            yield from _addresses(inner, field)
    elif isinstance(value, list):
        for inner in value:
            yield from _addresses(inner, at)
