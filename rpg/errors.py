"""The one base of all errors that are about what a person did or has, not about a bug of ours; and want of memory."""

_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "std::bad_alloc")
"""How PyTorch and the C library say that there is none left."""


class UserError(Exception):
    """`str(error)` is the whole message: it names what is wrong and what would be accepted. No traceback is needed."""


def first_line(error: object) -> str:
    """The first line of an error's text, for messages of one line; the name of its class where it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def is_no_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a CPU or a GPU; PyTorch has an error of its own for the latter only."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _NO_MEMORY)


_CONTROLS = {
    code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}


def visible(text: str) -> str:
    """A text with what a terminal would obey written out, `\\x1b[31m`: data, models and notes may hold anything."""
    return text.translate(_CONTROLS)
