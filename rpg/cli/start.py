"""What a command needs of the process it runs in, whoever started it."""

import locale
import os
import re
import sys


def prepare() -> None:
    """Open standard streams that are closed, and start again where Python cannot do our work: with
    a locale in which there is no `±`, or without docstrings, of which the help is made."""
    _open_streams()
    if sys.flags.utf8_mode == 0 and not _is_utf8(locale.getpreferredencoding(do_setlocale=False)):
        # Files are UTF-8 everywhere; what the terminal does not have is replaced there.
        _start_again(PYTHONUTF8="1", PYTHONIOENCODING=f"{_stream_encoding()}:replace")
    if sys.flags.optimize > 1:
        _start_again(PYTHONOPTIMIZE="0")


def _open_streams() -> None:
    """Without this the next file that is opened would be taken for standard output, here and in
    the processes that are started from here."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(opened, True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"


def _stream_encoding() -> str:
    return sys.stdout.encoding or "ascii"


def _start_again(**environment: str) -> None:
    words = [word for word in sys.orig_argv[1:] if not re.fullmatch("-OO+", word)]
    os.execve(sys.executable, [sys.executable, *words], {**os.environ, **environment})
