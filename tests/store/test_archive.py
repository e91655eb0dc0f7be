"""Finished runs in an object storage, and back: in fsspec's memory, and on a local S3 server."""

import json
import shutil
import sys
from functools import partialmethod

import fsspec
import pytest

from rpg.store import Layout, StoreError
from rpg.store.archive import Archive
from rpg.store.run_writer import append_metrics, write_done, write_manifest
from tests.tiny import Killed, make_run, make_spec

MEMORY = "memory://bucket/lab"
WHERE = "/bucket/lab/sweep/one"
HOW = "needs: pip install -c constraints.txt s3fs 'moto[server]'"


@pytest.fixture
def store():
    store = fsspec.filesystem("memory")
    store.store.clear()
    return store


@pytest.fixture
def s3(monkeypatch):
    boto3 = pytest.importorskip("boto3", reason=HOW)
    server = pytest.importorskip("moto.server", reason=HOW).ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in (("ENDPOINT_URL", url), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
        monkeypatch.setenv(f"AWS_{name}", value)
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="bucket")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    yield "s3://bucket/lab"
    server.stop()


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, store, tmp_path):
    if request.param == "s3":
        return request.getfixturevalue("s3")
    return MEMORY if request.param == "memory" else f"file://{tmp_path}/a [1] *"


def finished(home, name="one"):
    folder = make_run(home, name, make_spec())
    write_manifest(folder, folder.read_manifest() | {"eval_steps": []})
    append_metrics(folder, 1, {"step": 1, "reward": 0.5})
    for path, text in (("model.safetensors", f"weights of {name}"), ("training/state.json", "{}")):
        (folder.checkpoint(3) / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.checkpoint(3) / path).write_text(text)
    write_done(folder, seconds=1.0, attempts=1)
    Layout(home).write_sweep({"name": "sweep", "runs": ["one", "two"], "benchmarks": []})
    return folder


def contents(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def fetched(url, home, *what):
    return Archive(url).fetch(Layout(home), "sweep", "one", *what)


def test_a_run_comes_back_as_it_was_and_its_checkpoint_on_demand(tmp_path, url):
    folder = finished(tmp_path / "here")
    (folder.path / "lease.json").write_text("{}")  # of a process here, as is what begins with a dot
    (folder.path / ".lock").write_text("")
    Archive(url).push(folder.path.parent)
    Archive(url).push(folder.path)
    assert Archive(url).runs() == [("sweep", "one")]
    there = tmp_path / "there"
    assert fetched(url, there)
    assert not fetched(url, there)
    run = Layout(there).run("sweep", "one")
    assert run.state() == "done"
    assert not run.checkpoint_steps()
    assert Layout(there).read_sweep("sweep")["runs"] == ["one", "two"]
    assert fetched(url, there, "step-000003")
    assert not fetched(url, there, "step-000004")
    ours = contents(folder.path)
    assert contents(run.path) == {
        name: ours[name] for name in ours if name not in ("lease.json", ".lock")
    }


def test_what_is_there_is_not_sent_again_and_is_never_lost(tmp_path, url):
    folder = finished(tmp_path / "here")
    assert Archive(url).push(folder.path) > 0
    assert Archive(url).push(folder.path) == 0
    shutil.rmtree(folder.checkpoint(3))
    (folder.path / "notes.json").write_text("{'notes': []}")
    assert Archive(url).push(folder.path) == 13
    assert fetched(url, tmp_path / "there", "step-000003")
    write_done(
        folder, seconds=2.0, attempts=2
    )  # trained again: not mixed with what was trained before
    Archive(url).push(folder.path)
    assert not fetched(url, tmp_path / "elsewhere", "step-000003")
    archive = Archive(url)
    archive._fs.pipe_file(f"{archive._root}/sweep/one.json", b"")  # of a full disk
    assert archive.push(folder.path) == 0
    assert fetched(url, tmp_path / "again")


def test_a_record_is_renamed_into_place_and_has_no_log_that_grew_meanwhile(
    tmp_path, url, monkeypatch
):
    log = finished(tmp_path / "here").path.parent / "evaluation.log"
    archive = Archive(url)
    log.write_text("a line\n")
    store = type(archive._fs)
    put = type(archive._fs).put_file
    monkeypatch.setattr(
        store, "put_file", lambda *a, **k: log.open("a").write("more") and put(*a, **k)
    )
    monkeypatch.setattr(
        shutil, "move", None
    )  # between two disks it copies, and a full one has half a record
    archive.push(log.parent)
    archive.push(log.parent / "one")
    assert fetched(url, tmp_path / "there")


@pytest.mark.parametrize("calls", range(7))
def test_a_push_that_is_killed_is_never_taken_for_whole_and_continues(
    tmp_path, store, monkeypatch, calls
):
    folder = finished(tmp_path / "here")
    left = iter(range(calls))
    whole = False

    def dying(self, real, *arguments, **options):
        if next(left, None) is None:
            raise Killed
        return real(self, *arguments, **options)

    for name in ("put_file", "pipe_file"):
        monkeypatch.setattr(type(store), name, partialmethod(dying, getattr(type(store), name)))
    try:
        whole = Archive(MEMORY).push(folder.path) > 0
    except Killed:
        assert not Archive(MEMORY).runs()
        assert not fetched(MEMORY, tmp_path / "there")
    monkeypatch.undo()
    assert (Archive(MEMORY).push(folder.path) == 0) == (whole or calls == 5)
    assert fetched(MEMORY, tmp_path / "there")


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "a/../../../escaped", "", "."])
def test_a_record_cannot_lead_out_of_the_folder(tmp_path, store, name):
    Archive(MEMORY).push(finished(tmp_path / "here").path)
    record = json.loads(store.cat_file(f"{WHERE}.json"))
    record["files"][name] = record["files"]["DONE.json"]
    store.pipe_file(f"{WHERE}.json", json.dumps(record).encode())
    with pytest.raises(
        StoreError, match=r"sweep/one\.json: cannot be used .*is not a file of a run"
    ):
        fetched(MEMORY, tmp_path / "there")
    assert not (tmp_path / "there").exists()
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_damaged_file_is_not_taken(tmp_path, store):
    Archive(MEMORY).push(finished(tmp_path / "here").path)
    for path in store.find(WHERE):
        store.pipe_file(path, store.cat_file(path)[::-1])
    with pytest.raises(StoreError, match=r"sweep/one: .* is damaged there"):
        fetched(MEMORY, tmp_path / "there")
    assert not contents(tmp_path / "there")


