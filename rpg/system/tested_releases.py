"""Which releases of other packages were tested: from the lowest that the metadata asks for, which
was installed once, to the one that constraints.txt pins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rpg.errors import PACKAGE

PINS = Path(__file__).resolve().parents[1] / "constraints.txt"
"""In a checkout a link to the file that every installation reads; a wheel has a copy."""


@dataclass(frozen=True)
class Outside:
    """An installed release that was not tested. `refused`: the metadata excludes it."""

    package: str
    installed: str
    tested: str
    refused: bool


def outside_of_tested() -> list[Outside]:
    """The packages we ask for whose installed release is outside of what was tested."""
    try:
        asked = requires(PACKAGE) or []
    except PackageNotFoundError:
        return []
    pins = dict(_pins(PINS.read_text(encoding="utf-8").splitlines()))
    installed = dict(_installed(Requirement(text).name for text in asked))
    return judge(asked, pins, installed)


def judge(asked: Iterable[str], pins: dict[str, str], installed: dict[str, str]) -> list[Outside]:
    """Of requirements, pins and installed releases by name: the releases that were not tested."""
    specifiers: dict[str, list[Requirement]] = {}
    for text in asked:
        requirement = Requirement(text)
        specifiers.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    found = []
    for name, requirements in sorted(specifiers.items()):
        release = installed.get(name)
        if release is None:
            continue
        # Extras bound the same package differently: what one of them allows is allowed.
        allowed = any(one.specifier.contains(release, prereleases=True) for one in requirements)
        pin = pins.get(name)
        if not allowed:
            wanted = " or ".join(dict.fromkeys(str(one.specifier) for one in requirements))
            found.append(Outside(name, release, wanted, refused=True))
        elif pin is not None and Version(Version(release).public) > Version(pin):
            found.append(Outside(name, release, f"up to {pin}", refused=False))
    return found


def _pins(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, equals, pin = line.partition("==")
        if equals and not name.startswith("#"):
            yield canonicalize_name(name), pin.split()[0]


def _installed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in set(names):
        try:
            yield canonicalize_name(name), version(name)
        except PackageNotFoundError:
            continue
