"""How numbers are written: on the terminal, in reports, on pages and in Prefect."""


def plural(count: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
