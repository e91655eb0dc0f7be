"""A training that runs out of memory says what to change; changed so, it goes on and ends with the same bits."""

import re
import subprocess
import sys

import psutil
import pytest

from rpg.models.initial import prepare_model
from tests.real_sweep import ROOT
from tests.tiny import make_run, make_spec, numbers
from tests.waiting import until

# One micro-batch of 512 responses: over 100 MB for the backward pass.
SPEC = make_spec(
    training={"steps": 2, "prompts_per_step": 32, "mini_batch_prompts": 32, "micro_batch_rows": 512},
    rollout={"group_size": 16},
    model={"hidden_size": 128, "intermediate_size": 2048, "layers": 3},
)
TRAIN = """\
import re, resource, sys
from rpg.backends.local.__main__ import main
limit = int(sys.argv.pop(1))
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
code = main()
print("peak", re.search(r"VmPeak:\\s+(\\d+)", open("/proc/self/status").read())[1])
sys.exit(code)
"""


def start(folder, limit=0):
    command = [sys.executable, "-c", TRAIN, str(limit), str(folder.path), "--detached"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def offload(folder):
    manifest = folder.read_manifest()
    manifest["spec"]["backend"]["offload"] = True
    folder.write_manifest(manifest)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit of memory")
def test_a_run_that_ran_out_of_memory_goes_on_as_advised_and_ends_with_the_bits_of_an_undisturbed_one(
    tmp_path,
):
    prepare_model(SPEC, tmp_path, lambda line: None)
    peaks = {}
    whole, less, run = (make_run(tmp_path, name, SPEC) for name in ("whole", "less", "run"))
    offload(less)
    for folder in (whole, less):
        said = start(folder).communicate()[0]
        peaks[folder.name] = 1024 * int(re.search(r"peak (\d+)", said)[1])
        assert "trained: 2 of 2 steps" in said
    assert peaks["whole"] - peaks["less"] > 50e6, peaks
    limit = (peaks["whole"] + peaks["less"]) // 2

    first = start(run)
    until(lambda: 1 in run.checkpoint_steps(), "the first checkpoint", lambda: first.poll() is not None)
    psutil.Process(first.pid).kill()
    first.communicate()
    said = start(run, limit).communicate()[0]
    assert "trained" not in said and run.checkpoint_steps() == [0, 1]
    failure = run.read_failed()["error"]
    assert failure.startswith("not enough memory: set backend.offload: true, which changes no bit"), said
    offload(run)
    said = start(run, limit).communicate()[0]
    assert "trained: 2 of 2 steps" in said and len(run.attempts()) >= 2, said
    assert numbers(run) == numbers(whole)
    last = "model.safetensors"
    assert (run.checkpoint(2) / last).read_bytes() == (whole.checkpoint(2) / last).read_bytes()
