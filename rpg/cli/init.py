"""The command `rpg init`: create a folder with a task, a run and a sweep."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from rpg.cli.app import app, refuse, say


@app.command()
def init(folder: Path) -> None:
    """Create a folder with an example task, a run and a commented sweep, ready to run and edit.

    Args:
        folder: Folder to create.
    """
    from rpg.cli.lab import make_data

    with as_file(files("rpg.cli.lab")) as lab:
        shipped = {
            path.name: path for path in sorted(lab.iterdir()) if path.suffix in (".yaml", ".md", ".py")
        }
        del shipped["__init__.py"]
        for name in (*shipped, "train.jsonl", "test.jsonl"):
            if (folder / name).exists():
                refuse(f"{folder / name}: already exists and was not changed; choose another folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            refuse(f"{folder}: is a file; expected a folder")
        for name, path in shipped.items():
            (folder / name).write_bytes(path.read_bytes())
    make_data.write(folder)
    say(f"created {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    say("data or a script of your own: rpg adopt FILE")
    say(f"next: cd {folder} && rpg sweep sweep.yaml")
