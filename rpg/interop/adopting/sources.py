"""What a file, folder, hub id, TRL script or verl command names: its data, model, prompt, rewards
and settings, as data."""

import re
from pathlib import Path

from rpg.errors import UserError
from rpg.interop.adopting.taken_over import Source
from rpg.interop.adopting.trl_scripts import read_script
from rpg.interop.adopting.verl_commands import read_command

DATA = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
SCRIPTS = (".py", ".sh")
HUB = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]*))?(?::(.+))?")
"""An id on the hub, with a configuration and a split where they are given:
`openai/gsm8k:main:test`."""
_HELD_OUT = re.compile(r"test|valid|dev|eval|held", re.IGNORECASE)


def read_source(given: str) -> Source:
    """What `given` names; scripts are read as text and never executed. Raises UserError: no such
    thing, or no data in it."""
    path = Path(given).expanduser()
    hub = HUB.fullmatch(given)
    if path.is_dir():
        source = _folder(path)
    elif path.suffix == ".py" and path.is_file():
        source = read_script(path)
    elif path.suffix == ".sh" and path.is_file():
        source = read_command(path)
    elif path.is_file() and path.suffix.lower() in DATA:
        source = Source(path.stem, [str(path)])
    elif hub and path.suffix not in (*DATA, *SCRIPTS):
        source = Source(hub[1].rpartition("/")[2], [given])
    else:
        kinds = f"{', '.join(DATA)}, a folder of these, a hub id, .py, .sh"
        raise UserError(f"{given}: does not exist, or is of another kind; expected {kinds}")
    if not source.train:
        remarks = "".join(f"\n  {line}" for line in source.remarks)
        expected = f"expected files that end in {', '.join(DATA)}, or a hub id"
        raise UserError(f"{given}: names no data; {expected}{remarks}")
    return source


def _folder(path: Path) -> Source:
    files = sorted(str(file) for file in path.iterdir() if file.suffix.lower() in DATA)
    held_out = [file for file in files if _HELD_OUT.search(Path(file).stem)]
    train = [file for file in files if file not in held_out]
    return Source(path.resolve().name, train, held_out)
