"""Parts of other packages that may go with any release: they are in one place, and are there."""

import ast
import re
from pathlib import Path

import pytest

from rpg.system import private_parts
from rpg.system.private_parts import PRIVATE_PARTS, MissingPartError, PrivatePart, private_part

ROOT = Path(__file__).resolve().parents[2]
PRIVATE_MODULES = re.compile(
    r"prefect\.server|prefect\.logging\.handlers\.APILogWorker|transformers\.(integrations|initialization|cache_utils)"
    r"|altair\.utils|streamlit\.runtime|(torch|numpy|pandas|prefect|transformers|streamlit)(\.\w+)*\._(?!_)"
)


@pytest.mark.component
@pytest.mark.parametrize("name", PRIVATE_PARTS)
def test_every_part_is_in_the_installed_packages(name):
    pytest.importorskip(PRIVATE_PARTS[name].package)
    assert private_part(name) is not None


def test_a_part_that_moved_is_found_in_its_former_place(monkeypatch):
    part = PrivatePart("json", ("json.never_there", "json", "json.decoder"), "a test")
    monkeypatch.setitem(PRIVATE_PARTS, "JSONDecoder", part)
    assert private_part("JSONDecoder").__module__ == "json.decoder"


def test_the_absence_of_a_part_is_one_sentence_that_says_what_needs_it(monkeypatch):
    part = PrivatePart("pytest", ("pytest", "pytest.elsewhere"), "telling the future")
    monkeypatch.setitem(PRIVATE_PARTS, "oracle", part)
    monkeypatch.setattr(private_parts, "version", lambda package: "99.1")
    with pytest.raises(MissingPartError) as raised:
        private_part("oracle")
    message = str(raised.value)
    assert message.startswith("pytest 99.1 has no oracle in pytest or pytest.elsewhere, ")
    assert "telling the future" in message
    assert "\n" not in message


def imported_from(path):
    """The modules of other packages that a file imports from, with the names it takes of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.component
def test_private_parts_are_imported_from_the_list_only():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in ("rpg", "flows", "dashboard")
        for path in (ROOT / package).rglob("*.py")
        for name in imported_from(path)
        if PRIVATE_MODULES.match(name)
    }
    assert found == set()
