"""What changed the bits of a night is found by running other commits: real git, and nights that
read bits from a file."""

import subprocess

import pytest

from flows.other_code import NoNight, _git, blame

A = {"numpy": "2.4.6"}
B = {"numpy": "2.4.7"}


def record(bits, revision="", environment=A, labels=("small", "large")):
    run = {
        "loss": "grpo",
        "back end": "local",
        "spec": "s",
        "steps": [1],
        "metrics": {},
        "samples": {},
    }
    names = {"small": 1, "large": 3}
    run = run | {"weights": bits}
    digests = {f"{label} / v / seed {i}": run for label in labels for i in range(names[label])}
    known = {"night": "n", "revision": revision, "environment": environment, "values": {}}
    return known | {"digests": digests}


@pytest.fixture
def checkout(tmp_path):
    """A repository; `commit` writes what a night of it computes (`broken`: nothing) and returns the
    commit."""
    root = tmp_path / "source"
    root.mkdir()

    def git(*words):
        names = ["-c", "user.name=anna", "-c", "user.email=anna@localhost"]
        command = ["git", "-C", str(root), *names, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(bits, message="a change"):
        (root / "bits").write_text(bits)
        (root / "notes").write_text(message)
        git("add", "-A")
        git("commit", "-qm", message)
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return root, commit


def nights(of, ran):
    """Nights whose bits are `of` what stands in the file, and whose commits and sweeps are noted in
    `ran`."""

    def night(tree, labels):
        bits = (tree / "bits").read_text()
        ran.append((bits, tuple(labels)))
        if bits == "broken":
            raise NoNight("1 runs failed")
        return record(of(bits), labels=labels)

    return night


def test_the_commit_is_named_among_others_by_the_smallest_sweep_and_the_checkout_stays_as_it_is(
    checkout,
):
    root, commit = checkout
    first = commit("old")
    for number in range(5):
        commit("old", f"harmless {number}")
    commit("broken", "does not run")
    commit("old", "mended")
    guilty = commit("new", "a sign is flipped")
    for number in range(3):
        head = commit("new", f"harmless, too {number}")
    ran = []
    said, excused = blame(record("new", head), record("old", first), root, nights(str, ran))
    assert not excused
    assert said.startswith(f"commit {guilty[:7]} (anna: a sign is flipped) is the cause")
    assert ran[0] == ("old", ("small", "large"))
    assert {labels for _, labels in ran[1:]} == {("small",)}
    assert len(ran) < 8, "it halves"
    listed = _git(root, "worktree", "list")
    assert len(listed.splitlines()) == 1
    assert (root / "bits").read_text() == "new"


def test_another_environment_excuses_what_the_settled_commit_does_in_it_too_and_nothing_else(
    checkout,
):
    root, commit = checkout

    def rounded(bits):
        return bits + " rounded"

    first = commit("1.0")
    before = record("1.0", first)
    head = commit("1.0", "harmless")
    said, excused = blame(record("1.0 rounded", head, B), before, root, nights(rounded, []))
    assert excused
    assert "the environment changed them, not the code" in said
    excused = blame(record("1.0 rounded", head), before, root, nights(rounded, []))[1]
    assert not excused, "nothing that is known changed"
    edited = record("1.0 rounded", head, B)
    edited["digests"]["small / v / seed 0"]["spec"] = "of an edited file"
    said, excused = blame(edited, before, root, nights(rounded, []))
    assert not excused
    assert "the configuration changed them, not the code" in said
    fewer = record("1.0 rounded", head, B, labels=("small",))
    assert not blame(fewer, before, root, nights(rounded, []))[1], "runs are missing, too"
    guilty = commit("2.0", "another loss")
    said, excused = blame(record("2.0 rounded", guilty, B), before, root, nights(rounded, []))
    assert not excused
    assert "another loss" in said
    assert "the environment changes numbers, too" in said


def test_where_no_commit_can_be_run_the_cause_stays_unknown(checkout, tmp_path):
    root, commit = checkout
    first = commit("old")
    night = nights(str, [])
    for before, place, why in (
        (record("old", first), tmp_path, "is not a git checkout"),
        (record("old", first + "+"), root, "was not committed"),
        (record("old", ""), root, "was not committed"),
        (record("old", "0" * 40), root, "git: fatal"),
        (record("old", commit("broken")), root, "does not run here: 1 runs failed"),
    ):
        said, excused = blame(record("new", first, B), before, place, night)
        assert not excused
        assert said.startswith("cause unknown: ")
        assert why in said
    assert "not deterministic" in blame(record("new", first), record("old", first), root, night)[0]


def test_what_is_not_committed_is_told_from_commits(checkout):
    root, commit = checkout
    first = commit("old")
    head = commit("old", "harmless")
    said = blame(record("new", head + "+"), record("old", first), root, nights(str, []))[0]
    assert said.startswith("uncommitted changes")
    guilty = commit("new")
    assert (
        guilty[:7]
        in blame(record("new", guilty + "+"), record("old", first), root, nights(str, []))[0]
    )
