"""The command `rpg push`: upload a checkpoint to the Hugging Face hub, with a model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import Home, app, say

if TYPE_CHECKING:
    from rpg.store import Layout

_OURS = ("training/", "checkpoint.json", "README.md")
"""Not uploaded: the training state and our record of files; the model card is generated."""


@app.command(epilog="Example: rpg push quickstart/rpg-ufkl-s0-1a2b3c4d/step-000040 me/my-model --private")
def push(
    checkpoint: Annotated[
        str, typer.Argument(help="SWEEP/RUN/step-000040, or the folder of a run's checkpoint.")
    ],
    repo: Annotated[
        str, typer.Argument(help="Repository on the hub, e.g. me/my-model; created if it does not exist.")
    ],
    private: Annotated[bool, typer.Option("--private", help="Create it as a private repository.")] = False,
    home: Home = None,
) -> int:
    """Upload a checkpoint to the Hugging Face hub, with a model card that contains settings, curve and scores.

    Log in as for the hub's own tools: with HF_TOKEN, or `hf auth login`.
    """
    from httpx import TransportError
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from rpg.config.errors import ConfigError
    from rpg.store import Layout, RunFolder
    from rpg.store.model_card import model_card

    folder = _folder(Layout.at(home), checkpoint)
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
        done = api.create_commit(repo, operations, commit_message=f"{run.sweep}/{run.name}, {folder.name}")
    except TransportError as error:
        raise ConfigError(f"{repo}: the hub at {api.endpoint} cannot be reached ({error})") from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        token = "" if isinstance(error, HFValidationError) else ". Is HF_TOKEN set, or `hf auth login` done?"
        raise ConfigError(f"{repo}: the hub refuses the upload: {first}{token}") from error
    say(f"{len(operations)} files: {done.commit_url}")
    return 0


def _folder(layout: Layout, checkpoint: str) -> Path:
    from rpg.config.errors import ConfigError

    parts = checkpoint.strip("/").split("/")
    folder = Path(checkpoint).expanduser()
    existing = ""
    if not folder.is_dir() and len(parts) in (2, 3):
        run = layout.run(parts[0], parts[1])
        folder = run.checkpoints / (parts[2] if len(parts) == 3 else "step")
        names = [run.checkpoint(step).name for step in run.checkpoint_steps()]
        existing = f". {run.sweep}/{run.name} has {', '.join(names)}" if names else ""
    if not (folder / "checkpoint.json").is_file() or not (folder.parents[1] / "manifest.json").is_file():
        raise ConfigError(
            f"{checkpoint}: not a checkpoint of a run; expected SWEEP/RUN/step-000040 or the path of such a folder{existing}"
        )
    return folder.resolve()
