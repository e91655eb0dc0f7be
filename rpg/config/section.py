"""What every section of a configuration shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of every section: frozen, and a misspelt field is an error rather than a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


def default_type(default: str) -> BeforeValidator:
    """A section of a union that names no `type` is of the default one: `optimizer: {learning_rate: 1e-3}`."""
    return BeforeValidator(lambda v: {"type": default, **v} if isinstance(v, dict) and "type" not in v else v)
