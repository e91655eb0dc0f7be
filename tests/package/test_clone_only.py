"""What is printed names a page only where there is one: a wheel has no clone beside it."""

import ast
import re
from pathlib import Path

import pytest

from rpg import errors
from rpg.errors import see

ROOT = Path(__file__).resolve().parents[2]
CLONE_ONLY = re.compile(r"\bdocs/[\w-]+\.md\b|\bmake (?:setup|test|serve|quickstart|lint)\b")


def texts_of(path):
    """Every string of a module that is a value: no docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in alone:
            yield node.value


def test_a_page_is_named_in_a_clone_and_not_beside_a_wheel(monkeypatch, tmp_path):
    assert see("grading") == " (docs/grading.md)"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages/rpg/errors.py"))
    assert see("grading") == ""


@pytest.mark.component
def test_no_text_says_what_only_a_clone_has():
    found = {
        f"{path.relative_to(ROOT)}: {text[:80]}"
        for package in ("rpg", "flows", "dashboard")
        for path in (ROOT / package).rglob("*.py")
        for text in texts_of(path)
        if CLONE_ONLY.search(text)
    }
    assert found == set()


def test_every_page_that_is_named_exists():
    named = {
        page
        for package in ("rpg", "flows", "dashboard")
        for path in (ROOT / package).rglob("*.py")
        for page in re.findall(r"\bsee\(['\"]([\w-]+)['\"]\)", path.read_text("utf-8"))
    }
    assert named
    assert [page for page in named if not (ROOT / "docs" / f"{page}.md").is_file()] == []
