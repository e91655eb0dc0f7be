"""Readable names of variants: the algorithm, then in words what tells a variant from the others of
its sweep."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas

from rpg.store import queries

WORDS = {
    "kl.divergence": "exact",
    "clip.low": "clip low",
    "clip.high": "clip high",
    "clip.c": "dual clip",
    "rollout.sampler.dtype": "sampler",
    "rollout_correction": "correction",
    "model.path": "",
    "backend": "",
    "training.optimizer": "",
    "training.optimizer.type": "",
    "loss_agg_mode": "",
}
"""What a label calls a field, if not by the last part of its name; "": the value says enough."""


def _label(
    variant: str, algorithm: str, display_name: str | None, kept: set[str], given: Mapping[str, str]
) -> str:
    """The name of a variant: `rpg-ufkl algorithm.beta=0.001` becomes `RPG-UFKL, beta 0.001`.

    `kept`: the fields to name. `given`: {part of a variant's name: its label}, from a sweep's file.
    """
    if not algorithm or not variant.startswith(algorithm):
        return variant
    head, *axes = _split(variant[len(algorithm) :], " ")
    parts = [given.get(algorithm + head) or display_name or algorithm]
    for text in (*([] if algorithm + head in given else [_inside(head)]), *axes):
        fields = dict(_fields(text))
        if text in given or not fields:
            parts.append(given.get(text, text))
            continue
        told = [field for field in fields if not (field == "kl" and "kl.divergence" in fields)]
        parts += [_words(field, fields[field]) for field in told if field in kept]
    return ", ".join(part for part in parts if part)


def labels(variants: pandas.DataFrame) -> dict[str, str]:
    """Variant -> label, for the variants of one sweep (queries.variants); what all share is left
    out.

    A field is named if variants of the same algorithm differ in it, or those that have it do. A
    field inside another (`reference.k`) is left out if the other's value determines it. Variants
    whose labels would be equal keep their names.
    """
    rows = [(row.variant, row.algorithm or "", row.display_name) for row in variants.itertuples()]
    texts = [text for text in variants.get("labels", ()) if isinstance(text, str)]
    given: dict[str, str] = (json.loads(texts[0]) or {}) if texts else {}
    fields = {
        name: {**dict(_fields_of(name, algorithm)), "": algorithm} for name, algorithm, _ in rows
    }
    label_of = {}
    for variant, algorithm, name in rows:
        kept = _telling(fields[variant], list(fields.values()))
        label = _label(variant, algorithm, name, kept, given)
        # Expressions of charts cannot hold the line separators that Unicode has beside \n.
        label_of[variant] = " ".join(label.splitlines())
    counts = pandas.Series(list(label_of.values())).value_counts()
    return {variant: name if counts[name] == 1 else variant for variant, name in label_of.items()}


def series_labels(
    variants: pandas.DataFrame, baselines: Mapping[str, Any], sweeps: Sequence[str]
) -> dict[queries.Series, str]:
    """Every variant of these sweeps with its label; with several sweeps the label says which.
    Baselines first.

    `variants` as queries.variants returns them, `baselines` is {sweep: its baseline}.
    """
    names: dict[queries.Series, str] = {}
    for sweep in sweeps:
        of_variants = labels(variants[variants["sweep"] == sweep])
        for variant in sorted(of_variants, key=lambda name: (name != baselines[sweep], name)):
            prefix = f"{sweep} · " if len(sweeps) > 1 else ""
            names[queries.Series(sweep, variant)] = prefix + of_variants[variant]
    return names


def without(label: str, field: str) -> str:
    """A label without the part that names this field's value."""
    name = _words(field.removeprefix("algorithm."), "")
    return ", ".join(part for part in label.split(", ") if part.rpartition(" ")[0] != name)


def _telling(fields: Mapping[str, str], every: Sequence[Mapping[str, str]]) -> set[str]:
    """The fields of a variant that tell it from others; the field "" is the algorithm."""

    def tells(field: str) -> bool:
        parent = field.rpartition(".")[0]
        if parent and parent in fields:
            return (
                len({other.get(field) for other in every if other.get(parent) == fields[parent]})
                > 1
            )
        family = {other.get(field) for other in every if other[""] == fields[""]}
        return len(family) > 1 or len({other[field] for other in every if field in other}) > 1

    return {field for field in fields if field and tells(field)}


def _words(field: str, value: str) -> str:
    name = WORDS.get(field, field.rpartition(".")[2].replace("_", " "))
    if field == "kl.divergence":
        value = value.upper()
    if field == "model.path":
        value = value.rpartition("/")[2]
    if value in ("none", "false"):
        return f"no {name or field.rpartition('.')[2].replace('_', ' ')}"
    return f"{name} {value}".strip() if value != "true" else name


def _fields_of(variant: str, algorithm: str) -> Iterator[tuple[str, str]]:
    if algorithm and variant.startswith(algorithm):
        head, *axes = _split(variant[len(algorithm) :], " ")
        for text in (_inside(head), *axes):
            yield from _fields(text)


def _inside(head: str) -> str:
    return head.removeprefix("(").removesuffix(")")


def _fields(text: str, inside: str = "") -> Iterator[tuple[str, str]]:
    """`kl=objective(divergence=fkl),beta=0.3` as (kl, objective), (kl.divergence, fkl), (beta,
    0.3)."""
    for part in _split(text, ","):
        name, equals, value = part.partition("=")
        if not equals:
            continue
        field = inside + name.removeprefix("algorithm.")
        called = re.fullmatch(r"([^(]*)(?:\((.*)\))?", value, re.DOTALL)
        # Not a name with arguments, such as the path `a(1)b`: the value as it is.
        kind, nested = called.groups() if called else (value, "")
        if kind or not nested:
            yield field, kind
        yield from _fields(nested or "", f"{field}.")


def _split(text: str, separator: str) -> list[str]:
    """Parts outside brackets."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == separator and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
