"""Slots are kernel locks: never more than there are, free when the holder is gone, and they say who
holds them."""

import subprocess
import sys
from contextlib import closing

import pytest

from flows.machine.slots import Machine, Need, machine, need_of
from rpg.config.backend import BACKENDS, LocalBackend
from rpg.errors import UserError
from rpg.store import locks

CPU = Need("cpu", 1)


@pytest.fixture
def two(tmp_path):
    return Machine(tmp_path / "slots", 2, ("0", "1", "2"))


def test_n_trainings_at_a_time_and_the_next_is_told_who_has_them(two):
    first = two.take(CPU, "a/x")
    second = two.take(CPU, "b/y")
    assert first
    assert second
    assert two.take(CPU, "c/z") is None
    why = two.why(CPU)
    assert "waits for a slot: 2 of 2" in why
    assert "a/x" in why
    assert "b/y" in why
    first.close()
    with two.gate(CPU, "d/w"):
        assert "; next in the queue is d/w (process" in two.why(CPU)
    assert two.take(CPU, "c/z")


def test_a_holder_that_is_killed_leaves_nothing_behind(two):
    code = (
        "import sys; from pathlib import Path; from flows.machine.slots import Machine, Need; "
        f"held = Machine(Path({str(two.folder)!r}), 2, ()).take(Need('cpu', 2), 'x/y'); "
        "print(bool(held), flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", code], **pipes)
    assert other.stdout.readline().strip() == "True"
    assert two.take(CPU, "a/b") is None
    other.kill()
    other.wait()
    assert len(two.take(Need("cpu", 2), "a/b").locks) == 2


def test_a_child_that_inherits_a_slot_keeps_it_when_the_parent_lets_go(two):
    held = two.take(Need("cpu", 2), "a/b")
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=held.fds
    )
    held.close()
    assert two.take(CPU, "c/d") is None
    child.communicate(b"\n")
    assert two.take(CPU, "c/d")


def test_gpus_are_taken_all_at_once_and_shown_to_the_process_alone(two):
    held = two.take(Need("gpu", 2), "a/b")
    assert held.environment == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert two.take(Need("gpu", 2), "c/d") is None  # one is free, and stays free
    assert two.take(Need("gpu", 1), "e/f").environment == {"CUDA_VISIBLE_DEVICES": "2"}
    with pytest.raises(UserError, match="needs 8 GPUs and this machine has 3"):
        two.take(Need("gpu", 8), "g/h")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_only_who_waits_for_the_same_slots_is_before_another(tmp_path, kind):
    """Two people have a GPU each by CUDA_VISIBLE_DEVICES, or sweeps have another RPG_SLOTS."""
    one = Machine(tmp_path, 1, ("0",))
    both = Machine(tmp_path, 2, ("0", "1"))
    need = Need(kind, 1)
    with closing(one.take(need, "a/first")), one.gate(need, "a/second"):
        assert one.gate(need, "a/third") is None
        several = both.gate(need, "b/several")
        with closing(both.take(need, "b/several", several)) as held:
            assert [lock.path.name for lock in held.locks] == [f"{kind}-1"]
    with one.gate(need, "a/later") as later:
        assert one.take(need, "a/later", later) is None
        assert "; next in the queue is b/several" in one.why(need, later)
        assert len(both.take(Need(kind, 2), "b/several", several).locks) == 2


def test_what_a_back_end_needs(two):
    assert need_of(LocalBackend(), two) == CPU
    assert need_of(LocalBackend(device="cuda"), two) == Need("gpu", 1)
    verl = BACKENDS["verl"]
    server = {"type": "vllm"}
    assert need_of(verl(type="verl", device="cuda", gpus_per_node=3, rollout=server), two) == Need(
        "gpu", 3
    )
    assert need_of(verl(type="verl", gpus_per_node=3), two) == Need("cpu", 2)
    for address, need in {
        "auto": Need("gpu", 3),
        "127.0.0.1:9": Need("gpu", 3),
        "head:9": None,
    }.items():
        ray = {"type": "address", "address": address}
        on_cluster = verl(type="verl", device="cuda", gpus_per_node=8, rollout=server, ray=ray)
        assert (need_of(on_cluster, two), need_of(on_cluster, Machine(two.folder, 2, ()))) == (
            need,
            None,
        )


def test_the_environment_says_how_many_and_where(tmp_path):
    here = machine(
        {"RPG_SLOTS": "7", "RPG_SLOTS_FOLDER": str(tmp_path / "s"), "CUDA_VISIBLE_DEVICES": "3,5"}
    )
    assert here.cpu == 7
    assert here.gpus == ("3", "5")
    assert (tmp_path / "s").stat().st_mode & 0o7777 == 0o1777
    with pytest.raises(UserError, match="RPG_SLOTS='many'"):
        machine({"RPG_SLOTS": "many"})
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(UserError, match="symbolic link"):
        machine({"RPG_SLOTS_FOLDER": str(tmp_path / "link")})


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "cpu-0").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot lock"):
        locks.take(tmp_path / "cpu-0", {"who": "me"})
    assert (tmp_path / "precious").read_text() == "keep"
