"""A training that is killed for memory, and goes on as the message advises."""

import json
import os
import re
import signal
import sys
import threading

import pytest
import yaml

from rpg.store import Layout
from rpg.store.run_writer import write_manifest
from tests.forked_commands import to_its_end
from tests.real_sweep import rpg
from tests.tiny import BASE, HUNGRY, merged, numbers
from tests.waiting import memory

END = "model.safetensors"


class Killer(threading.Thread):
    """Stands in for Linux's OOM killer, which needs a machine or a cgroup of its own: kill -9 of
    the training process at once when it holds more memory than `bound` bytes.

    Without a bound it leaves the first step alone, and takes the middle between what the process
    held before and during it: the memory of a machine on which something else begins to need the
    rest.
    """

    def __init__(self, layout, bound=None):
        super().__init__(daemon=True)
        self.layout = layout
        self.bound = bound
        self.over = threading.Event()
        self.killed = False
        self.before = self.most = 0

    def run(self):
        while not self.over.wait(0.02):
            folders = self.layout.run_folders("hungry")
            lease = folders[0].lease() if folders else None
            if not lease:
                continue
            held = memory("RssAnon", lease["pid"])
            done = (folders[0].checkpoint_steps() or [-1])[-1]
            if self.bound is None and done == 0:
                self.before = self.before or held
                self.most = max(self.most, held)
            elif self.bound is None and done == 1:
                self.bound = (self.before + self.most) / 2
            if self.bound is not None and held > self.bound and not self.killed:
                os.kill(lease["pid"], signal.SIGKILL)
                self.killed = True

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


@pytest.mark.system
@pytest.mark.skipif(
    sys.platform != "linux", reason="the memory of a process is read from Linux's /proc"
)
def test_a_run_killed_for_memory_goes_on_after_the_advised_change_to_the_same_bits(
    tmp_path, prefect
):
    home = tmp_path / "data"
    layout = Layout(home)
    (tmp_path / "hungry.yaml").write_text(yaml.safe_dump(merged(BASE, HUNGRY)))
    command = ["train", "hungry.yaml"]
    with Killer(layout) as killer:
        done = rpg(tmp_path, *command, **prefect)
    assert killer.killed and done.returncode == 1, done.stdout + done.stderr
    (folder,) = layout.run_folders("hungry")
    error = folder.read_failed()["error"]
    assert error.startswith("the training process was killed by signal 9"), error
    said = " ".join((done.stdout + done.stderr).split())
    advised = re.search(
        r"out of memory\? run the same command again with (--set) (\S+=\w+):", said
    ).groups()
    assert advised == ("--set", "backend.gradient_checkpointing=true")
    assert "bit-identical results" in said
    assert folder.checkpoint_steps()[-1] == 1

    with Killer(layout, killer.bound) as again:  # the same limit
        done = rpg(tmp_path, *command, *advised, **prefect)
    assert done.returncode == 0 and not again.killed, done.stdout + done.stderr
    assert [one.path for one in layout.run_folders("hungry")] == [folder.path]
    assert "continuing after step 1 of 2" in folder.log_path.read_text()

    whole = layout.run("hungry-whole", folder.name)
    spec = json.loads(folder.manifest_path.read_text())
    spec["spec"]["backend"]["gradient_checkpointing"] = False
    write_manifest(whole, spec)
    to_its_end("train", whole)
    assert numbers(folder) == numbers(whole)
    assert (folder.checkpoint(2) / END).read_bytes() == (whole.checkpoint(2) / END).read_bytes()
