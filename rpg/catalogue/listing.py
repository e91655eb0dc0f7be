"""The catalogue as a table for people (`rpg list`)."""

from __future__ import annotations

from rich import box
from rich.table import Table

from rpg.catalogue.entry import Algorithm
from rpg.catalogue.lookup import algorithm, algorithms


def catalogue_table(preset: str = "paper") -> Table:
    """Every algorithm with its formula, objective and source, as a rich table.

    w = π/old, v = ref/old, d = log(π/ref); R or A is the advantage, sg stops the gradient.
    """
    table = Table(
        title=f"Algorithms (preset {preset})",
        caption="w = π/old, v = ref/old, d = log(π/ref), R and A: advantage, sg: held constant; "
        "clipped: exact only where nothing is clipped",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        pad_edge=False,
    )
    table.add_column("name", no_wrap=True, style="bold")
    for heading in ("loss per sample", "objective", "source"):
        table.add_column(heading)
    for name, algo in algorithms(preset).items():
        table.add_row(name, algo.formula, algo.objective, algo.citation)
    return table


def algorithm_table(name: str, preset: str = "paper") -> Table:
    """One algorithm in full: its prose, every setting, and the rows of the paper's tables it stands for.

    Raises rpg.catalogue.AlgorithmError for an unknown name or preset.
    """
    algo: Algorithm = algorithm(name, preset)
    table = Table(title=f"{algo.display_name}: {algo.description}", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key in ("formula", "objective", "citation"):
        table.add_row(key, getattr(algo, key))
    if algo.paper_rows:
        table.add_row("paper rows", "\n".join(algo.paper_rows))
    for key, value in algo.settings().items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        table.add_row(key, str(value))
    return table
