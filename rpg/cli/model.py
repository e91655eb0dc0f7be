"""The command `rpg model`: put a pretrained model into the data folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import Home, app, console, say

if TYPE_CHECKING:
    from rpg.store import Layout


@app.command(
    epilog="Examples: rpg model smollm2-135m · rpg model ./some-model.gguf --name mine · rpg model Qwen/Qwen3-0.6B"
)
def model(
    source: Annotated[
        str | None,
        typer.Argument(help="Name of a known model, a GGUF file, or a hub id. Without it: list models."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Store it under this name. Default: its own name.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A copy of a known model's GGUF file, for use without a network."),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Commit or branch of the model on the hub.")] = None,
    home: Home = None,
) -> int:
    """Fetch, check and convert a pretrained model once; then `model: {type: pretrained, path: NAME}` needs no network."""
    from rpg.store import Layout

    layout = Layout.at(home)
    if source is None:
        _list(layout)
        return 0
    from rpg.models.model_cache import keep

    folder = keep(source, layout.home, name=name, file=file, revision=revision, say=say)
    say(f"use it with: model: {{type: pretrained, path: {folder.name.replace('--', '/')}}}")
    return 0


def _list(layout: Layout) -> None:
    from rich.table import Table

    from rpg.config.pretrained import KNOWN_MODELS, kept_under, models_folder

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "model", "parameters", "licence", "here"):
        table.add_column(heading, justify="right" if heading == "parameters" else "left")
    for model in KNOWN_MODELS.values():
        here = (kept_under(layout.home, model.name) / "config.json").is_file()
        count = f"{model.parameters / 1e6:.0f} M"
        table.add_row(
            model.name, model.about, count, model.licence, "yes" if here else f"rpg model {model.name}"
        )
    for folder in sorted(models_folder(layout.home).glob("[!.]*/source.json")):
        name = folder.parent.name.replace("--", "/")
        if name not in KNOWN_MODELS:
            table.add_row(name, str(json.loads(folder.read_text("utf-8"))["source"]), "", "", "yes")
    console.print(table, markup=False)
