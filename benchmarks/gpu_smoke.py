"""Ten minutes that say whether verl works on a GPU machine: `python benchmarks/gpu_smoke.py
--device cuda [--gpus 8]`.

1. `rpg doctor --backend verl`: versions, flash attention, GPUs, shared memory, disk.
2. Three steps of Qwen3-0.6B on word problems (on a CPU: of a tiny model), with rollout correction.
   After the first checkpoint the whole sweep is killed (SIGKILL), and the same command goes on.
3. Its checkpoints are evaluated on the GPUs that the training has left.
4. Every step was counted once, numbers are finite, the first ratios are near 1, nothing is left
   running.
5. The embedded trainer's decoding: attention reaches a fused kernel, steps are replayed as CUDA
   graphs, and draw the same.
6. The embedded trainer learns the chain task, is killed (SIGKILL) after its first checkpoint, and
   goes on.

`--only embedded` does 5 and 6 alone, which need `rpg-lab[local,orchestration]` and no model. The
others also need its extras verl and vllm and, on a GPU, a network or the model in the hub's cache.
Prints what held and how long it took; exit code 1 where something did not hold. `--keep` leaves the
data folder for a look at its logs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import yaml

from rpg.backends.verl.driver_process import MARK
from rpg.store import Layout
from rpg.store.checkpoints import damaged
from rpg.store.run_folder import RunFolder
from rpg.store.samples import read_samples

STEPS = 3
LIMIT = 3600.0
"""Seconds after which waiting is given up; each part takes minutes."""


def settings(device: str, gpus: int, model: str) -> dict[str, Any]:
    """The sweep: one run."""
    backend: dict[str, Any] = {
        "type": "verl",
        "device": device,
        "gpus_per_node": gpus,
        "hang_minutes": 15,
    }
    run: dict[str, Any] = {
        "algorithm": {
            "name": "rpg-reinforce-urkl",
            "rollout_correction": {"type": "truncate", "cap": 2.0},
        },
        "training": {"steps": STEPS, "prompts_per_step": 8, "mini_batch_prompts": 4},
        "evaluation": {"every": STEPS, "samples_per_problem": 2},
    }
    if device == "cpu":
        warm = {"target_accuracy": 0, "consolidation_steps": 0, "behaviour_steps": 40}
        return {
            "name": "gpu-smoke",
            "run": run
            | {
                "task": {
                    "type": "chain",
                    "tiers": {"one": 1},
                    "train_problems": 200,
                    "benchmark_problems": 8,
                },
                "model": {
                    "type": "tiny",
                    "hidden_size": 32,
                    "intermediate_size": 64,
                    "warm_start": warm,
                },
                "rollout": {"group_size": 4, "max_prompt_tokens": 16, "max_response_tokens": 12},
                "backend": backend
                | {"verl": {"actor_rollout_ref.actor.fsdp_config.forward_prefetch": True}},
            },
        }
    run["training"] |= {"prompts_per_step": 16 * gpus, "mini_batch_prompts": 8 * gpus}
    run["training"]["optimizer"] = {"type": "adamw", "learning_rate": 1e-6}
    vllm = {"type": "vllm", "gpu_memory_utilization": 0.5}
    return {
        "name": "gpu-smoke",
        "run": run
        | {
            "task": {"type": "words", "train_problems": 2000, "benchmark_problems": 32},
            "model": {"type": "pretrained", "path": model, "dtype": "bfloat16"},
            "rollout": {"group_size": 8, "max_prompt_tokens": 256, "max_response_tokens": 512},
            "evaluation": run["evaluation"] | {"engine": {"type": "vllm"}},
            "backend": backend
            | {"rollout": vllm, "verl": {"actor_rollout_ref.rollout.max_num_seqs": 256}},
        },
    }


def decoding(device: str, report: Callable[[bool, str], bool]) -> None:
    """A model of four layers with random weights; without its fused kernels, attention would be an
    error here."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from rpg.models.block_decoding import BlockEngine
    from rpg.models.decoding import SamplingPlan, generate

    sizes = {
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "head_dim": 64,
    }
    config = Qwen3Config(
        vocab_size=512, num_key_value_heads=2, max_position_embeddings=512, **sizes
    )
    torch.manual_seed(0)
    uniforms, prompts = torch.rand(32, 128), [[1, 2, 3], [4] * 20]
    for dtype in (torch.float32, torch.bfloat16):
        model, drawn = Qwen3ForCausalLM(config).to(device, dtype).eval(), []
        for graphs in (device == "cuda", False):
            engine = BlockEngine(model)
            engine.graphs = graphs
            fused = [
                SDPBackend.FLASH_ATTENTION,
                SDPBackend.EFFICIENT_ATTENTION,
                SDPBackend.CUDNN_ATTENTION,
            ]
            try:
                with sdpa_kernel(fused):
                    plan = SamplingPlan(group_size=16, max_new_tokens=128, uniforms=uniforms)
                    drawn.append(generate(engine, prompts, plan, stop=(0,)))
            except RuntimeError as error:
                report(False, f"decoding in {dtype}: {str(error).splitlines()[0]}")
                return
            report(
                engine.graphs == graphs,
                f"decoding in {dtype} with fused attention, CUDA graphs: {engine.graphs}",
            )
        same = drawn[0].batch.tokens.equal(drawn[1].batch.tokens)
        report(same, f"decoding in {dtype} draws the same with and without CUDA graphs")


