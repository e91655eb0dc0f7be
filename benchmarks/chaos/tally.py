"""What the kills and faults did, as a table."""

from __future__ import annotations


class Tally:
    """The table's columns."""

    def __init__(self) -> None:
        self.kills = self.processes = self.reruns = self.lost = self.twice = self.orphans = (
            self.different
        ) = 0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.twice or self.orphans or self.different)

    def row(self, name: str) -> str:
        return (
            f"| {name} | {self.kills} | {self.processes} | {self.reruns} | {self.lost} | "
            f"{self.twice} | {self.orphans} "
            f"| {self.different} |"
        )


HEAD = (
    "| fault | times | processes killed | reruns | finished steps lost | counted twice | "
    "orphans | runs that differ |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|"
)
