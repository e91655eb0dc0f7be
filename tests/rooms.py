"""The rooms of the source and what each may import: the table of rooms.yaml, checked by
tests/test_structure.py.

`python -m tests.rooms` prints it for docs/architecture.md. A room may import the rooms named in
`ours` and the packages named in `outside` (besides the standard library); whatever is not named is
an error, an unknown module included.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Room:
    """One room: a package or module prefix, what it holds, all it may import, and the rooms whose
    modules it may name by string, to run them as processes.
    """

    name: str
    what: str
    ours: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()


def _room(name: str, what: str, **lists: str) -> Room:
    return Room(name, what, **{kind: tuple(names.split()) for kind, names in lists.items()})


_TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
ROOMS = tuple(_room(name, **fields) for name, fields in _TABLE.items())


def room_of(module: str) -> Room | None:
    """The room a module belongs to, or None: the one with the longest prefix of its name."""
    module = (
        module if module not in ("rpg", "rpg.__main__") else "rpg.cli"
    )  # `python -m rpg` is the command
    inside = [room for room in ROOMS if module == room.name or module.startswith(room.name + ".")]
    return max(inside, key=lambda room: len(room.name), default=None)


def table() -> str:
    """The rooms as a Markdown table, bottom up."""
    lines = [
        "| room | what it holds | may import | third-party packages | may start |",
        "|---|---|---|---|---|",
    ]
    for room in ROOMS:
        ours, outside, starts = (
            ", ".join(name.removeprefix("rpg.") for name in names)
            for names in (room.ours or ["no other room"], room.outside, room.starts)
        )
        lines.append(
            f"| `{room.name.replace('.', '/')}` | {room.what} | {ours} | {outside} | {starts} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
