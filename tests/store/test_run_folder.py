"""The run folder holds when processes are killed, disks are full and files are torn."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from rpg.store import Layout, StoreError, home
from rpg.store.run_writer import (
    append_metrics,
    claim_run,
    release_run,
    renew_lease,
    write_done,
    write_failed,
    write_manifest,
)
from rpg.store.samples import read_eval, write_eval
from tests.waiting import until

ROW = {
    "problem_id": "p1",
    "sample": 0,
    "problem": "1+1?",
    "answer": "2",
    "response": "Answer: 2 <b>☃</b>",
    "extracted": "2",
    "correct": True,
    "reason": "match",
    "tokens": 3,
    "truncated": False,
}


@pytest.fixture
def layout(tmp_path):
    return Layout.at(tmp_path)


@pytest.fixture
def run(layout):
    return layout.run("sweep", "grpo-s0")


def manifest(**changes):
    made = {
        "run_id": "abc",
        "variant": "grpo",
        "algorithm": "grpo",
        "seed": 0,
        "created": 1.0,
        "steps": 4,
    }
    return {**made, "spec": {"training": {"steps": 4}}, **changes}


def test_home_is_the_argument_then_the_environment_then_the_folder_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RPG_HOME", raising=False)
    assert home() == tmp_path / "rpg-data"
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "other"))
    assert home() == tmp_path / "other"
    assert home(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../../etc", "a\0b"])
def test_a_name_cannot_leave_the_data_folder(layout, name):
    with pytest.raises(StoreError, match="folder name"):
        layout.sweep_folder(name)
    with pytest.raises(StoreError, match="folder name"):
        layout.run("s", name)
    with pytest.raises(StoreError, match="folder name"):
        layout.run("s", "r").eval_path(name, 1)


def test_sweep_and_its_runs_that_nobody_has_begun(layout):
    layout.write_sweep(
        {"name": "s", "source": "", "baseline": None, "created": 1.0, "runs": ["b", "a"]}
    )
    write_manifest(layout.run("s", "c"), manifest())
    assert layout.sweeps() == ["s"]
    assert [run.name for run in layout.run_folders("s")] == ["a", "b", "c"]
    assert layout.run("s", "a").state() == "pending"


@pytest.mark.parametrize("runs", ["a", [1], None])
def test_a_sweep_without_a_list_of_runs_names_the_file(layout, runs):
    layout.write_sweep({"name": "s", "runs": runs})
    with pytest.raises(StoreError, match=r"s/sweep\.json: runs must be a list"):
        layout.read_sweep("s")
    assert layout.run_folders("s") == []


def test_manifest_is_read_back_and_says_what_is_missing(run):
    write_manifest(run, manifest())
    read = run.read_manifest()
    assert read["sweep"] == "sweep"
    assert read["run"] == "grpo-s0"
    assert read["format"] == 1
    with pytest.raises(StoreError, match=r"manifest\.json: missing seed"):
        write_manifest(run, {key: value for key, value in manifest().items() if key != "seed"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": 1', "not JSON"),
        (b"[1]", "JSON object"),
        (b'{"format": 2}', "format 2"),
        (b"\xff", "not JSON"),
        (None, "no such file"),
    ],
)
def test_a_manifest_that_cannot_be_read_names_the_file(run, content, message):
    run.path.mkdir(parents=True)
    if content is not None:
        run.manifest_path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"grpo-s0/manifest\.json: .*{message}"):
        run.read_manifest()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 7},
        {"spec": {"training": {"steps": 5}}},
        {"variant": "dapo"},
        {"created": 2.0},
        {"more": 1},
    ],
)
def test_a_manifest_that_was_changed_is_damaged(run, change):
    write_manifest(run, manifest())
    changed = {**json.loads(run.manifest_path.read_text()), **change}
    run.manifest_path.write_text(json.dumps(changed))
    with pytest.raises(StoreError, match=r"manifest\.json: has changed \(its digest differs\)"):
        run.read_manifest()
    assert run.damage() == {"manifest.json": "has changed (its digest differs)"}


def test_another_order_and_other_blanks_are_the_same_manifest(run):
    write_manifest(run, manifest(axes={"b": (1, 2.5), "a": math.nan}, more={2: "two", 10: "ten"}))
    written = json.loads(run.manifest_path.read_text())
    run.manifest_path.write_text(json.dumps(dict(reversed(written.items()))))
    assert run.damage() == {}
    assert run.read_manifest()["more"] == {"2": "two", "10": "ten"}


def test_a_manifest_of_an_older_version_has_no_digest(run):
    write_manifest(run, manifest())
    written = json.loads(run.manifest_path.read_text())
    del written["sha256"]
    run.manifest_path.write_text(json.dumps(written))
    assert run.read_manifest() == written


def test_numbers_come_back_bit_for_bit_and_non_finite_ones_too(run):
    values = {"reward": 0.1 + 0.2, "loss": math.nan, "ratio_max": math.inf, "tiny": 5e-324}
    append_metrics(run, 1, {"step": 1, **values})
    [row] = run.read_metrics()
    assert run.metrics_path(1).read_bytes().count(b"\n") == 1
    assert math.isnan(row["loss"])
    assert math.isnan(values.pop("loss"))
    assert {name: row[name] for name in values} == values


@pytest.mark.parametrize("step", [None, -1, 1.5, "3", True])
def test_metrics_without_a_step_are_refused(run, step):
    with pytest.raises(StoreError, match="integer step"):
        append_metrics(run, 1, {"step": step})


def test_a_full_disk_is_one_readable_error(run):
    run.path.mkdir(parents=True)
    os.symlink("/dev/full", run.metrics_path(1))
    with pytest.raises(
        StoreError, match=r"cannot append to .*metrics-1\.jsonl: no space left on the device"
    ):
        append_metrics(run, 1, {"step": 1})


@pytest.mark.component
def test_a_line_cut_by_a_size_limit_loses_only_itself(run):
    append_metrics(run, 1, {"step": 1, "reward": 0.5})
    size = run.metrics_path(1).stat().st_size
    pid = os.fork()
    if pid == 0:  # the kernel writes ten bytes of the line, then refuses
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))
        try:
            append_metrics(run, 1, {"step": 2, "reward": 0.6})
        except StoreError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert run.metrics_path(1).stat().st_size == size + 10
    append_metrics(run, 1, {"step": 2, "reward": 0.6})
    rows = run.read_metrics()
    assert [(row["step"], row["reward"]) for row in rows] == [(1, 0.5), (2, 0.6)]


def test_a_failed_write_keeps_the_previous_file_and_leaves_nothing_behind(run):
    write_manifest(run, manifest())
    before = run.manifest_path.read_bytes()

    class Unwritable:
        def __str__(self):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        write_manifest(run, manifest(spec=Unwritable()))
    assert run.manifest_path.read_bytes() == before
    assert os.listdir(run.path) == ["manifest.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_readable_error(run):
    run.path.mkdir(parents=True)
    run.path.chmod(0o500)
    with pytest.raises(StoreError, match="permission denied"):
        write_manifest(run, manifest())


def test_a_file_where_a_folder_should_be_is_one_readable_error(run):
    run.path.parent.parent.mkdir(parents=True)
    run.path.parent.write_text("not a folder")
    with pytest.raises(StoreError, match=r"cannot write .*manifest\.json"):
        write_manifest(run, manifest())


def test_evaluations_come_back_as_written(run):
    rows = [ROW, ROW | {"sample": 1, "extracted": None, "correct": False, "truncated": True}]
    write_eval(run, "chain-easy", 40, rows)
    write_eval(run, "chain-easy", 1000000, rows)
    assert run.benchmarks() == ["chain-easy"]
    assert run.eval_steps("chain-easy") == [40, 1000000]
    assert run.eval_steps("chain-hard") == []
    assert run.eval_path("chain-easy", 40).name == "step-000040.parquet"
    assert read_eval(run, "chain-easy", 40).to_pylist() == rows


def test_evaluations_are_checked_when_written_and_when_read(run):
    with pytest.raises(StoreError, match=r"row 0 lacks \['tokens'\], has unknown \['token'\]"):
        write_eval(
            run,
            "b",
            1,
            [{"token" if key == "tokens" else key: value for key, value in ROW.items()}],
        )
    with pytest.raises(StoreError, match=r"step-000001\.parquet"):
        write_eval(run, "b", 1, [ROW | {"tokens": "many"}])
    with pytest.raises(StoreError, match="no such file"):
        read_eval(run, "b", 1)
    write_eval(run, "b", 1, [ROW])
    path = run.eval_path("b", 1)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match=r"cannot read .*step-000001\.parquet"):
        read_eval(run, "b", 1)


def test_checkpoints_that_were_not_renamed_do_not_count(run):
    run.checkpoint(10).mkdir(parents=True)
    (run.checkpoints / "step-000020.tmp").mkdir()
    (run.checkpoints / ".step-000030.tmp").mkdir()
    assert run.checkpoint_steps() == [10]


def test_states_follow_from_the_files(run):
    assert run.state() == "pending"
    write_manifest(run, manifest())
    assert run.state() == "pending"
    claim_run(run)
    assert run.state() == "running"
    append_metrics(run, 1, {"step": 1})
    release_run(run)
    assert run.state() == "interrupted"
    assert run.next_attempt() == 2
    claim_run(run)
    write_failed(run, "ValueError: bad\nsecond line", step=1)
    assert run.state() == "failed"
    assert run.read_failed()["error"] == "ValueError: bad"
    assert run.lease() is None
    claim_run(run)
    assert run.state() == "running"
    assert run.read_failed() is None
    write_done(run, seconds=2.5, attempts=2)
    assert run.state() == "done"
    assert run.read_done()["attempts"] == 2
    assert run.lease() is None


@pytest.mark.component
def test_a_lease_lives_as_long_as_its_process(run):
    begin = (
        "from rpg.store import Layout\nfrom rpg.store.run_writer import claim_run\nimport sys, "
        "time\n"
    )
    begin += "claim_run(Layout.at(sys.argv[1]).run('sweep', 'grpo-s0')); time.sleep(60)"
    command = [sys.executable, "-c", begin, str(run.path.parents[2])]
    child = subprocess.Popen(command, start_new_session=True)
    try:
        until(run.lease, what="the lease")
        lease = run.lease()
        assert (lease["pid"], lease["pgid"]) == (child.pid, child.pid)
        assert run.state() == "running"
        intruder = subprocess.run(command, capture_output=True, text=True)
        assert intruder.returncode == 1
        assert f"in use by process {child.pid}" in intruder.stderr
    finally:
        child.kill()
    until(lambda: run.state() == "interrupted", "the end of a zombie, which nobody has waited for")
    child.wait()
    claim_run(run)
    assert run.state() == "running"


def test_a_reused_pid_is_somebody_else_and_a_clock_that_jumps_changes_nothing(run):
    claim_run(run)
    lease = run.lease()
    for jump in (-1e6, 1e6):
        run.lease_path.write_text(json.dumps(lease | {"started": lease["started"] + jump}))
        assert run.state() == "running"
    run.lease_path.write_text(json.dumps(lease | {"birth": "another/12345"}))
    assert run.state() == "interrupted"
    run.lease_path.write_text(
        json.dumps(lease | {"birth": None, "started": lease["started"] - 1e6})
    )
    assert run.state() == "interrupted"


def test_a_lease_of_another_host_lives_by_its_heartbeat(run):
    claim_run(run)
    lease = run.lease() | {"host": "elsewhere"}
    run.lease_path.write_text(json.dumps(lease))
    assert run.state() == "running"
    run.lease_path.write_text(json.dumps(lease | {"heartbeat": time.time() - 3600}))
    assert run.state() == "interrupted"
    assert not renew_lease(run), "it is not ours"
    assert run.lease() == lease | {"heartbeat": run.lease()["heartbeat"]}


def test_a_torn_lease_is_nobodys(run):
    append_metrics(run, 1, {"step": 1})
    run.lease_path.write_text('{"host": "x"')
    assert run.state() == "interrupted"
    claim_run(run)
    assert run.state() == "running"
