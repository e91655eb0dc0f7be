"""Questions about an invented country, and the encyclopedia in which its rivers stand (docs/turns.md).

    prompt    Through which town does the river Tovimi flow?
    response  <<Tovimi>>                                        the model looks a name up
              =Tovimi is a river. It flows through Sanoka.      what the encyclopedia says
              Answer: Sanoka                                    the model again

`python configs/environments/encyclopedia.py` writes the problems beside this file.
"""

import json
import random
from pathlib import Path

RIVERS = 400
SYLLABLES = "ba de fi go ka lu mi no pa re sa ti vo zu".split()


def towns() -> dict[str, str]:
    """River -> the town it flows through, always the same."""
    rng, names = random.Random("encyclopedia"), dict[str, None]()
    while len(names) < 2 * RIVERS:
        names["".join(rng.choices(SYLLABLES, k=rng.choice((3, 4)))).capitalize()] = None
    return dict(zip(list(names)[:RIVERS], list(names)[RIVERS:], strict=True))


TOWNS = towns()


class Encyclopedia:
    """Looks up names."""

    def reset(self, **columns: object) -> None:
        """There is nothing to prepare."""

    def search(self, name: str) -> str:
        """Look up a name.

        Args:
            name: The name of a river.

        Returns:
            Its entry, or that there is none, with entries that begin like it.
        """
        if name in TOWNS:
            return f"{name} is a river. It flows through {TOWNS[name]}."
        near = sorted(river for river in TOWNS if name and river.startswith(name[:3].capitalize()))[:3]
        return f"There is no entry {name[:40]!r}." + (f" See {', '.join(near)}." if near else "")


def problem(river: str) -> dict[str, str]:
    """A row of the data: the demonstration is a list of turns, the model's, the tool's and the model's."""
    turns = [f"<<{river}>>", Encyclopedia().search(river), f"Answer: {TOWNS[river]}"]
    prompt = f"Through which town does the river {river} flow?"
    return {"prompt": prompt, "answer": TOWNS[river], "demonstration": json.dumps(turns)}


def write(folder: Path) -> None:
    """336 problems for training and 64 others."""
    for name, rivers in {"encyclopedia-train": list(TOWNS)[64:], "encyclopedia": list(TOWNS)[:64]}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(problem(river)) + "\n" for river in rivers))


if __name__ == "__main__":
    write(Path(__file__).parent)
