"""A fault in functions that are already loaded, so that tests need not be imported anew for each
fault."""

from __future__ import annotations

import gc
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType

from benchmarks.mutants.mutations import Mutant


def functions_of(path: Path) -> list[FunctionType]:
    """All functions, methods and closures of a file that exist in this process."""
    gc.unfreeze()
    return [
        thing
        for thing in gc.get_objects()
        if type(thing) is FunctionType and thing.__code__.co_filename == str(path)
    ]


def plant(mutant: Mutant, path: Path, functions: list[FunctionType]) -> bool:
    """Put the fault into these functions; False if it stands where only an import gets to (a
    class's body, a default)."""
    source = path.read_text()
    before, after = (
        _by_name(compile(text, str(path), "exec", dont_inherit=True))
        for text in (source, mutant.apply(source))
    )
    replacements = {
        old: new
        for name, codes in before.items()
        if len(codes) == len(after[name])
        for old, new in zip(codes, after[name], strict=True)
    }
    planted = False
    for function in functions:
        old = function.__code__
        new = replacements.get(old, old)
        if new != old:
            if new.co_freevars != old.co_freevars:
                return False
            function.__code__ = new
            planted |= _computes(new) != _computes(old)
    return planted


def _by_name(code: CodeType) -> dict[str, list[CodeType]]:
    """The codes of a module by their qualified names, in their order in the file."""
    codes = defaultdict[str, list[CodeType]](list)
    waiting = [code]
    while waiting:
        current = waiting.pop()
        codes[current.co_qualname].append(current)
        waiting += [
            constant for constant in reversed(current.co_consts) if isinstance(constant, CodeType)
        ]
    return codes


def _computes(code: CodeType) -> tuple[object, ...]:
    """What a code does, wherever its lines are."""
    constants = tuple(_computes(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, constants
