"""How large a sweep from a form may be (limits.yaml in the data folder, else these), and what each
configuration costs."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from rpg.config.capabilities import sizes
from rpg.config.errors import ConfigError
from rpg.config.load import checked, read_mapping
from rpg.config.model import TinyModel
from rpg.config.run_spec import RunSpec
from rpg.config.section import SIZES, Section
from rpg.config.sweep_file import Draft
from rpg.config.sweep_spec import Sweep, load_sweep, read_sweep
from rpg.errors import UserError
from rpg.planning.cost import Measured, cost, finds, measured, seconds_per_step
from rpg.planning.gpu_estimate import estimate
from rpg.planning.model_shapes import tiny_shape
from rpg.store import Layout
from rpg.study.spec import Study, load_study, specs_of

FILE = "limits.yaml"
AGAIN_SECONDS = 3600.0
"""How long the times that were measured on finished runs are kept."""
END = " · "
"""Ends the name in the line of a choice."""
HEAD = (
    "What each takes without changes. Time: one run after another, as in finished runs of that "
    "size."
)
MOST = 80
"""Characters of a question in the table."""


class Limits(Section):
    """Limits of a sweep that is started from a form; the command line has none. Every size that a
    field declares (rpg.config.section.SIZES) has one, too."""

    runs: int = Field(default=1_000, gt=0)
    model_parameters: int = Field(default=200_000_000, gt=0)
    """Of a model that is built from its settings; the size of a pretrained one is given."""
    addresses: tuple[str, ...] = ("auto", "http://127.0.0.1:8265")
    """Ray clusters that may be named."""


_OF_FIELDS: dict[str, Any] = {size.cost: (float, Field(default=size.most, gt=0)) for size in SIZES}
_File = create_model("_File", __base__=Limits, **_OF_FIELDS)


def limits_of(home: Path) -> Limits:
    """Raises ConfigError when the file cannot be used."""
    path = home / FILE
    return checked(_File, read_mapping(path), path) if path.exists() else _File()


def check_draft(draft: Draft, limits: Limits, home: Path) -> None:
    """What a sweep's file and the form say, before it is expanded: that takes as long as it has
    runs. Raises ConfigError, which names the field, the value, the limit and where it is set."""
    _check_runs("axes", draft.combinations, limits, home)
    for field, value in draft.values():
        check_sizes(field, value, limits, home)


def check_planned(planned: Sweep | Study, limits: Limits, home: Path) -> None:
    """Every size of its runs, those that no file names included. Raises ConfigError."""
    if isinstance(planned, Study):
        _check_runs("tune, report", planned.most_runs, limits, home)
    for spec in specs_of(planned):
        resolved = spec.model_dump(mode="json")
        check_sizes("", resolved, limits, home)
        for field, value, size in _products(spec):
            _check_size(field, value, size, limits, home)
        for field, address in texts(resolved):
            if field.endswith(".address") and address not in limits.addresses:
                raise ConfigError(
                    f"{field}: {address!r} may not be named from here; {_where(home)}: addresses "
                    f"{', '.join(limits.addresses)}"
                )


def check_sizes(field: str, value: Any, limits: Limits, home: Path) -> None:
    """Everything that `value` would set at this dotted name. Raises ConfigError."""
    for inner, size, number in sizes(RunSpec, field, value):
        _check_size(inner, number, size.cost, limits, home)


def _check_runs(field: str, runs: int, limits: Limits, home: Path) -> None:
    if runs > limits.runs:
        raise ConfigError(f"{field}: {runs:,} runs; {_where(home)} is {limits.runs:,}")


def _check_size(field: str, value: float, size: str, limits: Limits, home: Path) -> None:
    most = getattr(limits, size)
    if abs(value) > most:
        raise ConfigError(f"{field}: {value:,}; {_where(home)}: {size} {most:,.0f}")


def _where(home: Path) -> str:
    return f"the server's limit ({home / FILE})"


def _products(spec: RunSpec) -> Iterator[tuple[str, int, str]]:
    """(field, value, limit) of what several fields make together."""
    samples = spec.training.prompts_per_step * spec.rollout.group_size
    yield "training.prompts_per_step x rollout.group_size", samples, "samples_per_step"
    if isinstance(spec.model, TinyModel):
        yield "model: parameters", tiny_shape(spec.model).parameters, "model_parameters"
    nodes = getattr(spec.backend, "nodes", 1) * getattr(spec.backend, "gpus_per_node", 1)
    yield "backend.nodes x backend.gpus_per_node", nodes, "workers"


def texts(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """(field, text) for every text in a nested value."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(inner, f"{at}.{key}" if at else str(key))


