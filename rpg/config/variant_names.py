"""What variants and the folders of runs are called, by the values of a sweep's axes."""

import re
from typing import Any


def value_text(value: Any) -> str:
    """A value in the name of a variant."""
    if isinstance(value, dict):
        head = str(value.get("name") or value.get("type") or "")
        settings = ",".join(
            f"{k}={value_text(v)}" for k, v in value.items() if k not in ("name", "type")
        )
        return f"{head}({settings})" if head and settings else head or f"({settings})"
    if isinstance(value, list):
        return "[" + ",".join(map(value_text, value)) + "]"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def part_of_name(axis: str, value: Any, varied: dict[str, list[Any]]) -> str:
    """What a value adds to the name of a variant."""
    text = value_text(_telling(value, varied.get(axis, [])))
    return text if axis == "algorithm" else f"{axis.removeprefix('algorithm.')}={text}"


def run_folder(name: str, seed: int, run_id: str) -> str:
    """The folder of a run, whatever characters are in the name of its variant."""
    slug = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:60].strip("-.")
    return f"{slug}-s{seed}-{run_id[:8]}"


def _telling(value: Any, values: list[Any]) -> Any:
    """A value of an axis without the fields in which all values of the axis agree."""
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in values):
        return value
    telling = {k for k, v in value.items() if any(other.get(k, ...) != v for other in values)}
    return {k: v for k, v in value.items() if k in telling | {"name", "type"}}


def without_fields(value: Any, at: str, fields: set[str]) -> Any:
    """A value of the axis `at` without what other fields set, so that no name says it: with `--set
    algorithm.beta=0.1`, {name: grpo, beta: 0.3} is grpo."""
    if not isinstance(value, dict):
        return value
    return {
        k: without_fields(v, f"{at}.{k}", fields)
        for k, v in value.items()
        if f"{at}.{k}" not in fields
    }
