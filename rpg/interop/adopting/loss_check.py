"""Whether a proposed algorithm has the gradient of the loss that it was translated from."""

from pathlib import Path

from rpg.auditing.linter import read_loss
from rpg.auditing.translations import checked
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError
from rpg.interop.adopting.taken_over import Source


def check_loss(source: Source, given: str, spec: RunSpec) -> str:
    """A sentence about the comparison; empty where the source names no trainer. Raises UserError:
    the gradients differ."""
    if source.foreign is None:
        return ""
    try:
        reading = read_loss(Path(given).expanduser(), source.foreign)
    except UserError as error:
        return f"the loss was not checked: {error}"
    try:
        return checked(reading.source, reading.subject, spec.algorithm)
    except ValueError as error:
        raise UserError(f"{given}: {error}; nothing was proposed") from None
