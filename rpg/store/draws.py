"""The store of samples: every response that was drawn, once, whatever it was drawn for.

    samples/<key>/settings.json
        Model, engine, sampling, precision, device, seed: the key is their digest.
    samples/<key>/<time>-<process>.jsonl.gz
        A line per response. A process only appends to a file of its own, in batches.
    samples/<key>/.claims
        Locks on its bytes say from which problems a process draws.

Samples of one key are known by their problem, prompt and number. How many a problem has, which
problems a benchmark has and how they are graded is a matter of the files that are made from them
(rpg.store.samples).
"""

import fcntl
import gzip
import hashlib
import json
import os
import time
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rpg.store.atomic_files import atomic_write_json, readable

SETTINGS = "settings.json"
_TOKENS = {"ids", "heard", "prompt_ids"}
"""Fields of a Draw that are lists of numbers, which arrays hold in a fifth of the memory."""


class Key(NamedTuple):
    """A sample among those of the same settings."""

    problem: str
    prompt: str
    """Digest of what model (before its chat template) and environment were given."""
    sample: int


class Draw(NamedTuple):
    """A response; `tokens` is its length, `truncated`: the length limit ended it."""

    response: str
    tokens: int
    truncated: bool
    turns: Sequence[str] | None = None
    """Of a conversation: the policy's and the environment's in turn; `response` is all of them,
    `tokens` the policy's."""
    earned: float | None = None
    """What the environment said that the response earned."""
    ids: Sequence[int] | None = None
    """The tokens of the response, whoever wrote them; None for those that an older version drew."""
    heard: Sequence[int] | None = None
    """Of a conversation: the places in `ids` of the tokens that the environment wrote."""
    prompt_ids: Sequence[int] | None = None
    """Of a conversation: the tokens of its prompt, to which the environment may have added."""


def digest(value: Any) -> str:
    """32 hexadecimal digits for plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _model_name(model: str | Path, home: Path) -> str:
    """How files call a model: by its folder, relative to the data folder where it is inside."""
    path = Path(model).expanduser().absolute()
    if not path.is_dir():
        return str(model)
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


class Draws:
    """The samples of one model under one set of settings. Several processes may read and add at the
    same time.

    Methods raise StoreError: a file cannot be read or written.
    """

    def __init__(self, home: Path, settings: Mapping[str, Any], model: str | Path):
        """`settings` is all that a response depends on besides problem, prompt and number; `model`
        says in words what was sampled from, which is no part of the key."""
        self.key = digest(settings)
        self.with_turns = "environment" in settings
        self.folder = home / "samples" / self.key
        named = _model_name(model, home)
        self._settings = {**settings, "of": named}
        engine = settings.get("engine", {}).get("type", "")
        self.about = {"model": named, "engine": engine, "draws": self.key}
        """For the metadata of files that are made from these samples."""
        self._own = self.folder / f"{time.time_ns()}-{os.getpid()}.jsonl.gz"
        self._rows: dict[Key, Draw] = {}
        self._read: dict[str, int] = {}

    def read(self) -> dict[Key, Draw]:
        """All samples so far. A batch that another process is still writing, or that a kill has
        torn, is left out."""
        with readable("read", self.folder):
            for path in sorted(self.folder.glob("*.jsonl.gz")):
                with open(path, "rb") as file:
                    file.seek(self._read.get(path.name, 0))
                    left = file.read()
                    while left and (batch := _unpacked(left)) is not None:
                        left = batch[1]
                        self._know(row for line in batch[0].splitlines() if (row := _row(line)))
                    self._read[path.name] = file.tell() - len(left)
        return self._rows

    def add(self, draws: Mapping[Key, Draw]) -> None:
        """Append samples; when this returns they are on disk."""
        rows = [key._asdict() | _stored(draw) for key, draw in draws.items()]
        text = "".join(json.dumps(row) + "\n" for row in rows).encode("ascii")
        self._begin()
        try:
            with readable("write", self._own), open(self._own, "ab") as file:
                file.write(gzip.compress(text, mtime=0))
                file.flush()
                os.fsync(file.fileno())
        except BaseException:  # a torn batch stays the last of its file
            self._own = self._own.with_name(f"{time.time_ns()}-{os.getpid()}.jsonl.gz")
            raise
        self._know(draws.items())

    @contextmanager
    def claimed(self, problems: Iterable[str]) -> Iterator[set[str]]:
        """Those of the problems from whose samples no other process draws; they are this one's
        until the block or the process ends. Read again after this: another process may just have
        finished some."""
        self._begin()
        with ExitStack() as held:
            with readable("lock", self.folder):
                file = held.enter_context(open(self.folder / ".claims", "ab"))
                ours = {problem for problem in problems if _lock(file.fileno(), problem)}
            yield ours

    def _know(self, draws: Iterable[tuple[Key, Draw]]) -> None:
        for key, draw in draws:
            first = self._rows.setdefault(key, draw)
            if first.ids is None and draw.response == first.response:
                self._rows[key] = draw  # the same response, drawn again for its tokens

    def _begin(self) -> None:
        if not (self.folder / SETTINGS).exists():
            atomic_write_json(self.folder / SETTINGS, self._settings)


def _unpacked(data: bytes) -> tuple[bytes, bytes] | None:
    """The lines of the first batch, and what follows it; None if the batch is not whole."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        lines = stream.decompress(data)
    except zlib.error:
        return None
    return (lines, stream.unused_data) if stream.eof else None


def _stored(draw: Draw) -> dict[str, Any]:
    row = {name: value for name, value in draw._asdict().items() if value is not None}
    for name in _TOKENS & row.keys():
        row[name] = list(row[name])
    return row


def _row(line: bytes) -> tuple[Key, Draw] | None:
    """A stored sample; None for any other line, such as older versions wrote about KLs."""
    try:
        row = json.loads(line)
        values = {name: row[name] for name in Draw._fields if name in row}
        for name in _TOKENS & values.keys():
            values[name] = array("i", values[name])
        return Key(*(row[name] for name in Key._fields)), Draw(**values)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def _lock(fd: int, problem: str) -> bool:
    """A lock on the one byte that stands for a problem; the kernel releases it however its holder
    ends."""
    byte = int(digest(problem)[:15], 16)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True
