"""Every field of a run does under verl what its file says, or is refused."""

import warnings

import pytest

from rpg.backends.verl.overrides import plan
from rpg.config.backend import VerlBackend
from rpg.config.run_spec import RunSpec
from tests.config.every_field import FIELDS, changed, with_field
from tests.verl.test_launch_overrides import PATHS

OURS = {
    "task": "the data of a run are prepared before it starts (rpg.tasks.preparation)",
    "model": "the initial model is made before it starts (rpg.models.initial_policy)",
    "evaluation": "checkpoints are evaluated by our evaluators (rpg.evaluation.evaluator)",
    "track": "metrics are sent on by the sweep (flows.sweep.conductor)",
    "training.keep_checkpoints": "rpg.backends.verl.checkpoints",
    "training.micro_batch_rows": "backend.max_tokens_per_gpu takes its place, as its text says",
    "training.micro_batch_tokens": "backend.max_tokens_per_gpu takes its place, as above",
    "backend.verl.attempts": "the sweep starts a run again (flows.sweep)",
    "backend.verl.place": "the sweep submits the job of a run (flows.sweep)",
}
"""What our own code does with a field of a run on verl, by the beginning of its place."""


def _on_verl(spec):
    """The same run on verl, with token records, without checks."""
    on_verl = with_field(spec, "training.token_records.every", 5)
    if isinstance(spec.backend, VerlBackend):
        return on_verl
    return on_verl.model_copy(update={"backend": VerlBackend(type="verl")})


def _is_read(spec, other):
    """Whether verl is started otherwise."""
    try:
        return plan(spec, PATHS) != plan(other, PATHS)
    except AttributeError:  # a number where a section was: it was read
        return True


def _is_refused(spec):
    """Whether a file with these settings is refused, and the back end given as the reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic's, of values that the schema would refuse
        settings = spec.model_dump(mode="json")
    try:
        reason = RunSpec.model_validate(settings).without_effect()
    except ValueError as error:
        reason = str(error)
    return "backend verl" in (reason or "")


def _is_ours(place):
    return any(place == name or place.startswith(f"{name}.") for name in OURS)


@pytest.mark.parametrize("place", [p for p in FIELDS if not p.startswith("backend.local.")])
def test_a_field_is_given_to_verl_or_refused_or_ours(place):
    spec, leaf = FIELDS[place]
    on_verl = _on_verl(spec)
    other = with_field(on_verl, leaf.dotted, changed(leaf))
    assert _is_read(on_verl, other) or _is_ours(place) or _is_refused(other), (
        f"{place}: verl is started alike with {leaf.value!r} and {changed(leaf)!r}; "
        "give it to verl (rpg/backends/verl/overrides.py, rpg/config/verl_keys.yaml), "
        "refuse it (RunSpec), or say in OURS what reads it"
    )


def test_what_is_ours_names_fields():
    unused = [
        name for name in OURS if not any(f"{place}.".startswith(f"{name}.") for place in FIELDS)
    ]
    assert unused == []
