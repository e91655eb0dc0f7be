"""The base of all errors that a user can fix (others are bugs), the command that installs what is
missing, out-of-memory errors, words of messages, text that is safe to print.
"""

import re
import shlex
import shutil
import sys
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "rpg-lab"
_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "std::bad_alloc")
"""What PyTorch and the C library say when there is none left."""


LONGEST = 8_000
"""Characters of a message: a value that somebody gave may be as long as a file."""


class UserError(Exception):
    """`str(error)` is the whole message: it names what is wrong and what would be accepted, without
    a traceback."""

    def __str__(self) -> str:
        message = super().__str__()
        if len(message) <= LONGEST:
            return message
        return f"{message[:LONGEST]}... and {len(message) - LONGEST:,} more characters"


def install_command(*extras: str) -> str:
    """The command that installs these extras ("": what is always needed) for this Python: those of
    the checkout, with its pins, or else what they ask for by name, e.g. `pip install 'peft>=0.17'`:
    this distribution is on no index.
    """
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        named = ",".join(filter(None, extras))
        words = ["-e", f"{checkout}[{named}]" if named else str(checkout)]
        if "inspect" not in extras:  # its newest releases want another fsspec than our pins
            words += ["-c", str(checkout / f"constraints{'-gpu' if 'vllm' in extras else ''}.txt")]
    else:
        asked = requirements()
        names = list(extras)
        words = []
        for name in names:
            for text in asked.get(name, ()):
                if text.startswith(PACKAGE):  # an extra of extras
                    names += text.partition("[")[2].rstrip("]").split(",")
                else:
                    words.append(text)
    return " ".join([pip_install(), *map(shlex.quote, dict.fromkeys(words))])


def see(page: str) -> str:
    """Where to read more, e.g. ` (docs/grading.md)`; "" where there is no clone with the pages."""
    clone = Path(__file__).resolve().parents[1]
    return f" (docs/{page}.md)" if (clone / "docs" / f"{page}.md").is_file() else ""


def pip_install() -> str:
    """How a command begins that installs for the Python that runs this."""
    program = shutil.which("pip")
    python = shlex.quote(sys.executable)
    if program is not None and Path(program).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"


def requirements() -> dict[str, list[str]]:
    """What this distribution ("") and each extra asks for, e.g. `{"lora": ["peft>=0.17"]}`; {} if
    it is not installed."""
    asked: dict[str, list[str]] = {}
    with suppress(metadata.PackageNotFoundError):
        for line in metadata.requires(PACKAGE) or []:
            text, _, marker = line.partition(";")
            extra = re.search(r"""extra == ['"]([\w-]+)['"]""", marker)
            asked.setdefault(extra[1] if extra else "", []).append(text.strip())
    return asked


def first_line(error: object) -> str:
    """The first line of an error's text, for messages of one line; the name of its class where it
    has none."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )


def is_no_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a CPU or a GPU; PyTorch has a class for the latter only."""
    return isinstance(error, MemoryError) or any(
        words in str(error).lower() for words in _NO_MEMORY
    )


_CONTROLS = {
    ord(c): repr(c)[1:-1] for c in map(chr, (*range(32), *range(127, 160))) if c not in "\n\t"
}


def visible(text: str) -> str:
    """A text with its control characters escaped, e.g. `\\x1b[31m`: data, models and notes may
    contain anything."""
    return text.translate(_CONTROLS)


def plural(count: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