def test_commands_push_what_is_finished_and_fetch_what_is_asked_for(
    tmp_path, store, monkeypatch, capsys
):
    from rpg.cli import archive
    from rpg.cli.data_folder import aggregate, rm
    from rpg.cli.model import push
    from rpg.store.database import connect

    finished(tmp_path / "here"), make_run(tmp_path / "here", "two", make_spec())
    assert push([MEMORY], home=tmp_path / "here") == 1  # for a script: not all of it is there
    out = capsys.readouterr()
    assert "runs sent: 1 (" in out.out
    assert "! sweep/two is left out: pending" in out.err
    monkeypatch.setenv(archive.VARIABLE, MEMORY)
    assert (
        push(["sweep/one", "sweep/one"], home=tmp_path / "here") == 0
    )  # not the hub, though two words
    assert "runs sent: 0 (0 B); there already: 1" in capsys.readouterr().out
    there = Layout(tmp_path / "there")
    aggregate(home=there.home)
    with connect(there) as db:
        rows = db.execute("SELECT run, state FROM runs ORDER BY run").fetchall()
    assert rows == [("one", "done"), ("two", "pending")]
    asked = archive.fetched(there, "sweep/one/step-000003")
    assert asked == archive.fetched(there, asked) == str(there.run("sweep", "one").checkpoint(3))
    assert archive.fetched(there, "Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"
    rm(["sweep/one"], home=there.home)
    assert (
        f"what {MEMORY} still has of it is fetched by the next rpg aggregate"
        in capsys.readouterr().err
    )
    store.pipe_file("/bucket/lab/sweep/a.json", b"torn")
    aggregate(home=there.home)
    out = capsys.readouterr()
    assert "sweep/a.json: cannot be used" in out.err
    assert there.run("sweep", "one").done_path.exists()


def test_an_archive_that_cannot_be_reached_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(
        StoreError, match=r"^s3://bucket/x: Install s3fs.*; install it with: .*\[archive\]"
    ):
        Archive("s3://bucket/x")
    with pytest.raises(
        StoreError, match=r"^what://x: Protocol not known: what; expected e\.g\. s3://"
    ):
        Archive("what://x")


def test_a_bucket_that_is_missing_is_a_sentence(s3, tmp_path):
    with pytest.raises(StoreError, match=r"^s3://none/a: The specified bucket does not exist"):
        Archive("s3://none/a").push(finished(tmp_path).path)
