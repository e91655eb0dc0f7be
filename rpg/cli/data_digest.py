"""Digests of data that may not be here: what a file means can be looked at before its data is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpg.config.run_spec import RunSpec

if TYPE_CHECKING:
    from rpg.store import Layout

UNKNOWN = "not-known-yet"
"""Stands for an identity that depends on data that is neither here nor, just now, to be had."""


class LenientDigest:
    """`data_digest` for `rpg show` and `rpg render`; `absent` says for which tasks it is not known, and why.

    Files on this machine that are named and missing are mistakes (rpg.planning.preflight), not absent data.
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
    """Raises: ConfigError: files or models that are named and are not there, a line each."""
    from rpg.config.errors import ConfigError
    from rpg.planning.preflight import wrong_paths

    if lines := wrong_paths(specs, layout):
        raise ConfigError("\n".join(f"{file}: {line}" for line in lines))
