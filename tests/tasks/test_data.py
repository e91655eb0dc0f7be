"""Data in verl's schema: made once, whole or absent, and without torch."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pyarrow.parquet
import pytest

from rpg.config.run_spec import RunSpec
from rpg.store import StoreError
from rpg.tasks import DataError, load_problems
from rpg.tasks.preparation import data_digest, once, prepare_data, read_problems

ROOT = Path(__file__).resolve().parents[2]
CHAIN = {"task": {"type": "chain", "train_problems": 30, "benchmark_problems": 4}}


def test_files_have_verls_schema_and_hold_the_problems(tmp_path):
    spec = RunSpec.model_validate(CHAIN)
    prepared = prepare_data(spec, tmp_path)
    assert list(prepared.benchmarks) == ["chain-easy", "chain-medium", "chain-hard"]
    row = pyarrow.parquet.read_table(prepared.benchmarks["chain-hard"]).to_pylist()[1]
    splits = load_problems(spec.task)
    problem = splits.benchmarks["chain-hard"][1]
    assert row["prompt"] == [{"role": "user", "content": problem.prompt}]
    assert row["reward_model"] == {"ground_truth": problem.answer, "style": "rule"}
    assert row["data_source"] == "chain-hard"
    assert row["ability"] == "hard"
    assert row["extra_info"]["index"] == 1
    assert row["extra_info"]["raw_problem"] == problem.text
    assert read_problems(prepared.train) == splits.train
    assert read_problems(prepared.benchmarks["chain-easy"]) == splits.benchmarks["chain-easy"]


def test_digest_follows_what_matters(tmp_path):
    spec = RunSpec.model_validate(CHAIN)
    assert data_digest(spec) == data_digest(spec.model_copy(update={"seed": 3}))
    other = RunSpec.model_validate({"task": {**CHAIN["task"], "data_seed": 1}})
    assert data_digest(other) != data_digest(spec)
    one = tmp_path / "one"
    other = tmp_path / "other"
    one.mkdir()
    (one / "a.jsonl").write_text('{"prompt": "1", "answer": "1"}')
    (one / "b.jsonl").write_text('{"prompt": "2", "answer": "2"}')

    def files(folder, **source):
        train = {"path": str(folder / "a.jsonl"), **source}
        section = {"type": "file", "train": [train], "benchmarks": {"b": str(folder / "b.jsonl")}}
        return RunSpec.model_validate({"task": section})

    before = data_digest(files(one))
    one.rename(other)
    again = files(other)
    assert data_digest(again) == before  # contents, not places
    assert data_digest(files(other, limit=1)) != before
    (other / "a.jsonl").write_text('{"prompt": "1", "answer": "3"}')
    assert data_digest(again) != before
    (other / "a.jsonl").unlink()
    with pytest.raises(DataError, match=r"a.jsonl: no such file; did you mean"):
        data_digest(again)


def test_digest_and_preparation_need_no_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from rpg.config.run_spec import RunSpec\n"
        "from rpg.tasks.preparation import *\n"
        f"prepare_data(RunSpec.model_validate({CHAIN!r}), Path({str(tmp_path)!r}))\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert out.stdout.strip() == "[]"


def child(build):
    """A process that does this and nothing else; its exit code is 9 where it raises."""
    pid = os.fork()
    if pid == 0:
        try:
            build()
            os._exit(0)
        finally:
            os._exit(9)
    return pid


def test_several_processes_build_once(tmp_path):
    def build():
        with once(tmp_path / "cache" / "x") as folder:
            if folder is not None:
                with open(tmp_path / "builders", "a") as builders:
                    builders.write("x")
                time.sleep(0.3)
                (folder / "data").write_text("whole")

    children = [child(build) for _ in range(4)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert (tmp_path / "builders").read_text() == "x"
    assert (tmp_path / "cache" / "x" / "data").read_text() == "whole"


def test_a_failed_or_killed_build_leaves_nothing_that_counts(tmp_path):
    folder = tmp_path / "cache" / "x"

    def half(end):
        with once(folder) as build:
            (build / "data").write_text("half")
            end()

    with pytest.raises(RuntimeError):
        half(Mock(side_effect=RuntimeError))
    assert not folder.exists()
    _, status = os.waitpid(child(lambda: half(lambda: os.kill(os.getpid(), signal.SIGKILL))), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not folder.exists()
    with once(folder) as build:
        assert not (build / "data").exists()
        (build / "data").write_text("whole")
    assert [p.name for p in folder.parent.iterdir() if p.suffix == ".tmp"] == []
    assert (folder / "data").read_text() == "whole"


def test_a_cache_that_is_a_file_is_said(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(StoreError, match=r"cannot lock .*cache/data"):
        prepare_data(RunSpec.model_validate(CHAIN), tmp_path)


def test_a_foreign_parquet_file_is_said(tmp_path):
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(DataError, match=r"x.parquet: not a data file of this project"):
        read_problems(path)
