"""The commands `rpg model` and `rpg push`: models from the Hugging Face hub; checkpoints to it,
runs to an archive."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, app, columns, console, layout_at, refuse, say
from rpg.cli.recorded import result
from rpg.errors import first_line
from rpg.store import Layout, RunFolder


@app.command()
def model(
    source: Annotated[str | None, typer.Argument()] = None,
    name: str | None = None,
    file: Path | None = None,
    revision: str | None = None,
    home: Home = None,
) -> None:
    """Fetch, check and convert a pretrained model once; then `model: {type: pretrained, path:
    NAME}` needs no network.

    Args:
        source: Name of a known model, a GGUF file, a hub id, or the folder of a checkpoint of
            adapters alone (model.lora.base nf4), which are merged. Without it: list models.
        name: Store it under this name. Default: its own name.
        file: A copy of a known model's GGUF file, for use without a network.
        revision: Commit or branch of the model on the hub.
    """
    layout = layout_at(home)
    if source is None:
        _list(layout)
        return
    from rpg.models.model_cache import keep

    folder = keep(source, layout.home, name=name, file=file, revision=revision, say=say)
    result(folder=folder)
    say(f"use it with: model: {{type: pretrained, path: {folder.name.replace('--', '/')}}}")


def _list(layout: Layout) -> None:
    from rpg.config.model import KNOWN_MODELS, kept_under, models_folder
    from rpg.next_steps import command

    table = columns("name", "model", "parameters", "licence", "here", right=("parameters",))
    for model in KNOWN_MODELS.values():
        is_here = (kept_under(layout.home, model.name) / "config.json").is_file()
        count = f"{model.parameters / 1e6:.0f} M"
        fetch = "yes" if is_here else command("model", model.name, layout=layout)
        table.add_row(model.name, model.about, count, model.licence, fetch)
    for folder in sorted(models_folder(layout.home).glob("[!.]*/source.json")):
        name = folder.parent.name.replace("--", "/")
        if name not in KNOWN_MODELS:
            table.add_row(name, str(json.loads(folder.read_text("utf-8"))["source"]), "", "", "yes")
    console.print(table, markup=False)


_OURS = ("training/", "checkpoint.json", "README.md")
"""Not uploaded: the training state and our record of files; the model card is generated."""
Private = Annotated[bool, typer.Option("--private")]


Words = Annotated[
    list[str] | None, typer.Argument(metavar="CHECKPOINT REPO | [URL] [SWEEP|SWEEP/RUN...]")
]


@app.command()
def push(words: Words = None, private: Private = False, home: Home = None) -> int:
    """Upload a checkpoint to the Hugging Face hub, with a model card that contains settings and
    scores; or copy finished runs to an object storage.

    Log in as for the hub's own tools, with HF_TOKEN or `hf auth login`; for s3://, as for
    Amazon's own tools.

    Args:
        words: A checkpoint (SWEEP/RUN/step-000040, or its folder) and a repository on the hub
            (me/my-model; created if it does not exist). Or the address of an archive (default:
            $RPG_ARCHIVE) and the runs to copy (default: all finished ones); runs that are already
            there are not sent again.
        private: Create it as a private repository.
    """
    from rpg.cli.archive import push_runs

    layout = layout_at(home)
    words = words or []
    if (
        len(words) == 2
        and "://" not in words[0]
        and not all((layout.runs / word).is_dir() for word in words)
    ):
        _push_to_hub(layout, words[0], words[1], private)
        return 0
    if private:
        refuse("--private: only for CHECKPOINT REPO; who reads an archive is up to its storage")
    return push_runs(layout, words)


def _push_to_hub(layout: Layout, checkpoint: str, repo: str, private: bool) -> None:
    from httpx import TransportError
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from rpg.report.model_card import model_card

    folder = _folder(layout, checkpoint)
    run = RunFolder(folder.parents[1])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: path.relative_to(folder).as_posix() for path in files}
    chosen = [path for path in files if not names[path].startswith(_OURS)]
    card = model_card(run, int(folder.name.partition("-")[2]), repo.rpartition("/")[2])
    operations = [CommitOperationAdd(names[path], path) for path in chosen]
    operations.append(CommitOperationAdd("README.md", card.encode()))
    api = HfApi()
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        done = api.create_commit(
            repo, operations, commit_message=f"{run.sweep}/{run.name}, {folder.name}"
        )
    except TransportError as error:
        refuse(f"{repo}: the hub at {api.endpoint} cannot be reached ({error})")
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        token = (
            ""
            if isinstance(error, HFValidationError)
            else ". Is HF_TOKEN set, or `hf auth login` done?"
        )
        refuse(f"{repo}: the hub refuses the upload: {first_line(error)}{token}")
    result(files=len(operations), address=done.commit_url)
    say(f"{len(operations)} files: {done.commit_url}")


def _folder(layout: Layout, checkpoint: str) -> Path:
    parts = checkpoint.strip("/").split("/")
    folder = Path(checkpoint).expanduser()
    existing = ""
    if not folder.is_dir() and len(parts) in (2, 3):
        run = layout.run(parts[0], parts[1])
        folder = run.checkpoints / (parts[2] if len(parts) == 3 else "step")
        names = [run.checkpoint(step).name for step in run.checkpoint_steps()]
        existing = f". {run.sweep}/{run.name} has {', '.join(names)}" if names else ""
    if (
        not (folder / "checkpoint.json").is_file()
        or not (folder.parents[1] / "manifest.json").is_file()
    ):
        refuse(
            f"{checkpoint}: not a checkpoint of a run; expected SWEEP/RUN/step-000040 or "
            f"the path of such a folder{existing}"
        )
    return folder.resolve()
