"""A run keeps its identity through everything that does not train it, and loses it by everything
that does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import pytest
from pydantic import BaseModel, create_model

from rpg.catalogue import Algorithm
from rpg.catalogue.entry import PROSE
from rpg.catalogue.schema import models_in
from rpg.config.identity import (
    FROZEN,
    STEPS,
    canonical_json,
    evaluation_identity,
    frozen_dump,
    identity,
    identity_record,
    is_frozen_kind,
    leaves,
    purpose_of,
    root,
)
from rpg.config.load import resolve
from rpg.config.run_spec import RunSpec
from rpg.config.section import ADDS, BY_CONTENT, EVALUATES, OPERATES, TRAINS, Purpose
from rpg.config.sweep_spec import load_file
from rpg.config.task import ChainTask
from tests.config.every_field import FIELDS, changed, with_field
from tests.config.pin_identities import shipped_sweeps

CONFIGS = Path(__file__).parents[2] / "configs"
PINNED = Path(__file__).with_name("identities.json")


@pytest.mark.parametrize("place", FIELDS)
def test_a_field_that_trains_makes_another_run_and_every_other_keeps_it(place):
    spec, leaf = FIELDS[place]
    if place == "algorithm.name":
        return  # another algorithm: test_the_shipped_configurations_keep_their_identities
    other = with_field(spec, leaf.dotted, changed(leaf))
    same = identity(spec, "d") == identity(other, "d")
    assert same is (leaf.purpose is not TRAINS), (
        f"{place} {leaf.purpose.name}: {leaf.value!r}, {changed(leaf)!r}"
    )
    evaluated_alike = evaluation_identity(spec) == evaluation_identity(other)
    assert evaluated_alike is (leaf.purpose is not EVALUATES)


def test_the_fields_of_the_issue_have_the_purposes_it_says():
    purposes = {place: leaf.purpose for place, (_, leaf) in FIELDS.items()}
    operating = [
        "evaluation.engine.local.rows",
        "evaluation.engine.huggingface.rows",
        "training.micro_batch_rows",
        "training.micro_batch_tokens",
        "training.checkpoint_every",
        "backend.local.threads",
        "backend.verl.threads",
        "backend.verl.hang_minutes",
        "backend.verl.max_tokens_per_gpu",
        "backend.verl.offload",
        "backend.verl.rollout.vllm.gpu_memory_utilization",
        "backend.verl.validation_samples",
        "backend.verl.nodes",
        "backend.verl.ray.address.address",
        "evaluation.place.here.threads",
        "evaluation.place.here.memory_gib",
    ]
    assert {place for place in operating if purposes[place] is not OPERATES} == set()
    adding = ("evaluation.every", "evaluation.samples_per_problem", "evaluation.benchmarks")
    assert {purposes[place] for place in adding} == {ADDS}
    assert purposes["evaluation.temperature"] is EVALUATES
    training = ("training.optimizer.adamw.learning_rate", "seed", "algorithm.beta")
    assert {purposes[place] for place in training} == {TRAINS}
    assert purposes["task.file.train"] is BY_CONTENT


def _schema(
    model: type[BaseModel], place: str = "", inherited: Purpose = TRAINS
) -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        if name == "type" or (model is Algorithm and name in PROSE):
            continue
        where = f"{place}.{name}" if place else name
        purpose = purpose_of(field, inherited)
        models = models_in(field.annotation)
        if not field.is_required() and models != [Algorithm]:
            tagged = any("type" in m.model_fields for m in models)
            yield f"{where}.type" if tagged else where, field
        for inner in models:
            tags = (
                get_args(inner.model_fields["type"].annotation)
                if "type" in inner.model_fields
                else ()
            )
            yield from _schema(inner, f"{where}.{tags[0]}" if tags else where, purpose)


def test_every_field_of_the_schema_has_a_frozen_default_and_was_walked_above():
    missing = sorted(
        {place for place, _ in _schema(RunSpec) if is_frozen_kind(place)} - FROZEN.keys()
    )
    assert missing == [], (
        "a new field: give it a line in `added` of rpg/config/frozen_defaults.json"
    )
    plain = {
        place
        for place, value in FROZEN.items()
        if not place.endswith(".type") and value != "section"
    }
    unwalked = plain - set(FIELDS)
    # sections that are null by default stand there as a place of their own
    assert unwalked <= {"algorithm.clip", "algorithm.overlong"}, unwalked


@pytest.mark.component
def test_the_shipped_configurations_keep_their_identities():
    """So that what lies on disk is found again. Regenerate only for new files:

    python -m tests.config.pin_identities
    """
    pinned = json.loads(PINNED.read_text())
    for name, expected in pinned.items():
        sweep = load_file(CONFIGS / name, {}, lambda spec: "d")
        assert [run.run_id for run in sweep.runs] == expected, name
    assert {str(path.relative_to(CONFIGS.resolve())) for path in shipped_sweeps()} == set(pinned)


def test_runs_of_before_the_initial_model_was_a_factor_keep_their_identities():
    """Their manifests have `warm_start.seed: 0` with every seed."""
    runs = load_file(
        CONFIGS / "sweeps/quickstart.yaml", {"model.warm_start.seed": 0}, lambda spec: "d"
    ).runs
    assert [run.run_id for run in runs[1:3]] == ["13f5e0bde3e7b7d9", "eaa017a6b36dbba4"]
    crossed = load_file(CONFIGS / "sweeps/quickstart.yaml", {}, lambda spec: "d").runs
    assert [run.spec.model.warm_start.seed for run in crossed[:3]] == [0, 1, 2]


def _planted(section: BaseModel, **fields):
    """The section with a field that it did not have."""
    marked = Annotated[float, "a mark of somebody else"]
    model = create_model("Planted", __base__=type(section), planted=(marked, 0.5))
    return model.model_construct(**dict(section) | fields)


def _planted_run(spec: RunSpec, training=0.5, run=0.5) -> RunSpec:
    sections = {name: _planted(getattr(spec, name)) for name in ("task", "algorithm")}
    return _planted(
        spec, **sections, training=_planted(spec.training, planted=training), planted=run
    )


@pytest.mark.component
def test_a_planted_field_with_a_default_keeps_every_identity_of_the_quickstart():
    sweep = load_file(CONFIGS / "sweeps/quickstart.yaml", {}, lambda spec: "d")
    kept = [identity(_planted_run(run.spec), "d") == run.run_id for run in sweep.runs]
    assert kept == [True] * 21
    run = sweep.runs[0]
    dumped = frozen_dump(_planted(run.spec.task), "task.chain")
    assert dumped == frozen_dump(run.spec.task, "task.chain")
    assert "planted" not in dumped
    assert identity(_planted_run(run.spec, training=0.6), "d") != run.run_id
    assert identity(_planted_run(run.spec, run=0.6), "d") != run.run_id


class _Inner(BaseModel):
    size: int = 3


class _LaterChain(ChainTask):
    """Fields that a task got after its defaults had been frozen."""

    required: str | None
    inner: _Inner = _Inner()
    rate: float = 0.5


def test_a_dump_leaves_out_only_later_fields_at_their_defaults():
    frozen = frozen_dump(ChainTask(), "task.chain")
    assert {"type", "data_seed"} <= set(frozen), "frozen fields stay, also at their defaults"
    untouched = _LaterChain(required=None)
    assert frozen_dump(untouched, "task.chain") == frozen | {"required": None}
    changed = _LaterChain(required="a", inner=_Inner(size=4), rate=0.6)
    dumped = frozen_dump(changed, "task.chain")
    assert (dumped["required"], dumped["rate"], dumped["inner"]) == ("a", 0.6, {"size": 4})


def test_the_number_of_steps_is_no_part_of_the_root_unless_the_rate_depends_on_it():
    short = RunSpec()
    long = resolve({"training": {"steps": 80}}, "x")
    assert identity(short, "d") != identity(long, "d")
    assert root(short, "d") == root(long, "d")
    assert identity_record(long, "d")["settings"][STEPS] == 80
    assert root(resolve({"seed": 1}, "x"), "d") != root(short, "d") != root(short, "e")
    falling = (
        {"training": {"steps": steps, "optimizer": {"schedule": "cosine"}}} for steps in (40, 80)
    )
    assert len({root(resolve(run, "x"), "d") for run in falling}) == 2, (
        "a rate that falls to the end"
    )


def test_a_section_at_its_defaults_is_not_the_absence_of_the_section():
    none = resolve({"algorithm": {"name": "rpg-urkl", "clip": None}}, "x")
    default = resolve({"algorithm": {"name": "rpg-urkl", "clip": {"low": 0.2, "high": 0.28}}}, "x")
    assert identity(none, "d") != identity(default, "d")
    cold = resolve({"model": {"warm_start": None}}, "x")
    assert identity(cold, "d") != identity(RunSpec(), "d")


def test_a_run_of_defaults_has_the_defaults_of_the_schema():
    """Sections are known by their types, so one that is new keeps the identities of runs that do
    not set it."""
    schema = [leaf for leaf in leaves(RunSpec()) if not leaf.dotted.startswith("algorithm.")]
    assert len(schema) > 60
    assert [leaf.dotted for leaf in schema if leaf.value != leaf.default] == [
        "model.warm_start.seed"
    ]  # the run's


def test_a_kind_that_came_later_needs_no_frozen_default_and_all_its_fields_count():
    assert is_frozen_kind("task.chain.planted")
    assert is_frozen_kind("seed")
    assert not is_frozen_kind("task.sort.digits")

    class Late(ChainTask):
        type: Literal["late"] = "late"
        planted: int = 3
        empty: str | None = None

    late = RunSpec().model_copy(update={"task": Late()})
    settings = identity_record(late, "d")["settings"]
    names = ("task.type", "task.planted", "task.data_seed")
    assert [settings[name] for name in names] == ["late", 3, 0]
    assert settings["task.empty"] is None, "also a field that is null by default"
    assert "training.steps" not in settings


def test_one_value_has_one_text_and_no_number_that_is_none():
    assert (
        canonical_json({"b": [1.0, 1e-7], "a": {"é": None}}) == '{"a":{"é":null},"b":[1.0,1e-07]}'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))
