"""CONTRIBUTING tells the truth: the places it names exist, its walks are as short as it says, its
words are the code's."""

import ast
import re
import subprocess

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`([\w/]+\.py)(?:::([\w.]+))?`")
WALKS = dict(re.findall(r"^### (.+)\n((?:\d\. .+\n(?:   .+\n)*)+)", PAGE, re.M))


def names_of(path):
    """Top-level names of a module, and the members of its classes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [member.name for member in node.body if isinstance(member, ast.FunctionDef)]
            names |= {f"{node.name}.{method}" for method in methods}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("place", sorted(set(PLACE.findall(PAGE))), ids="::".join)
def test_a_place_that_is_named_exists(place):
    path, name = place
    assert (ROOT / path).is_file()
    assert not name or name in names_of(path)


def test_every_walk_takes_five_steps():
    assert len(WALKS) >= 4
    for title, steps in WALKS.items():
        assert len(re.findall(r"^\d\.", steps, re.M)) == 5, title
        assert len(PLACE.findall(steps)) >= 5, f"{title}: a step names a place in the code"


def test_the_words_of_the_glossary_are_the_words_of_the_code():
    rows = re.findall(
        r"^\| `([\w@.]+)` \|", PAGE.partition("## Words")[2].partition("\n## ")[0], re.M
    )
    assert len(rows) >= 20
    search = ["git", "grep", "-hwoE", "|".join(map(re.escape, rows)), "--", "rpg/*.py", "docs/*.md"]
    used = subprocess.run(
        search, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(rows) <= set(used), set(rows) - set(used)