class Report:
    """What held and what did not, as it is found."""

    def __init__(self) -> None:
        self.began, self.failed = time.monotonic(), 0

    def __call__(self, held: bool, text: str) -> bool:
        self.failed += not held
        print(
            f"{time.monotonic() - self.began:6.0f} s  {'ok ' if held else 'NO '} {text}", flush=True
        )
        return held


class Watch(threading.Thread):
    """The most memory in use of any GPU, looked at every two seconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.over = 0.0, threading.Event()

    def run(self) -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.over.wait(2.0):
            try:
                shown = subprocess.run(
                    command, capture_output=True, text=True, timeout=20, check=True
                ).stdout
                self.most = max(self.most, *map(float, shown.split()))
            except (OSError, subprocess.SubprocessError, ValueError, TypeError):
                return


def embedded(device: str, home: Path, report: Callable[[bool, str], bool]) -> None:
    """A run of the chain task: its policy has to be at least twice as accurate afterwards."""
    steps, log = 20, (home / "embedded.log").open("ab")
    words = [
        f"--set=backend.device={device}",
        f"--set=training.steps={steps}",
        "--set=evaluation.every=10",
    ]
    command = rpg(home, "train", "chain", "--name=embedded", *words)
    child = subprocess.Popen(
        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
    )
    if not report(
        until(lambda: any(run.checkpoint(10).exists() for run in runs(home, "embedded")), child),
        "embedded: ten steps",
    ):
        print(f"log: {home / 'embedded.log'}", file=sys.stderr)
        return
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    again = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    report(
        again.returncode == 0,
        f"embedded: killed, and the same command went on (log: {home / 'embedded.log'})",
    )
    (run,) = runs(home, "embedded")
    rows = run.read_metrics()
    report(
        [row["step"] for row in rows] == list(range(1, steps + 1)),
        "embedded: every step was counted once",
    )
    graded = {
        step: read_samples(run.eval_path("chain-hard", step)).to_pylist() for step in (0, steps)
    }
    right = {step: sum(row["correct"] for row in each) / len(each) for step, each in graded.items()}
    report(right[steps] > 2 * right[0], f"embedded: accuracy on chain-hard by step: {right}")


def rpg(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "rpg", *words, "--home", str(home)]


def left(run: RunFolder) -> list[int]:
    """Processes of this run that still exist."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(MARK) == str(run.path)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def until(true: Callable[[], object], child: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait; False when `child` ends first or the time is over."""
    deadline = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > deadline or (child is not None and child.poll() is not None):
            return bool(true())
        time.sleep(0.2)
    return True


