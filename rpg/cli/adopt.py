"""The command `rpg adopt`: from somebody's data, TRL script or verl command to files that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, complain, layout_at, refuse, say

_SHOWN = 8
"""Rows of a kind that are printed."""


@app.command(
    epilog="Examples: rpg adopt problems.jsonl · rpg adopt data --into lab --model Qwen/Qwen3-0.6B · rpg adopt grpo.py"
)
def adopt(
    source: Annotated[
        str,
        typer.Argument(
            help="JSON lines, CSV, Parquet; a folder of these; a hub id; a TRL script (.py); a verl command (.sh)."
        ),
    ],
    into: Annotated[Path | None, typer.Option(help="Folder to create (default: the source's name).")] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub id; default: the script's, or a tiny one.")
    ] = None,
    samples: Annotated[
        bool, typer.Option(help="Sample the model on eight problems before anything is trained.")
    ] = True,
    home: Home = None,
) -> None:
    """Propose task, columns, verifier, split and settings for data or a script of yours, as commented YAML.

    Scripts are read as text, never executed; the functions that give rewards are copied out of them. Rows that cannot be
    used are listed in unusable.txt; repeats and overlaps are left out by the training, and said here.
    """
    from rpg.adopting import propose, read_source
    from rpg.config.sweep_spec import load_file
    from rpg.next_steps import command
    from rpg.tasks import load_problems
    from rpg.tasks.preparation import data_digest

    origin, layout = read_source(source), layout_at(home)
    folder = into or Path(origin.name)
    if folder.exists():
        refuse(f"{folder}: already exists and was not changed; choose another folder with --into")
    chosen, unusable = propose(origin, folder, model)
    spec = load_file(folder / "sweep.yaml", {}, data_digest).runs[0].spec
    splits = load_problems(spec.task)
    say(
        f"{folder}: {len(splits.train):,} problems to train on, {len(splits.benchmarks['held-out']):,} held out\n{chosen}"
    )
    left_out = [f"{drop.reason}: {drop.problem}, {drop.detail}" for drop in splits.dropped]
    for what, lines in (("cannot be used", unusable), ("left out", left_out)):
        say(f"{len(lines):,} rows {what}", "yellow" if lines else None)
        for line in lines[:_SHOWN]:
            say(f"  {line}", "dim")
    for remark in origin.remarks:
        say(f"! {remark}", "yellow")
    if samples:
        from rpg.adopting.first_samples import first_samples

        for line in first_samples(spec, layout.home, complain):
            say(line)
    say(f"next: {command('sweep', str(folder / 'sweep.yaml'), layout=layout)}")
