"""Whether commands work in the surroundings that companies, containers and services start them in.

    python -m benchmarks.surroundings FOLDER [--only NAME ...]

In each of the surroundings, a home of its own below FOLDER sees a sweep of two steps and every
command that reads it; an exit code other than that in plain surroundings, or a traceback in the
output or in a log, is a fault. Takes about a minute for each.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SWEEP = """\
name: odd
description: Two variants of two steps.
run:
  task: {type: chain, tiers: {easy: 2, medium: 3}, train_problems: 200, benchmark_problems: 8}
  model:
    type: tiny
    warm_start: {target_accuracy: 0.02, consolidation_steps: 0, behaviour_steps: 5}
  training: {steps: 2, prompts_per_step: 4, mini_batch_prompts: 4}
  rollout: {group_size: 2}
  evaluation: {every: 2, samples_per_problem: 1}
axes:
  algorithm: [grpo, rpg-urkl]
  seed: [0]
baseline: grpo
"""
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.01\n"
)
COMMANDS = (
    "list",
    "show sweep.yaml",
    "doctor sweep.yaml",
    "data sweep.yaml",
    "sweep sweep.yaml",
    "status",
    "report odd",
    "sql 'select variant, seed from runs'",
    "audit grpo",
    "audit --config run.sh",
    "adopt rows.jsonl --into lab --no-samples",
    "compare old.csv new.csv --out compared",
    "compare old.csv lost.csv",
)
PROXIES = {
    name: value
    for upper, value in (
        ("HTTP_PROXY", "http://127.0.0.1:9"),
        ("HTTPS_PROXY", "http://127.0.0.1:9"),
        ("ALL_PROXY", "socks5h://127.0.0.1:9"),
    )
    for name in (upper, upper.lower())
}
ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
LIMIT = 600
"""Seconds after which a command counts as one that waits for ever."""


@dataclass(frozen=True)
class Surroundings:
    """What a command is started with: variables, those that are taken away, flags of Python, and
    streams as a shell writes them."""

    variables: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    flags: str = ""
    streams: str = ""


ALL = {
    "plain": Surroundings(),
    "proxies": Surroundings(PROXIES),
    "LC_ALL=C": Surroundings({"LC_ALL": "C", **ASCII}),
    "LC_ALL=POSIX": Surroundings({"LC_ALL": "POSIX", **ASCII}),
    "-OO": Surroundings(flags="-OO"),
    "PYTHONOPTIMIZE=2": Surroundings({"PYTHONOPTIMIZE": "2"}),
    "no stdin": Surroundings(streams="<&-"),
    "no stdout": Surroundings(streams=">&-"),
    "no stderr": Surroundings(streams="2>&-"),
    "no streams": Surroundings(streams="<&- >&- 2>&-"),
    "no HOME": Surroundings(without=("HOME", "XDG_CACHE_HOME")),
    "together": Surroundings(
        {"LC_ALL": "C", **ASCII, **PROXIES, "PYTHONOPTIMIZE": "2"},
        without=("HOME", "XDG_CACHE_HOME"),
        streams="<&- 2>&-",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `code` is None where it did not."""

    code: int | None
    traceback: bool


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "sweep.yaml").write_text(SWEEP)
    (folder / "run.sh").write_text(VERL)
    rows = [{"prompt": f"{n} + 4 = π?", "answer": str(n + 4)} for n in range(30)]
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text("".join(lines), "utf-8")
    for name, period in (("old", 3), ("new", 2)):
        scores = [f"{n} + 4 = π?,{int(n % period == 0)}\n" for n in range(30)]
        (folder / f"{name}.csv").write_text("problem,score\n" + "".join(scores), "utf-8")


def run(folder: Path, words: str, around: Surroundings) -> Outcome:
    inherited = {name: value for name, value in os.environ.items() if name not in around.without}
    environment = {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "RPG_HOME": str(folder / "data"),
        **around.variables,
    }
    python = f"{shlex.quote(sys.executable)} {around.flags} -m rpg"
    try:
        done = subprocess.run(
            ["sh", "-c", f"{python} {words} {around.streams}"],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, False)
    return Outcome(done.returncode, b"Traceback" in done.stdout + done.stderr)


def logs_with_a_traceback(folder: Path) -> list[Path]:
    logs = [*folder.rglob("*.log"), *folder.rglob("log.txt")]
    return [log for log in logs if b"Traceback" in log.read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(ALL))
    arguments = parser.parse_args()
    names = list(dict.fromkeys(["plain", *arguments.only]))
    plain: dict[str, int | None] = {}
    faults = 0
    for name in names:
        folder = arguments.folder.resolve() / name.replace(" ", "-").replace("=", "-")
        prepare(folder)
        for words in COMMANDS:
            outcome = run(folder, words, ALL[name])
            expected = plain.setdefault(words, outcome.code)
            bad = outcome.traceback or outcome.code != expected or outcome.code is None
            faults += bad
            mark = "FAULT" if bad else "ok"
            said = ", a traceback" if outcome.traceback else ""
            print(f"{mark:6}{name}: rpg {words}: exit code {outcome.code}{said}", flush=True)
        for log in logs_with_a_traceback(folder):
            faults += 1
            print(f"FAULT {name}: a traceback in {log.relative_to(folder)}", flush=True)
    print(f"{len(names) * len(COMMANDS)} commands in {len(names)} surroundings, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
