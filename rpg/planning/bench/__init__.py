"""What a step of the embedded trainer costs here: beside what the machine could do, and beside
other trainers.

Each side runs in a process of its own, which reads its settings as JSON from standard input and
ends with a line of JSON. All times are processor seconds, which say something on a busy machine,
too.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError
from rpg.store.atomic_files import atomic_write_json
from rpg.system import provenance

TRL = Path(__file__).with_name("trl_step.py")
FOLDER = "bench"
"""In the data folder: a file for each measurement."""


class BenchError(UserError):
    """A side that cannot be measured."""


def run(command: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a measuring process answers. Raises BenchError: it failed; the last line that it
    said."""
    try:
        child = subprocess.run(command, input=json.dumps(settings), capture_output=True, text=True)
    except OSError as error:
        raise BenchError(
            f"{command[0]}: cannot be started ({error.strerror}); expected a Python"
        ) from error
    lines = child.stdout.splitlines()
    if child.returncode or not lines:
        errors = [line for line in child.stderr.splitlines() if line.strip()] or ["no output"]
        raise BenchError(f"{' '.join(command)}: {errors[-1]}")
    return dict(json.loads(lines[-1]))


def bench(
    spec: RunSpec,
    home: Path,
    *,
    steps: int,
    peer: str | None,
    rows: Sequence[int],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure `steps` steps of a run, and the same by TRL's GRPOTrainer in the Python `peer`; kept
    in the data folder.

    `rows` are the sizes of TRL's passes to try. By default they grow from one row as long as its
    peak memory is within 5 % of ours, or, where it never is, of its own with one row; the fastest
    of these counts. Raises BenchError: a side cannot be measured.
    """
    with tempfile.TemporaryDirectory() as scratch:
        raw_spec = spec.model_dump(mode="json")
        settings = {"spec": raw_spec, "home": str(home), "scratch": scratch, "steps": steps}
        say("this machine and the embedded trainer")
        ours = run([sys.executable, "-m", "rpg.planning.bench.our_step"], settings)
        work = {name: ours.pop(name) for name in ("model", "prompts")}
        tried = (
            [] if peer is None else list(trials(spec, work, ours["peak"], peer, rows, steps, say))
        )
    best = min(tried, key=lambda trial: float(trial["step"]), default=None)
    sizes = (
        spec.training.prompts_per_step,
        spec.rollout.group_size,
        spec.rollout.max_response_tokens,
    )
    record = {
        "time": time.time(),
        "model_name": spec.model.path if spec.model.type == "pretrained" else "tiny",
        "shape": " x ".join(map(str, sizes)),
        "threads": spec.backend.threads,
        "steps": steps,
        "versions": provenance.versions(),
        "revision": provenance.git_revision(),
        "processor": provenance.machine()["processor"],
        "peer": best,
        "trials": tried,
        **ours,
    }
    (home / FOLDER).mkdir(parents=True, exist_ok=True)
    atomic_write_json(home / FOLDER / f"{time.time_ns()}.json", record)
    return record


def trials(
    spec: RunSpec,
    work: dict[str, Any],
    room: float,
    python: str,
    sizes: Sequence[int],
    steps: int,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """TRL with the model and the prompts of `work`, with passes of `sizes`, or of those that fit
    into `room` GiB."""
    clip = spec.algorithm.clip
    training = spec.training
    rollout = spec.rollout
    if clip is None:
        raise BenchError("algorithm.clip: TRL's loss has one; leave it as it is")
    optimizer = training.optimizer
    batch = training.mini_batch_prompts * rollout.group_size
    updates = training.prompts_per_step // training.mini_batch_prompts
    tokens = rollout.max_response_tokens
    bad = [size for size in sizes if size < 1 or batch % size]
    if bad:
        raise BenchError(
            f"--rows {bad[0]}: expected a divisor of the {batch} responses of an update"
        )
    settings = work | {
        "steps": steps,
        "batch": batch,
        "updates": updates,
        "threads": spec.backend.threads,
        "bfloat16": bfloat16(spec.model),
    }
    settings["config"] = {
        "num_generations": rollout.group_size,
        "max_completion_length": tokens,
        "generation_kwargs": {"min_new_tokens": tokens},
        "temperature": rollout.temperature,
        "loss_type": "dapo",
        "beta": 0.0,
        "num_iterations": training.epochs,
        "epsilon": clip.low,
        "epsilon_high": clip.high,
        "learning_rate": optimizer.learning_rate,
        "lr_scheduler_type": "constant",
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "weight_decay": optimizer.weight_decay,
        "max_grad_norm": training.max_grad_norm,
    }
    for size in sizes or [2**power for power in range(batch.bit_length()) if batch % 2**power == 0]:
        say(f"TRL with {size} rows per pass")
        trial = run([python, str(TRL)], settings | {"rows": size})
        room = max(room, trial["peak"] if size == 1 else 0.0)
        if not sizes and trial["peak"] > 1.05 * room:
            return
        yield trial
