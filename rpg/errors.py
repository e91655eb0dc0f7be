"""The base of all errors that a user can fix (others are bugs), out-of-memory errors, text that is safe to print."""

_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "std::bad_alloc")
"""What PyTorch and the C library say when there is none left."""


class UserError(Exception):
    """`str(error)` is the whole message: it names what is wrong and what would be accepted, without a traceback."""


def first_line(error: object) -> str:
    """The first line of an error's text, for messages of one line; the name of its class where it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def is_no_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a CPU or a GPU; PyTorch has a class for the latter only."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _NO_MEMORY)


_CONTROLS = {
    code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}


def visible(text: str) -> str:
    """A text with its control characters escaped, e.g. `\\x1b[31m`: data, models and notes may contain anything."""
    return text.translate(_CONTROLS)
