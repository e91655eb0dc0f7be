"""Digests of data that may be absent, so that a file can be inspected before its data are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpg.config.run_spec import RunSpec

if TYPE_CHECKING:
    from rpg.store import Layout

UNKNOWN = "not-known-yet"
"""Placeholder for an identity that depends on data that are neither here nor currently available."""


class DigestIfPresent:
    """`data_digest` for `rpg show` and `rpg render`; `absent` maps tasks without known digest to the reason.

    A missing local file is a mistake (rpg.planning.preflight), not absent data.
    """

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}

    def __call__(self, spec: RunSpec) -> str:
        from rpg.config.errors import ConfigError
        from rpg.tasks import DataError
        from rpg.tasks.preparation import data_digest

        task = spec.task.model_dump_json()
        if task not in self.absent:
            try:
                return data_digest(spec)
            except DataError as error:
                if isinstance(error.__cause__, ConfigError):
                    raise
                self.absent[task] = str(error)
        return UNKNOWN

    def known(self, spec: RunSpec) -> bool:
        """Whether the identity of a run is known."""
        return spec.task.model_dump_json() not in self.absent


def refuse_wrong_paths(specs: list[RunSpec], file: object, layout: Layout) -> None:
    """Raises ConfigError with a line for each file or model that is named and does not exist."""
    from rpg.config.errors import ConfigError
    from rpg.planning.preflight import wrong_paths

    if lines := wrong_paths(specs, layout):
        raise ConfigError("\n".join(f"{file}: {line}" for line in lines))
