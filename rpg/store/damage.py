"""What is said of damaged files, wherever people look at results."""

from collections.abc import Iterable

from rpg.store.run_folder import RunFolder


def damage_notes(folders: Iterable[RunFolder]) -> list[str]:
    """A sentence for each damaged file of these runs."""
    return [
        f"damaged: {folder.name}/{name} {why}; it counts nowhere"
        for folder in folders
        for name, why in folder.damage().items()
    ]
