"""The section `track`: trackers that receive the metrics of a run, which are also in its folder."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from rpg.catalogue.components import named
from rpg.config.errors import explain
from rpg.config.section import Section, kinds_of, listed


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://", "file:", "sqlite:///")):
        raise ValueError("expected an address, e.g. http://127.0.0.1:5000 or sqlite:///mlflow.db")
    return text


class TrackerSection(Section):
    """Base of every tracker. It receives what is in the run's folder and can never disturb
    training."""

    type: str


class TensorBoardTracker(TrackerSection):
    """Event files in `<data folder>/tracking/tensorboard/<sweep>/<run>`."""

    type: Literal["tensorboard"]


class WandbTracker(TrackerSection):
    """Weights & Biases. Offline it writes to `<data folder>/tracking/wandb`; `wandb sync` uploads
    that later."""

    type: Literal["wandb"]
    mode: Literal["offline", "online"] = "offline"
    project: Annotated[str, Field(min_length=1)] = "rpg"
    entity: str | None = None


class MlflowTracker(TrackerSection):
    """An MLflow tracking server or folder."""

    type: Literal["mlflow"]
    uri: Annotated[str, AfterValidator(_address)]
    """For example http://127.0.0.1:5000 or sqlite:///mlflow.db."""
    experiment: str | None = None
    """Default: the name of the sweep."""


_AnyTracker = TensorBoardTracker | WandbTracker | MlflowTracker
Tracker = Annotated[_AnyTracker, Field(discriminator="type"), BeforeValidator(named)]
TRACKERS: dict[str, type[TrackerSection]] = kinds_of(Tracker)


def _distinct(trackers: tuple[TrackerSection, ...]) -> tuple[TrackerSection, ...]:
    if len(set(trackers)) < len(trackers):
        raise ValueError("a tracker is named twice")
    return trackers


Trackers = Annotated[
    tuple[Tracker, ...], listed(str, dict, TrackerSection), AfterValidator(_distinct)
]


RETIRED = ("trackio",)
"""Trackers of earlier versions: manifests may still name them, and files may not."""


def supported(trackers: Any) -> Any:
    """The trackers in a manifest, without those that there are no longer."""
    if not isinstance(trackers, list):
        return trackers
    return [
        tracker
        for tracker in trackers
        if not isinstance(tracker, dict) or tracker.get("type") not in RETIRED
    ]


def tracker_of(value: dict[str, str]) -> TrackerSection:
    """A tracker from its fields. Raises ConfigError: naming the field and what would be
    accepted."""
    try:
        return TypeAdapter[TrackerSection](Tracker).validate_python(value)
    except ValidationError as error:
        raise explain(error, TRACKERS[value["type"]], f"--to {value['type']}") from None
