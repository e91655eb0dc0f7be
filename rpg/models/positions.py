"""How many tokens a model has positions for."""

from collections.abc import Mapping
from typing import Any

_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
)
"""The names that configurations have for it."""
_OF_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models that also see or hear keep the configuration of their text model."""


def positions_of(config: Any) -> int | None:
    """The longest sequence that a model's configuration (an object of transformers, or what its
    file says) allows, prompt and response together; None if it says none."""
    fields: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    for name in _NAMES:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    for name in _OF_TEXT:
        nested = fields.get(name)
        if isinstance(nested, Mapping) and (value := positions_of(nested)) is not None:
            return value
    return None


def room_of(config: Any) -> int:
    """:func:`positions_of`, or more than any sequence needs."""
    return positions_of(config) or 1 << 30
