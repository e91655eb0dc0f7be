"""Whether verl and vLLM work on a GPU machine with a network: `python -m benchmarks.gpu_smoke
[--gpus 8]`.

1. `rpg doctor --backend verl`: versions, flash attention, GPUs, shared memory, disk.
2. Three steps of Qwen3-0.6B on word problems with FSDP and vLLM (on a CPU: of a tiny model), with
   rollout correction. After the first checkpoint the whole sweep is killed (SIGKILL), and the same
   command goes on.
3. Its checkpoints are evaluated on the GPUs that the training has left.
4. Every step was counted once, numbers are finite, the first ratios are near 1, nothing is left
   running.
5. Two steps of the embedded trainer with rollouts by vLLM: the KL between both is small.
6. The model on AIME 2024, two samples a problem, by vLLM.

Needs the extras verl and vllm. `--device cpu` does 1 to 4 with a tiny model; `--dry-run` prints the
commands and asks the command line whether it accepts each. What needs neither a network nor these
packages is in benchmarks/gpu_check. Prints what held and how long it took; exit code 1 where
something did not hold. `--keep` leaves the data folder for a look at its logs.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.waiting import until
from rpg.backends.verl.driver_process import MARK
from rpg.store import Layout
from rpg.store.checkpoints import damaged
from rpg.store.run_folder import RunFolder

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


def vllm_settings(model: str) -> dict[str, Any]:
    """The embedded trainer with vLLM's rollouts: one run."""
    return {
        "name": "gpu-vllm",
        "run": {
            "task": {"type": "words", "train_problems": 500, "benchmark_problems": 16},
            "model": {"type": "pretrained", "path": model, "dtype": "bfloat16"},
            "algorithm": {"name": "rpg-reinforce-urkl"},
            "training": {
                "steps": 2,
                "prompts_per_step": 16,
                "mini_batch_prompts": 8,
                "optimizer": {"type": "adamw", "learning_rate": 1e-6},
            },
            "rollout": {
                "group_size": 8,
                "max_prompt_tokens": 256,
                "max_response_tokens": 512,
                "engine": {"type": "vllm", "gpu_memory_utilization": 0.3},
            },
            "evaluation": {"every": 2, "samples_per_problem": 2, "engine": {"type": "vllm"}},
            "backend": {"type": "local", "device": "cuda", "gradient_checkpointing": True},
        },
    }


def aime(home: Path, model: str) -> list[str]:
    """Two samples of each problem of AIME 2024."""
    sampling = ["--benchmarks", "aime24", "--k", "2", "--max-response-tokens", "4096"]
    kind = ["--engine", "vllm", "--device", "cuda", "--dtype", "bfloat16"]
    return rpg(home, "evaluate", model, *sampling, *kind)


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


def runs(home: Path, sweep: str = "gpu-smoke") -> list[RunFolder]:
    folder = Layout.at(home).sweep_folder(sweep)
    return [RunFolder(path.parent) for path in folder.glob("*/manifest.json")]


def written(home: Path, settings: dict[str, Any]) -> Path:
    """A sweep's file."""
    file = home / f"{settings['name']}.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


def dry_run(options: argparse.Namespace, home: Path, report: Report) -> None:
    """Print what would be run; the command line reads every file and every option."""
    files = [
        written(home, settings("cuda", options.gpus, options.model)),
        written(home, vllm_settings(options.model)),
    ]
    for file in files:
        print("$", shlex.join(rpg(home, "sweep", str(file))), flush=True)
        report(accepted("show", str(file)), f"rpg show {file.name}")
    command = aime(home, options.model)
    print("$", shlex.join(command), flush=True)
    report(accepted(*command[3:], parsed_only=True), "rpg evaluate: all options are known")


def accepted(name: str, *words: str, parsed_only: bool = False) -> bool:
    """Whether the command line takes these words; `parsed_only`: without doing what they say."""
    from typer.main import get_command

    from rpg.cli import load

    command = get_command(load()).commands[name]  # type: ignore[attr-defined]  # it is a group
    try:
        context = command.make_context(name, list(words))
        if not parsed_only:
            with redirect_stdout(io.StringIO()):
                command.invoke(context)
    except Exception as error:  # noqa: BLE001 (whatever a command line raises is shown)
        print(f"{name}: {error}", file=sys.stderr)
        return False
    return True


def with_vllm(options: argparse.Namespace, home: Path, report: Report) -> None:
    """The embedded trainer's rollouts, then AIME 2024, both by vLLM."""
    log = (home / "vllm.log").open("ab")
    command = rpg(home, "sweep", str(written(home, vllm_settings(options.model))))
    trained = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    report(trained.returncode == 0, f"embedded with vLLM: two steps (log: {home / 'vllm.log'})")
    for run in runs(home, "gpu-vllm"):
        for row in run.read_metrics():
            kl = row.get("kl_sampler_to_policy", math.nan)
            said = f"step {row['step']}: KL(sampler || policy) {kl:.2g} per token, below .01"
            report(kl < 0.01, f"{said}; {row['tokens_per_second']:.0f} tokens/s")
    graded = subprocess.run(aime(home, options.model), capture_output=True, text=True)
    print(graded.stdout, end="")
    report(graded.returncode == 0, "AIME 2024, two samples a problem")


def smoke(options: argparse.Namespace, home: Path, report: Report) -> None:
    file = written(home, settings(options.device, options.gpus, options.model))
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
    saved = until(
        lambda: runs(home) and runs(home)[0].checkpoint(1).exists(), seconds=LIMIT, child=child
    )
    if not report(saved, "a first step, and its checkpoint"):
        child.wait()
        failed = [run.read_failed() for run in runs(home)]
        print(json.dumps(failed, indent=1), f"logs: {home}", file=sys.stderr)
        return
    (run,) = runs(home)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    report(
        until(lambda: not left(run), seconds=LIMIT), "killed (SIGKILL): every process of it ended"
    )

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
    report(until(lambda: not left(run), seconds=LIMIT), "nothing is left running")
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
    parser.add_argument("--dry-run", action="store_true", help="only what would be run")
    parser.add_argument("--keep", action="store_true", help="leave the data folder")
    options = parser.parse_args()
    report, watch = Report(), Watch()
    with ExitStack() as stack:
        if options.keep:
            home = Path(tempfile.mkdtemp(prefix="gpu-smoke-"))
        else:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-smoke-")))
        if options.dry_run:
            dry_run(options, home, report)
        else:
            watch.start()
            smoke(options, home, report)
            if options.device == "cuda":
                with_vllm(options, home, report)
            watch.over.set()
        if options.keep:
            print(f"data folder: {home}")
    if watch.most:
        print(f"most memory of a GPU: {watch.most / 1024:.1f} GiB")
    print("all of it held" if not report.failed else f"{report.failed} of it did not hold")
    return int(report.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
