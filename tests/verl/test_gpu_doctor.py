"""What `rpg doctor --backend verl` and the first seconds of a run find, on machines that are
described here."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rpg.backends.verl import cpu, readiness
from rpg.backends.verl.readiness import Facts, Gpu, facts, findings, gpu_problem, torch_problem
from rpg.config.sweep_spec import load_sweep
from rpg.errors import UserError
from rpg.planning.preflight import preflight
from rpg.store import Layout
from tests.specs import load_run
from tests.verl.test_gpu_resources import VLLM
from tests.verl.test_launch_overrides import CHAIN

RELEASED = {"torch": "2.11.0", "vllm": "0.24.0", "transformers": "5.9.0"}
GOOD = Facts(
    versions={
        "verl": "0.9.1",
        "ray": "2.60.0",
        "TransferQueue": "0.1.11",
        "rpg-lab-verl-cpu": "0.1.0",
        **RELEASED,
    },
    flash_attn=True,
    torch_cuda="13.0",
    gpus=(Gpu("NVIDIA H100", 80 * 2**30, 2**20),) * 8,
    cores=64,
    shm=64 * 2**30,
    temporary=Path("/tmp"),
    temporary_free=0.5,
    open_files=65536,
)
EIGHT = {**VLLM, "backend.gpus_per_node": 8}
NODES = {**EIGHT, "backend.nodes": 2, "backend.ray": {"type": "address", "address": "auto"}}


def wrong(changes, **differences):
    backend = load_run(CHAIN, changes).backend
    return [
        finding.text
        for finding in findings(backend, replace(GOOD, **differences))
        if finding.good is False
    ]


@pytest.mark.parametrize(
    ("changes", "differences", "says"),
    [
        (
            EIGHT,
            {"versions": {**GOOD.versions, "vllm": None}},
            "vllm is not installed; install it with",
        ),
        (EIGHT, {"versions": {**GOOD.versions, "verl": "0.8.0"}}, "verl 0.8.0: 0.9.1 is required"),
        (EIGHT, {"torch_cuda": None}, "torch 2.11.0 is built without CUDA"),
        (
            EIGHT,
            {"driver": "570.86.10", "torch_cuda": "13.0"},
            "driver 570.86.10 is too old for CUDA 13.0 of torch 2.11.0",
        ),
        (EIGHT, {"gpus": GOOD.gpus[:2]}, "gpus_per_node 8: this machine shows 2 GPUs"),
        (EIGHT, {"shm": 64 * 2**20}, "/dev/shm holds 64 MiB"),
        (EIGHT, {"temporary_free": 0.01}, "/tmp is 99% full"),
        (
            {**EIGHT, "backend.sequence_parallel": 2},
            {"flash_attn": False},
            "sequence_parallel needs the package flash_attn",
        ),
        (
            {"backend.type": "verl"},
            {"versions": {**GOOD.versions, "rpg-lab-verl-cpu": None}},
            "rpg-lab-verl-cpu is not installed; install it with: pip install ./verl-cpu",
        ),
        (VLLM, {"shm": 64 * 2**20}, None),  # one GPU shares with nobody
        (VLLM, {"flash_attn": False}, None),
        (VLLM, {"versions": {**GOOD.versions, "rpg-lab-verl-cpu": None}}, None),  # it is for CPUs
        (NODES, {"gpus": ()}, None),  # they are elsewhere
        (
            {"backend.type": "verl"},
            {"gpus": (), "torch_cuda": None, "versions": {**GOOD.versions, "vllm": None}},
            None,
        ),
    ],
)
def test_what_would_make_a_run_fail_and_what_does_no_harm(changes, differences, says):
    found = wrong(changes, **differences)
    assert found == [] if says is None else len(found) == 1 and says in found[0]


SMI = """#!/bin/sh
if [ $# = 0 ]
then echo "Driver Version: 535.183.01  CUDA Version: 12.2"
else echo "RTX 4090, 24564, 300, 8.9"
fi
"""


def test_the_driver_is_read_and_one_command_mends_it(tmp_path, monkeypatch, command_line):
    (smi := tmp_path / "nvidia-smi").touch(0o755)
    smi.write_text(SMI)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    old = replace(facts(), torch_cuda="13.0", versions={"torch": "2.13.0"})
    assert (old.driver, old.driver_cuda, old.gpus[0].capability) == ("535.183.01", "12.2", "8.9")
    assert "--index-url https://download.pytorch.org/whl/cu126" in gpu_problem(old)
    assert "sudo apt-get install nvidia-driver-580" in gpu_problem(
        replace(old, versions=GOOD.versions)
    )
    assert gpu_problem(replace(old, torch_cuda="12.8")) is None
    for said, problem in (
        ("1 sm_80", ""),
        ("1 sm_90", "torch is built for sm_90"),
        ("0", "sees 0 of 1"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(readiness, "_output", lambda *_, said=said: said)
            assert (torch_problem(old) is None) == (problem == "")
            assert problem in (torch_problem(old) or "")
    smi.write_text("#!/bin/sh\necho Driver/library version mismatch; exit 9\n")
    _, out, _ = command_line("doctor", "--home", tmp_path / "data")
    assert "--  nvidia-smi fails: Driver/library version mismatch; install driver 580" in out


def test_a_gpu_in_use_is_worth_a_word():
    backend = load_run(CHAIN, EIGHT).backend
    used = (Gpu("NVIDIA H100", 80 * 2**30, 30 * 2**30), *GOOD.gpus[1:])
    [note] = [
        finding.text
        for finding in findings(backend, replace(GOOD, gpus=used))
        if finding.good is None
    ]
    assert "another process holds 30.0: vLLM may refuse to start" in note


def test_a_sweep_knows_before_its_warm_start(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    missing = ("vllm", "flash_attn")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    changes = {**EIGHT, "backend.sequence_parallel": 2}
    lines = preflight([load_run(CHAIN, changes)], Layout(tmp_path))
    assert "backend.rollout.type: vllm needs the package vllm, which is not installed" in lines
    assert "backend.sequence_parallel needs the package flash_attn, which is not installed" in lines


def test_doctor_says_what_verl_needs_and_refuses_another_back_end(command_line, tmp_path):
    pytest.importorskip("verl")
    _, out, _ = command_line("doctor", "--backend", "verl", "--home", tmp_path)
    here = facts()
    assert here.cores >= 1
    assert "torch" in here.versions
    for text in (
        "ok  verl 0.9.1",
        "Ray is given the number that verl reserves",
        "rpg-lab-verl-cpu",
    ):
        assert text in out
    code, _, errors = command_line("doctor", "--backend", "slurm")
    assert code == 2
    assert "'slurm' is not one of 'verl'" in errors


def test_the_command_takes_shipped_names(command_line, tmp_path):
    _, out, errors = command_line("doctor", "chain", "--home", tmp_path)
    assert "chain.yaml: no problems found" in out
    assert not errors


def test_the_papers_sweeps_pass_on_a_good_machine():
    for path in sorted(
        (Path(__file__).resolve().parents[2] / "configs/papers/rpg").glob("table*.yaml")
    ):
        for run in load_sweep(path, {}, lambda spec: "data").runs:
            assert all(finding.good for finding in findings(run.spec.backend, GOOD))


def test_a_job_on_a_cpu_names_the_distribution_that_is_missing(monkeypatch):
    monkeypatch.setattr(cpu, "DISTRIBUTION", "rpg-lab-not-installed")
    with pytest.raises(
        UserError, match=r"on a CPU needs rpg-lab-not-installed.*pip install \./verl-cpu"
    ):
        cpu.part("job")
