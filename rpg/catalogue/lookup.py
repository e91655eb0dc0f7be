"""The entries of the catalogue, those of entries.yaml and what the RPG paper makes of each
divergence; and looking one up by name and preset, with overrides. Errors name the accepted values.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import product
from typing import Any

from pydantic import BaseModel, ValidationError

from rpg.catalogue.components import DistributionKL, ObjectiveKL, named
from rpg.catalogue.divergences import DIVERGENCES, Divergence, read
from rpg.catalogue.entry import PROSE, Algorithm, AlgorithmError


def written(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The path as written in a file, without the tag that pydantic inserts after the name of a
    union; and the names of the fields that could stand at its end."""
    candidates = [model]
    path = []
    union = False
    siblings: list[str] = []
    for part in location:
        if union and any(part in _tags(candidate) for candidate in candidates):
            candidates = [c for c in candidates if part in _tags(c)]
            union = False
            continue
        path.append(str(part))
        siblings = list(
            dict.fromkeys(name for candidate in candidates for name in candidate.model_fields)
        )
        fields = [c.model_fields[part] for c in candidates if part in c.model_fields]
        if fields:  # else a key or an index within the field
            candidates = [inner for field in fields for inner in models_in(field.annotation)]
            union = bool(candidates)
    return path, siblings


def _tags(model: type[BaseModel]) -> tuple[object, ...]:
    field = model.model_fields.get("type")
    return getattr(field.annotation, "__args__", ()) if field else ()


