"""The command `rpg render`: how a run would be started on verl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import File, Home, Set, app, complain, console, layout_at, refuse
from rpg.cli.show import UNKNOWN, DigestIfPresent

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec
    from rpg.config.sweep_spec import PlannedRun


@app.command(epilog="Example: rpg render chain --set backend.type=verl --set algorithm=rpg-reinforce-urkl")
def render(
    file: File,
    set_: Set = [],
    run: Annotated[
        str | None,
        typer.Option("--run", help="Run of the sweep: the name of its folder, or the beginning of it."),
    ] = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show how a run would start on verl: Hydra overrides, shell command, Ray's runtime environment."""
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything of the hub's is imported
    from rpg.backends.verl.overrides import Paths, plan
    from rpg.config.load import parse_assignments, read_mapping
    from rpg.config.sweep_spec import load_sweep, single_run
    from rpg.config.verl_keys import unknown
    from rpg.tasks.preparation import data_files

    load = load_sweep if "name" in read_mapping(file) else single_run
    digest = DigestIfPresent()
    sweep = load(file, parse_assignments(set_), digest)
    chosen = _choose(sweep.runs, run, file)
    spec, has_id = chosen.spec, digest.known(chosen.spec)
    if spec.backend.type != "verl":
        refuse(
            f"{file}: backend.type: {spec.backend.type!r}; only runs on verl can be rendered; try: --set backend.type=verl"
        )
    if wrong := unknown(spec.backend.verl):
        refuse("\n".join(f"{file}: {line}" for line in wrong))
    layout = layout_at(home)
    folder = layout.run(sweep.spec.name, chosen.folder)
    paths = Paths.of(
        folder.path, data_files(spec, layout.home, chosen.data), _model(spec, layout.home, has_id)
    )
    launch = plan(spec, paths, project=folder.sweep, experiment=folder.name)
    if as_json:
        print(json.dumps({"run": chosen.folder, "run_id": chosen.run_id if has_id else None, "overrides": launch.overrides,
                          "arguments": launch.arguments(), "environment": launch.environment,
                          "runtime_env": launch.runtime_env(), "command": launch.command()}, indent=1))  # fmt: skip
        return
    console.rule(f"overrides ({chosen.folder})", align="left")
    for argument in launch.arguments():
        print(argument)
    console.rule("shell command", align="left")
    print(launch.command())
    console.rule("Ray runtime environment", align="left")
    print(json.dumps(launch.runtime_env(), indent=1))
    for reason in digest.absent.values():
        complain(f"the data is not here, so this run's identity is not known yet: {reason}", "yellow")


def _choose(runs: tuple[PlannedRun, ...], name: str | None, file: Path) -> PlannedRun:
    from rpg.config.errors import nearest

    folders = [planned.folder for planned in runs]
    matching = [planned for planned in runs if name is None or planned.folder == name] or [
        planned for planned in runs if planned.folder.startswith(name or "")
    ]
    if len(matching) == 1:
        return matching[0]
    if name is None:
        problem = f"has {len(runs)} runs; choose one with --run"
    else:
        problem = f"--run {name!r} matches {len(matching) or 'none'} of its runs{'' if matching else nearest(name, folders)}"
    shown = ", ".join(folders[:10]) + (f" and {len(folders) - 10} more" if len(folders) > 10 else "")
    refuse(f"{file}: {problem}. There are: {shown}")


def _model(spec: RunSpec, home: Path, has_id: bool) -> str | Path:
    """The folder of a tiny model's warm start, made or not; a pretrained model's path or hub id."""
    if spec.model.type == "pretrained" and spec.model.warm_start is None:
        from rpg.config.model import located

        local = located(spec.model.path, home)
        return local.resolve() if local else spec.model.path
    if not has_id:
        return home / "cache" / "warm" / UNKNOWN
    from rpg.models.warm_start_cache import warm_folder

    return warm_folder(spec, home)
