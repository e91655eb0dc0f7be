"""Is a published value possible at all? Rules that need only the table.

- `unattainable`: mean@k over P problems is a multiple of 1/(k P); what is printed must round to
  one.
- `last above best`: best is the maximum over training, the last step included.
- `repeated`: two rows print the same last *and* best on a benchmark. Such pairs also arise by
  chance (accuracies lie on a grid), so this deserves a second look and is no error by itself.
- `coarser`: nearly all values of a column are multiples of a much coarser fraction than the stated
  number of samples implies, more of them than by chance: fewer samples (or other problems) were
  used than stated.

A rule that cannot decide says so (`unchecked`): when 1/(k P) is finer than the printed digits every
value is possible.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text
from scipy import special

from rpg.errors import plural
from rpg.report.paper.published import Entry, published

DECIMALS = 4
Rule = Literal["unattainable", "last above best", "repeated", "coarser", "unchecked"]


class Finding(NamedTuple):
    """`column`: last, best, or both. `message`: one sentence."""

    rule: Rule
    table: str
    row: str
    benchmark: str
    column: str
    message: str


def attainable(value: float, problems: int, samples: int, decimals: int = DECIMALS) -> bool:
    """Whether some multiple of 1/(problems * samples) is printed as `value`."""
    total = problems * samples
    # Half a unit of the last digit either way: ties may have been rounded up or to even.
    tolerance: float = 0.5 * 10**-decimals + 1e-9
    return abs(round(value * total) / total - value) <= tolerance


def lint(entries: Iterable[Entry] | None = None, decimals: int = DECIMALS) -> list[Finding]:
    """All findings, in the order of the entries (default: those of the paper)."""
    entries = list(published() if entries is None else entries)
    findings = []
    unchecked: set[tuple[str, str]] = set()
    for entry in entries:
        total = entry.problems * entry.samples
        decidable = 1 / total > 10**-decimals
        for column, value in (("last", entry.last), ("best", entry.best)):
            if decidable and not attainable(value, entry.problems, entry.samples, decimals):
                near = round(value * total)
                low, high = (near, near + 1) if near / total < value else (near - 1, near)
                text = (
                    f"{value:.{decimals}f} is not a mean over {entry.problems} problems x "
                    f"{entry.samples} samples; "
                )
                text += f"the nearest are {low}/{total} = {low / total:.{decimals}f} and "
                text += f"{high}/{total} = {high / total:.{decimals}f}"
                findings.append(_finding("unattainable", entry, column, text))
        if entry.last > entry.best:
            text = f"last {entry.last:.{decimals}f} is above best {entry.best:.{decimals}f}"
            findings.append(_finding("last above best", entry, "last, best", text))
        if not decidable and (entry.table, entry.benchmark) not in unchecked:
            unchecked.add((entry.table, entry.benchmark))
            text = f"1/{total} is finer than {decimals} decimals: any value could be such a mean"
            findings.append(
                _finding("unchecked", entry, "last, best", text)._replace(row="all rows")
            )
    return findings + _coarser(entries, decimals) + _repeated(entries, decimals)


def _coarser(entries: list[Entry], decimals: int) -> list[Finding]:
    columns: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        columns.setdefault((entry.table, entry.benchmark), []).append(entry)
    findings = []
    for group in columns.values():
        first = group[0]
        cells = [
            (entry, column, getattr(entry, column))
            for entry in group
            for column in ("last", "best")
        ]
        fewer = [samples for samples in range(1, first.samples) if first.samples % samples == 0]
        for samples, problems in ((s, first.problems + off) for s in fewer for off in (0, -1, 1)):
            odd = [cell for cell in cells if not attainable(cell[2], problems, samples, decimals)]
            by_chance = min(1.0, problems * samples * 10**-decimals)
            chance = special.bdtrc(len(cells) - len(odd) - 1, len(cells), by_chance)
            if len(odd) <= len(cells) // 8 and chance < 1e-6:
                text = (
                    f"{len(cells) - len(odd)} of {len(cells)} values are multiples of "
                    f"1/{problems * samples}: "
                )
                text += f"this looks like {problems} problems x {plural(samples, 'sample')}"
                text += f", not {first.problems} x {first.samples}"
                if odd:
                    off_grid = (
                        f"{entry.row} {column} {value:.{decimals}f}" for entry, column, value in odd
                    )
                    text += f"; not on that grid: {', '.join(off_grid)}"
                findings.append(
                    _finding("coarser", first, "last, best", text)._replace(row="all rows")
                )
                break
    return findings


def _repeated(entries: list[Entry], decimals: int) -> list[Finding]:
    seen: dict[tuple[str, str, float, float], list[Entry]] = {}
    for entry in entries:
        seen.setdefault((entry.benchmark, entry.model, entry.last, entry.best), []).append(entry)
    findings = []
    for first, *others in seen.values():
        text = f"{first.last:.{decimals}f} and {first.best:.{decimals}f} also appear in "
        text += ", ".join(f"{entry.table}, {entry.row}" for entry in others)
        if others:
            findings.append(_finding("repeated", first, "last, best", text))
    return findings


def _finding(rule: Rule, entry: Entry, column: str, message: str) -> Finding:
    return Finding(rule, entry.table, entry.row, entry.benchmark, column, message)


def in_terminal(results: Sequence[Finding]) -> RenderableType:
    """One line per finding."""
    if not results:
        return Text("no findings")
    lines = (
        f"{f.table}, {f.row}, {f.benchmark} {f.column}: {f.rule}: {f.message}" for f in results
    )
    return Group(*map(Text, lines))