def models_in(annotation: object) -> list[type[BaseModel]]:
    """The pydantic models an annotation mentions, through unions, lists and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for inner in getattr(annotation, "__args__", ()) for m in models_in(inner)]


_FIELDS = Algorithm.model_fields.items()
UNIONS = {name for name, field in _FIELDS if any(map(_tags, models_in(field.annotation)))}


@cache
def _entries() -> dict[tuple[str, str | None], Algorithm]:
    """(name, preset) -> entry, in the order of the documentation."""
    listed = [_with_rows(**entry) for entry in read("entries.yaml")]
    kinds = product((False, True), DIVERGENCES.values())
    rpg = (entry for reinforce, divergence in kinds for entry in _rpg(divergence, reinforce))
    return {(entry.name, entry.preset): entry for entry in (*rpg, *listed)}


def _with_rows(display_name: str, paper_tables: Iterable[str] = (), **settings: Any) -> Algorithm:
    rows = tuple(f"{table}: {display_name}" for table in paper_tables)
    return Algorithm(display_name=display_name, paper_rows=rows, **settings)


def _rpg(divergence: Divergence, reinforce: bool) -> Iterator[Algorithm]:
    """The paper's loss (arXiv 2505.17508, its Appendix H), and what is released under its name if
    that is another."""
    name = ("RPG-REINFORCE-" if reinforce else "RPG-") + divergence.name.upper()
    has_released = bool(divergence.paper_tables)
    style = "reinforce" if reinforce else "differentiable"
    objective = {"type": "objective", "divergence": divergence.name, "style": style}
    kl: dict[str, Any] = {"kl": objective, "beta": 1e-4}
    clip = {"low": 0.2, "high": 0.28, "c": 10.0}
    entry = partial(
        _with_rows,
        name=name.lower(),
        display_name=name,
        citation=divergence.citation,
        paper_tables=divergence.paper_tables,
        advantage={"type": "group", "std": False},
        dynamic_sampling=True,
        overlong={"buffer_fraction": 0.25, "factor": 1.0},
    )
    yield entry(
        preset="paper" if has_released else None,
        description=f"Exact gradient under {divergence.words}, "
        + (
            "REINFORCE style with RPG-Style Clip."
            if reinforce
            else "fully differentiable, dual clip."
        ),
        formula=f"−sg({divergence.weight}) log π" if reinforce else f"−wR {divergence.term}",
        objective=f"E_π[R] − β {divergence.penalty}, clipped",
        surrogate="rpg",
        clip=clip if reinforce or divergence.advantage_slope else clip | {"gradient": "detached"},
        **kl,
    )
    released = partial(entry, preset="released", surrogate="ppo_clip", clip=clip)
    if has_released and reinforce:
        yield released(
            description="What the released rf_clip_ppo scripts run: dual-clip PPO; the KL is never added.",
            formula="−min(wR, clip(w)R), dual clip",
            objective="E_π[R], clipped; no KL",
        )
    elif has_released:
        yield released(
            description=f"Dual-clip PPO on the raw advantage, plus {divergence.words}, unclipped.",
            formula=f"−min(wR, clip(w)R) {divergence.term}",
            objective=f"E_π[R] − β {divergence.penalty}, reward term clipped",
            **kl,
        )


def algorithms(preset: str = "paper") -> dict[str, Algorithm]:
    """The catalogue: {name: Algorithm}, in the order of the documentation."""
    names = dict.fromkeys(name for name, _ in _entries())
    return {name: algorithm(name, preset) for name in names}


def algorithm(name: str, preset: str = "paper", **overrides: Any) -> Algorithm:
    """The catalogue entry `name`, with keyword overrides; nested dicts are merged into nested
    settings.

    Where the paper and its released code differ, `preset` chooses; where they agree it has no
    effect. Raises AlgorithmError for an unknown name, preset, field or value.
    """
    if preset not in ("paper", "released"):
        raise AlgorithmError("preset", preset, ("paper", "released"))
    entries_of = _entries()
    base = (
        entries_of.get((name, preset))
        or entries_of.get((name, None))
        or entries_of.get((name, "paper"))
    )
    if base is None:
        raise AlgorithmError("algorithm", name, tuple(dict.fromkeys(n for n, _ in entries_of)))
    return override(base, **overrides) if overrides else base


def override(base: Algorithm, **overrides: Any) -> Algorithm:
    """`base` with some of its mathematics changed; raises AlgorithmError like :func:`algorithm`."""
    fields = tuple(f for f in Algorithm.model_fields if f not in PROSE)
    for field in overrides:
        if field not in fields:
            raise AlgorithmError(
                field, overrides[field], fields, f"{field} is not a field of an algorithm"
            )
    data = base.model_dump()
    if "rollout_correction" not in {*overrides, *base.model_fields_set}:
        del data["rollout_correction"]  # remains a default, which a run replaces where it must
    for field, value in overrides.items():
        plain = value.model_dump() if isinstance(value, BaseModel) else value
        data[field] = _merge(data[field], plain, field)
    if "beta" not in overrides and "kl" in overrides:
        if data["kl"] == {"type": "none"}:
            data["beta"] = 0.0
        elif base.kl.type == "none":
            why = f"beta: the KL given to {base.name} needs one"
            raise AlgorithmError("beta", 0.0, "a number above 0", why)
    try:
        return Algorithm.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None


def _merge(default: Any, value: Any, field: str) -> Any:
    if field in UNIONS:
        value = named(value)
        default = default or {"type": None}
        same = isinstance(value, Mapping) and value.get("type", default["type"]) == default["type"]
        return (
            {**default, **value} if same else value
        )  # another type shares no fields with the default one
    if isinstance(default, Mapping) and isinstance(value, Mapping):
        return {**default, **value}
    return value


def _explain(error: ValidationError) -> AlgorithmError:
    """The first error of pydantic in our words: the field as it is written in a config, and what it
    accepts."""
    first = error.errors()[
        -1
    ]  # of a union's several complaints the last is about its richest member
    context = first.get("ctx", {})
    value = first["input"]
    parts, siblings = written(Algorithm, first["loc"])
    path = ".".join(parts)
    if first["type"] in ("literal_error", "union_tag_invalid"):
        expected = context.get("expected") or context["expected_tags"]
        accepted = tuple(part.strip(" '") for part in expected.replace(" or ", ", ").split(","))
        if first["type"] == "union_tag_invalid":
            path = f"{path}.type"
            value = context["tag"]
        return AlgorithmError(path, value, accepted)
    if first["type"] == "extra_forbidden":
        return AlgorithmError(path, value, tuple(siblings), f"{path} is not a field")
    reason = first["msg"].removeprefix("Value error, ")
    if not path:
        return AlgorithmError("algorithm", value, "", reason)
    return AlgorithmError(path, value, "", f"{path}: {value!r} is refused: {reason}")


def divergence_of(algo: Algorithm) -> str:
    """The KL that a loss is meant to have: a name of DIVERGENCES that is its own `normalised`,
    `jsd`, or `none`."""
    if algo.kl.type == "none" or not algo.beta:
        return "none"
    # k1, k2 and k3 are estimators of KL(policy || reference)
    if isinstance(algo.kl, DistributionKL):
        return algo.kl.divergence
    return normalised(algo.kl.divergence) if isinstance(algo.kl, ObjectiveKL) else "rkl"


def normalised(divergence: str) -> str:
    """What a divergence is for policies that sum to one; `none` stays. Raises AlgorithmError for an
    unknown name."""
    if divergence == "none":
        return divergence
    if divergence not in DIVERGENCES:
        raise AlgorithmError("divergence", divergence, tuple(DIVERGENCES))
    return DIVERGENCES[divergence].normalised


def exact_loss(divergence: str, beta: float, **overrides: Any) -> Algorithm:
    """The unclipped RPG loss of a divergence (or of `none`), of several the least noisy;
    `overrides` of the rest."""
    less_noisy = (
        d.name for d in DIVERGENCES.values() if d.normalised == divergence and d.unnormalised
    )
    if divergence == "none":
        return algorithm("rpg-urkl", kl="none", clip=None, **overrides)
    return algorithm(f"rpg-{next(less_noisy, divergence)}", beta=beta, clip=None, **overrides)
