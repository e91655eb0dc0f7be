"""verl's metrics file into the run's: names, torn lines, steps counted once."""

import json

import pytest

from rpg.backends.verl.job_output import Stream, reason, translate
from rpg.store import RunFolder


def line(step, **data):
    return json.dumps({"step": step, "data": data}).encode() + b"\n"


def test_ours_are_taken_by_name_and_unchanged():
    data = {"rpg/reward": -0.5, "rpg/optimizer_step": 12, "actor/pg_loss": 1.0, "rpg/x": None}
    record = translate(line(3, **data))
    assert record == {"step": 3, "reward": -0.5, "optimizer_step": 12}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'{"step": 1}',
        b'{"step": "1", "data": {}}',
        b'{"step": 1, "data": {"a": 1}}',
    ],
)
def test_what_is_no_line_of_ours_is_nothing(text):
    assert translate(text) is None


def test_a_torn_line_waits_and_a_step_counts_once(tmp_path):
    folder = RunFolder(tmp_path / "run")
    source = tmp_path / "theirs.jsonl"
    stream = Stream(folder, 1, source)
    assert stream.pump() == [], "verl has not begun"
    whole = line(1, **{"rpg/reward": 1.0})
    torn = line(2, **{"rpg/reward": 2.0})
    source.write_bytes(whole + torn[:20])
    assert [record["step"] for record in stream.pump()] == [1]
    source.write_bytes(whole + torn)
    assert [record["step"] for record in stream.pump()] == [2]
    assert stream.pump() == []
    again = Stream(folder, 1, source)  # the launcher was killed, and reads from the beginning
    assert again.pump() == []
    assert [row["reward"] for row in folder.read_metrics()] == [1.0, 2.0]
    other = tmp_path / "theirs-2.jsonl"
    other.write_bytes(line(2, **{"rpg/reward": 3.0}))
    Stream(folder, 2, other).pump()
    rows = folder.read_metrics()
    assert [(row["step"], row["attempt"], row["reward"]) for row in rows] == [
        (1, 1, 1.0),
        (2, 2, 3.0),
    ]
    assert len(folder.metrics_path(1).read_text().splitlines()) == 2, "history stays"


@pytest.mark.parametrize(
    ("ended", "lines", "expected"),
    [
        ("killed by signal 9", ["step 3"], "killed by signal 9"),
        ("code 1", ["x", "error: ValueError: no", "(worker) bye"], "ValueError: no"),
        (
            "code 1",
            ["error: OutOfMemoryError: CUDA out of memory. Tried 2 GiB"],
            "too little memory: lower",
        ),
        (
            "code 1",
            ["error: ActorDiedError: The actor died"],
            "a worker of verl died (ActorDiedError",
        ),
        ("", ["still here"], "the log's last line is: still here"),
        ("", [], "its log is empty"),
    ],
)
def test_the_reason_is_the_drivers_own_where_it_left_one(ended, lines, expected):
    assert reason(ended, lines).startswith(expected)