def choices(files: Mapping[str, Path], home: Path) -> tuple[dict[str, str], str]:
    """The sweeps or studies of a form, small ones first and the paper's last: the line of each by
    its name, and a table (Markdown) with all that is known of them. Computed again when a file has
    changed, and now and then.
    """
    changed = ((name, path, path.exists() and path.stat().st_mtime) for name, path in files.items())
    return _choices(tuple(changed), home, time.monotonic() // AGAIN_SECONDS)


@lru_cache(maxsize=2)
def _choices(
    files: tuple[tuple[str, Path, float], ...], home: Path, _period: float
) -> tuple[dict[str, str], str]:
    times = measured(Layout.at(home))
    layout = Layout.at(home)
    rows = sorted((*described(path, times, layout), name) for name, path, _ in files)
    body = [
        f"| {name} | {asks.replace('|', ' ')} | {takes} |" for _, _, asks, _, takes, name in rows
    ]
    table = "\n".join([HEAD, "", "| name | question | what it takes |", "|---|---|---|", *body])
    lines = {
        name: END.join(filter(None, (name, short, asks))) for _, _, asks, short, _, name in rows
    }
    return lines, table


def chooser(lines: Mapping[str, str]) -> dict[str, Any]:
    """What a form's schema says of a field whose choices have these lines, by name.

    Prefect's form shows the values of an `enum` as they are and sends the one that was chosen: it
    knows no titles of values. So a choice is sent as its line, of which only the name counts: times
    change, and a schedule keeps the line of the day when it was saved. Other programs send the name
    alone. Of the two parts of `anyOf` the form makes two buttons, of which the first is a list and
    the second a field to type in; what both send is checked beside them.
    """
    begin = f"^({'|'.join(map(re.escape, lines))})({END}|$)"
    ways = [{"title": "by question and time", "enum": [*lines.values()]}, {"title": "by name"}]
    return {
        "anyOf": ways,
        "if": {"pattern": END},
        "then": {"pattern": begin},
        "else": {"enum": [*lines]},
    }


def _question(description: str) -> str:
    """The first question of a description, or its first sentence, in at most 80 characters."""
    sentences: list[str] = re.findall(r".+?(?:[.?!](?= |$)|$)", " ".join(description.split()))
    asked = next((text for text in sentences if text.endswith("?")), (*sentences, "")[0]).strip()
    return asked if len(asked) <= MOST else asked[: MOST - 1].rstrip() + "…"


def described(path: Path, times: Measured, layout: Layout) -> tuple[bool, float, str, str, str]:
    """(whether it is for GPUs, optimizer steps or a study's runs, question, time, what it takes and
    can find) of a file."""
    try:
        if "tune" in read_mapping(path):
            study = load_study(path)
            runs = f"up to {study.most_runs:,} runs"
            return False, study.most_runs, _question(study.spec.question), runs, runs
        combinations = read_sweep(path, {}).combinations
        if combinations > limits_of(layout.home).runs:  # expanding them would hold up the form
            runs = f"{combinations:,} runs"
            return False, math.inf, "", runs, runs
        sweep = load_sweep(path, {}, lambda _: "")
        specs = [run.spec for run in sweep.runs]
    except (UserError, OSError, ValueError):  # the reason is given when it is started
        return False, math.inf, "", *2 * ("has a mistake",)
    updates = sum(cost(spec).optimizer_steps for spec in specs)
    time_taken = _time(specs, times)
    runs = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
    parts = filter(None, [runs, f"{updates:,} optimizer steps", time_taken, finds(sweep, layout)])
    question = _question(sweep.spec.description)
    shown = time_taken.removesuffix(", calculated") or f"{updates:,} steps, not timed yet"
    return "GPU hours" in time_taken, updates, question, shown, ", ".join(parts)


def _time(specs: Sequence[RunSpec], times: Measured) -> str:
    measured = [seconds_per_step(times, spec) for spec in specs]
    if all(measured):
        seconds = 0.0
        for spec, per_step in zip(specs, measured, strict=True):
            assert per_step is not None
            seconds += spec.training.steps * per_step[0]
        minutes = math.ceil(seconds / 60)
        return f"about {minutes} min" if minutes < 120 else f"about {minutes / 60:.0f} h"
    estimates = [estimate(spec) for spec in specs]
    hours = [gpu.gpu_hours for gpu in estimates if gpu]
    return f"{sum(hours):,.0f} GPU hours, calculated" if len(hours) == len(specs) else ""
