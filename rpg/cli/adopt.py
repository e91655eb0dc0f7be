"""The commands `rpg init` and `rpg adopt`: files that train, as an example, or from somebody's
data, TRL script or verl command.
"""

import shlex
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from rpg.cli.app import Home, app, complain, layout_at, refuse, say
from rpg.next_steps import command

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec
    from rpg.interop.adopting import Source

_SHOWN = 8  # rows of a kind that are printed


@app.command()
def init(folder: Path) -> None:
    """Create a folder with an example task, a run and a commented sweep, ready to run and edit.

    Args:
        folder: Folder to create.
    """
    from rpg.cli.lab import make_data

    with as_file(files("rpg.cli.lab")) as lab:
        shipped = {path.name: path for path in sorted(lab.glob("[!._]*.*"))}
        for name in (names := sorted({*shipped, "train.jsonl", "test.jsonl"})):
            if (folder / name).exists():
                refuse(
                    f"{folder / name}: already exists and was not changed; choose another folder"
                )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            refuse(f"{folder}: is a file; expected a folder")
        for name, path in shipped.items():
            (folder / name).write_bytes(path.read_bytes())
    make_data.write(folder)
    say(f"created {folder}: {', '.join(names)}")
    say("data or a script of your own: rpg adopt FILE")
    there = f"cd {shlex.quote(str(folder))}"
    if str(folder).startswith("-"):
        there = f"cd -- {shlex.quote(str(folder))}"
    say(f"next: {there} && {command('sweep', 'sweep.yaml', layout=layout_at(None))}")


@app.command()
def adopt(
    source: str,
    into: Path | None = None,
    model: str | None = None,
    samples: bool = True,
    home: Home = None,
) -> None:
    """Propose task, columns, template, verifier, split and settings for data or a script of yours,
    as commented YAML.

    Scripts are read as text and never run; only their reward functions, and what these use, are
    copied for training. left-out.txt lists the rows that cannot be used, repeats and overlaps.

    Args:
        source: JSON lines, CSV, Parquet; a folder of these; a hub id; a TRL script (.py); a verl
            command (.sh).
        into: Folder to create (default: the source's name).
        model: Folder or hub id; default: the script's, or a tiny one.
        samples: Sample the model on eight problems before anything is trained.
    """
    from rpg.config.sweep_spec import load_file
    from rpg.errors import UserError
    from rpg.interop.adopting import propose, read_source, shown_prompts
    from rpg.tasks import load_problems
    from rpg.tasks.preparation import data_digest

    origin = read_source(source)
    layout = layout_at(home)
    folder = into or Path(origin.name)
    if folder.exists():
        refuse(f"{folder}: already exists and was not changed; choose another folder with --into")
    proposal = propose(origin, folder, model)
    spec = load_file(folder / "sweep.yaml", {}, data_digest).runs[0].spec
    _compare(origin, source, spec, folder)
    splits = load_problems(spec.task)
    held_out = len(splits.benchmarks["held-out"])
    say(f"{folder}: {len(splits.train):,} problems to train on, {held_out:,} held out")
    for sentence in proposal.sentences():
        say(sentence)
    for line in shown_prompts(splits.train):
        say(line, "dim")
    dropped = [f"{d.reason}: {d.problem}, {d.detail}: {d.text[-60:]!r}" for d in splits.dropped]
    (folder / "left-out.txt").write_text(
        "".join(f"{line}\n" for line in proposal.unusable + dropped), "utf-8"
    )
    _say_left_out("cannot be used", proposal.unusable)
    _say_left_out(f"left out (lines of the files in {folder})", dropped)
    for remark in origin.remarks:
        say(f"! {remark}", "yellow")
    if origin.rewards:
        functions = (
            f"{folder / 'adopted_rewards.py'}: {', '.join(origin.rewards)} and what they name"
        )
        say(f"! {functions}; sampling and training run it", "yellow")
    if samples:
        from rpg.interop.adopting.first_samples import first_samples

        try:
            for line in first_samples(spec, layout.home, complain):
                say(line)
        except UserError as error:
            say(f"no samples before training: {error}", "yellow")
    say(f"next: {command('sweep', str(folder / 'sweep.yaml'), layout=layout)}")


def _say_left_out(what: str, lines: list[str]) -> None:
    count = f"{len(lines):,} row{'s' if len(lines) != 1 else ''}"
    say(f"{count} {what}" + (":" if lines else ""), "yellow" if lines else None)
    for line in lines[:_SHOWN]:
        say(f"  {line}", "dim")
    if len(lines) > _SHOWN:
        say(f"  ... and {len(lines) - _SHOWN:,} more, in left-out.txt", "dim")


def _compare(origin: "Source", source: str, spec: "RunSpec", folder: Path) -> None:
    """Compare the loss with the trainer's own, and say so; nothing is left where they differ."""
    from rpg.errors import UserError
    from rpg.interop.adopting.loss_check import check_loss

    try:
        sentence = check_loss(origin, source, spec)
    except UserError:
        shutil.rmtree(folder)
        raise
    if sentence:
        say(sentence)