def runs(home: Path, sweep: str = "gpu-smoke") -> list[RunFolder]:
    folder = Layout.at(home).sweep_folder(sweep)
    return [RunFolder(path.parent) for path in folder.glob("*/manifest.json")]


def smoke(options: argparse.Namespace, home: Path, report: Report) -> None:
    file = home / "gpu-smoke.yaml"
    file.write_text(
        yaml.safe_dump(settings(options.device, options.gpus, options.model), sort_keys=False)
    )
    doctor = subprocess.run(
        rpg(home, "doctor", "--backend", "verl", str(file)), capture_output=True, text=True
    )
    print(doctor.stdout, end="")
    if not report(doctor.returncode == 0, "rpg doctor --backend verl finds no reason to refuse"):
        return

    log = (home / "sweep.log").open("ab")
    command = rpg(home, "sweep", str(file))
    child = subprocess.Popen(
        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
    )
    saved = until(lambda: runs(home) and runs(home)[0].checkpoint(1).exists(), child)
    if not report(saved, "a first step, and its checkpoint"):
        child.wait()
        failed = [run.read_failed() for run in runs(home)]
        print(json.dumps(failed, indent=1), f"logs: {home}", file=sys.stderr)
        return
    (run,) = runs(home)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    report(until(lambda: not left(run)), "killed (SIGKILL): every process of it ended")

    again = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    report(
        again.returncode == 0, f"the same command went on to the end (log: {home / 'sweep.log'})"
    )
    rows = run.read_metrics()
    report(
        [row["step"] for row in rows] == list(range(1, STEPS + 1)), "every step was counted once"
    )
    report(len(run.attempts()) == 2, "in two attempts")
    finite = all(
        math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float)
    )
    report(finite and bool(rows), "all numbers are finite")
    # The trainer's log-probabilities of the first mini-batch are the policy's own: the ratio begins
    # at 1.
    report(all(abs(row.get("ratio_mean", 1.0) - 1.0) < 0.05 for row in rows), "ratios are near 1")
    steps = run.checkpoint_steps()
    report(
        STEPS in steps and all(damaged(run.checkpoint(step)) is None for step in steps),
        f"checkpoints {steps} are whole",
    )
    evaluated = {name: run.eval_steps(name) for name in run.benchmarks()}
    report(
        bool(evaluated) and all({0, STEPS} <= set(one) for one in evaluated.values()),
        f"evaluated: {evaluated}",
    )
    report(run.state() == "done", f"the run is {run.state()}")
    report(until(lambda: not left(run)), "nothing is left running")
    for row in rows:
        shown = {
            name: round(row[name], 4)
            for name in (
                "reward",
                "entropy",
                "grad_norm",
                "seconds_rollout",
                "seconds_log_prob",
                "seconds_update",
                "seconds_step",
                "tokens_per_second",
            )
            if name in row
        }
        print(f"          step {row['step']}: {shown}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--gpus", type=int, default=1, help="of this machine (on a CPU: processes)")
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B", help="on a GPU: a hub id or a folder")
    parser.add_argument("--only", choices=("embedded",), help="without verl and vLLM")
    parser.add_argument("--keep", action="store_true", help="leave the data folder")
    options = parser.parse_args()
    report, watch = Report(), Watch()
    with ExitStack() as stack:
        if options.keep:
            home = Path(tempfile.mkdtemp(prefix="gpu-smoke-"))
        else:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-smoke-")))
        watch.start()
        if not options.only:
            smoke(options, home, report)
        decoding(options.device, report)
        embedded(options.device, home, report)
        watch.over.set()
        if options.keep:
            print(f"data folder: {home}")
    if watch.most:
        print(f"most memory of a GPU: {watch.most / 1024:.1f} GiB")
    print("all of it held" if not report.failed else f"{report.failed} of it did not hold")
    return int(report.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
