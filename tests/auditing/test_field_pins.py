"""The pins of other trainers: which cited functions are the same at another commit."""

import subprocess

import pytest

from benchmarks import field_pins
from benchmarks.field_pins import PAGE, TO_WRITE, Change, Checkout, Place, places

BEFORE = '''
def kl(a, b):
    """In nats."""
    return a - b


class Config:
    bound: float = 0.2


def other():
    return 1
'''
MOVED = BEFORE.replace("In nats.", "Per token, in nats.").replace("\ndef kl", "\nX = 1\n\n\ndef kl")
CHANGED = BEFORE.replace("a - b", "b - a").replace("0.2", "0.1")
FUNCTION = Place("loss.py", 4, is_default=False)
DEFAULT = Place("loss.py", 8, is_default=True)
PINS = """[ours]
repository = "x/ours"
commit = "{pin}"

[ours.losses]
grpo = {{ at = "loss.py:4" }}

[ours.corrections.default]
at = "loss.py:4"
default = "loss.py:8: bound: float = 0.2"

[theirs]
commit = "v1"
"""


@pytest.fixture
def history(tmp_path):
    """A function that returns a checkout with one commit for each of the texts of loss.py."""

    def make(*texts):
        folder = tmp_path / "trainer"
        folder.mkdir()
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-q"], check=True)
        for text in texts:
            (folder / "loss.py").write_text(text)
            subprocess.run([*git, "add", "loss.py"], check=True)
            subprocess.run([*git, "commit", "-q", "-m", "a step"], check=True)
        return Checkout(folder)

    return make


def change(checkout, place):
    pin = checkout.commit("HEAD~1")
    return field_pins.compare(checkout, place, pin, pin, checkout.commit("HEAD"))


def test_places_are_those_of_losses_and_defaults():
    table = {
        "losses": {"grpo": {"at": "a/loss.py:12"}},
        "corrections": {"tis": {"at": "a/loss.py:12", "default": "c.py:3: x = 1; :5: y = 2"}},
    }
    assert places(table) == [
        Place("a/loss.py", 12, False),
        Place("c.py", 3, True),
        Place("c.py", 5, True),
    ]


def test_a_function_that_moved_or_is_described_anew_is_the_same(history):
    checkout = history(BEFORE, MOVED)
    for place, line in ((FUNCTION, 7), (DEFAULT, 11)):
        found = change(checkout, place)
        assert found.is_same
        assert field_pins.new_line(found) == line


def test_a_changed_function_or_default_is_shown_with_its_commit(history):
    checkout = history(BEFORE, CHANGED)
    function = change(checkout, FUNCTION)
    assert not function.is_same
    assert function.name == "loss.py::kl"
    assert "-    return a - b\n+    return b - a" in function.diff()
    head = checkout.commit("HEAD")
    [commit] = field_pins.commits_of(checkout, function, checkout.commit("HEAD~1"), head)
    assert head.startswith(commit)
    default = change(checkout, DEFAULT)
    assert default.name == "loss.py::Config.bound"
    assert "+    bound: float = 0.1" in default.diff()


def test_what_is_gone_is_not_the_same(history):
    found = change(history(BEFORE, "X = 1\n"), FUNCTION)
    assert isinstance(found, Change)
    assert found.before and found.after is None
    assert not found.is_same


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Copies of the pins, of the page of changes, and of one page that cites."""
    pinned = tmp_path / "pinned.toml"
    page = tmp_path / "changes.md"
    citing = tmp_path / "field.md"
    page.write_text(
        "| day | trainer | function | commits | what changed |\n|---|---|---|---|---|\n"
    )
    monkeypatch.setattr(field_pins, "PINNED", pinned)
    monkeypatch.setattr(field_pins, "PAGE", page)
    monkeypatch.setattr(field_pins, "CITING", (citing,))
    return pinned, page, citing


def test_a_pin_moves_where_nothing_changed(history, files):
    pinned, page, citing = files
    checkout = history(BEFORE, MOVED)
    pin = checkout.commit("HEAD~1")
    pinned.write_text(PINS.format(pin=pin))
    citing.write_text(f"| ours | grpo | loss.py:4 @{pin[:8]} |\n")
    empty = page.read_text()

    field_pins.write(field_pins.examine(checkout, "ours", None, "HEAD"))

    head = checkout.commit("HEAD")
    expected = PINS.format(pin=head).replace("py:4", "py:7").replace("py:8", "py:11")
    assert pinned.read_text() == expected
    assert citing.read_text() == f"| ours | grpo | loss.py:7 @{head[:8]} |\n"
    assert page.read_text() == empty


def test_a_pin_stays_until_a_person_has_said_what_changed(history, files):
    pinned, page, citing = files
    checkout = history(BEFORE, CHANGED)
    before = PINS.format(pin=checkout.commit("HEAD~1"))
    pinned.write_text(before)
    citing.write_text("")

    field_pins.write(field_pins.examine(checkout, "ours", None, "HEAD"))
    assert pinned.read_text() == before
    rows = [line for line in page.read_text().splitlines() if TO_WRITE in line]
    assert ["`loss.py::kl`" in rows[0], "`loss.py::Config.bound`" in rows[1]] == [True, True]

    page.write_text(page.read_text().replace(TO_WRITE, "The sign."))
    field_pins.write(field_pins.examine(checkout, "ours", None, "HEAD"))
    assert f'commit = "{checkout.commit("HEAD")}"' in pinned.read_text()


def test_every_row_of_the_page_has_its_sentence():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| 2")]
    assert rows
    assert [row for row in rows if TO_WRITE in row or row.count("|") != 6] == []
