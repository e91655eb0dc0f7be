"""What is said of damaged files, wherever people look at results."""

from collections.abc import Iterable, Mapping

from rpg.store.run_folder import RunFolder


def damage_notes(folders: Iterable[RunFolder]) -> list[str]:
    """A sentence for each damaged file of these runs."""
    return [line for folder in folders for line in notes_of(folder.name, folder.damage())]


def notes_of(run: str, damage: Mapping[str, str]) -> list[str]:
    """A sentence for each damaged file of one run: name -> what is wrong with it."""
    return [f"damaged: {run}/{name} {why}; no result includes it" for name, why in damage.items()]
