"""Every sample is drawn once, whatever it is drawn for, and all of them are in the database."""

import os
import shutil
import signal
import sys
from collections import Counter

import pytest

from rpg.cli import main
from rpg.evaluation.benchmark_summary import summarise
from rpg.evaluation.engines.local import LocalEngine
from rpg.store.database import build, connect
from rpg.store.draws import Draw, Draws, Key
from rpg.store.layout import Layout
from tests.evaluation.counted_engine import ROWS, count

LENGTHS = ("--max-prompt-tokens", 64, "--max-response-tokens", 32)


def check_database(layout):
    """Three evaluations by hand, with the numbers of their samples."""
    build(layout)
    with connect(layout) as db:
        found = db.execute(
            """
            SELECT run, benchmark, k, problems, accuracy, pass_at_k, maj_at_k, origin, engine, draws
            FROM evals
            ORDER BY k, run
            """
        ).fetchall()
        assert [row[2:4] for row in found] == [(8, 24), (16, 24), (16, 24)]
        assert {row[7:9] for row in found} == {("hand", "local")}
        assert [path.name for path in layout.samples.iterdir()] == [found[0][9]]
        for run, benchmark, k, *numbers in found:
            names = ("problem_id", "correct", "extracted", "tokens", "truncated")
            asked = f"SELECT {', '.join(names)} FROM samples WHERE run = ? AND benchmark = ?"
            samples = db.execute(asked, [run, benchmark]).fetchall()
            of = summarise(dict(zip(names, row, strict=True)) for row in samples)
            expected = [of.problems, of.mean_at_k.mean, of.pass_at_k.mean, of.majority_at_k.mean]
            assert len(samples) == k * 24
            assert numbers[:4] == pytest.approx(expected)
        assert len({row[4] for row in found[1:]}) == 2, "the two verifiers do not agree"


@pytest.mark.system
def test_every_sample_is_drawn_once_whatever_happens(
    checkpoints, own_benchmark, tmp_path, monkeypatch
):
    """k of 4, 8 and 16, more problems, a kill -9 in the middle, two at once, another verifier."""
    home = tmp_path / "home"
    log = tmp_path / "drawn.txt"

    def command(k, *more, model=checkpoints[0], home=home):
        arguments = (
            "evaluate",
            model,
            "-b",
            own_benchmark,
            *LENGTHS,
            "--home",
            home,
            "--k",
            k,
            *more,
        )
        return [str(argument) for argument in arguments]

    def here(*arguments):
        monkeypatch.setattr(sys, "argv", ["rpg", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code

    def begin(kill, together, *arguments):
        """In a forked process, whose id is returned."""
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            monkeypatch.undo()
            count(log, kill, together)
            here(*arguments)
            code = 0
        finally:
            os._exit(code)

    def end(child):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def drawn():
        return Counter(log.read_text().splitlines()) if log.exists() else Counter()

    count(log, patch=monkeypatch.setattr)
    here(*command(4, "--limit", 6))
    assert drawn() == Counter(
        {f"{p} {k}": 1 for p in {key.split()[0] for key in drawn()} for k in range(4)}
    )
    assert len(drawn()) == 6 * 4
    killed = begin(3, 0, *command(8))
    assert end(killed) == -signal.SIGKILL
    lost = log.read_text().splitlines()[-ROWS:]  # the batch in flight is all that a kill costs
    two = [begin(0, 2, *command(8)), begin(0, 2, *command(8, "--out", tmp_path / "other"))]
    assert [end(each) for each in two] == [0, 0]
    here(*command(16))
    expected = drawn()
    expected.subtract(lost)
    assert len(expected) == 24 * 16
    assert set(expected.values()) == {1}

    own_benchmark.write_text(own_benchmark.read_text().replace("marker: '#'", "marker: '='"))
    monkeypatch.setattr(LocalEngine, "load", lambda *_: pytest.fail("the model is not needed"))
    here(*command(16))
    check_database(Layout.at(home))

    monkeypatch.undo()
    shutil.copytree(checkpoints[0], tmp_path / "copy")  # another name, the same weights
    monkeypatch.setattr(LocalEngine, "load", lambda *_: pytest.fail("the model is not needed"))
    here(*command(16, model=tmp_path / "copy"))


def test_a_torn_batch_costs_itself_only_and_settings_are_not_mixed(tmp_path):
    keys = [Key("a", "digest", number) for number in range(4)]
    draw = Draw("\ud800 response", 3, False)
    first = Draws(tmp_path, {"seed": 0}, "model")
    first.add({keys[0]: draw})
    first.add({keys[1]: draw})
    [file] = first.folder.glob("*.jsonl.gz")
    file.write_bytes(file.read_bytes()[:-5])
    second = Draws(tmp_path, {"seed": 0}, "another name")
    assert second.read() == {keys[0]: draw}
    assert second.key == first.key
    second.add({keys[2]: draw})
    second.add({keys[3]: draw})
    assert set(first.read()) == set(keys)
    assert set(Draws(tmp_path, {"seed": 0}, "model").read()) == {keys[0], *keys[2:]}
    assert Draws(tmp_path, {"seed": 1}, "model").read() == {}
