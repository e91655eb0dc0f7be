"""Studies whose trainings are made up: real records, run folders and grades, but nobody learns
anything."""

import json
import math
import os
import random
import signal
import zlib
from dataclasses import replace

import vl_convert
import yaml

from flows.study.steps import STEPS, Running, run_steps
from flows.sweep.conductor import register
from rpg.store import Layout, atomic_files
from rpg.store.run_writer import append_metrics, write_done, write_failed
from rpg.store.samples import read_eval, write_eval
from rpg.study.spec import load_study
from tests.tiny import merged, numbers

RATE = "training.optimizer.learning_rate"
FILE = {
    "name": "made-up",
    "base": "chain",
    "run": {
        "task": {
            "tiers": {"easy": 2, "hard": 3},
            "train_problems": 60,
            "benchmark_problems": 12,
            "tuning_problems": 4,
        },
        "model": {"warm_start": None},
        "training": {"steps": 2},
        "evaluation": {"every": 2},
    },
    "variants": {"one": {"algorithm": "grpo"}, "two": {"algorithm": "rpg-urkl"}},
    "tune": {
        "space": {RATE: {"log": [1e-4, 1e-2]}},
        "trials": 4,
        "batch": 2,
        "searches": 1,
        "seeds": [100, 101],
        "prune": "successive-halving",
    },
    "report": {"seeds": [0, 1, 2], "matters": 0.05},
}


def study_file(folder, **changes):
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(merged(FILE, changes), sort_keys=False))
    return path


def accuracy(spec, run_id):
    """Best at a rate of 1e-3, with noise that follows from the run's identity."""
    distance = math.log10(spec["training"]["optimizer"]["learning_rate"]) + 3
    return 0.8 - 0.4 * distance**2 + 0.1 * (zlib.crc32(run_id.encode()) / 2**32 - 0.5)


def train(folder, fails=lambda manifest: False, worse=lambda spec: False):
    """What a training and its evaluator leave behind; one that is `worse` has 0.5 less."""
    manifest = folder.read_manifest()
    if fails(manifest):
        write_failed(folder, "it diverged")
        return
    right = accuracy(manifest["spec"], manifest["run_id"]) - 0.5 * worse(manifest["spec"])
    step = manifest["steps"]
    append_metrics(
        folder, 1, {"step": step, "optimizer_step": step, "tokens": 100.0 * step, "reward": right}
    )
    # Each run solves others of the problems: a test of differences needs some that move.
    rank = random.Random(manifest["run_id"]).sample(range(40), 40)
    for benchmark in manifest["benchmarks"]:
        rows = [
            {
                "problem_id": f"p{number}",
                "sample": 0,
                "problem": "?",
                "answer": "1",
                "response": "1",
                "extracted": "1",
                "correct": rank[number] < 40 * right,
                "reason": "",
                "tokens": 1,
                "truncated": False,
            }
            for number in range(40)
        ]
        for at in manifest["eval_steps"]:
            write_eval(folder, benchmark, at, rows)
    write_done(folder, seconds=2.0, attempts=1)


def run(home, path, only=STEPS, again=False, order=0, night="", **training):
    """Run a study to its end; its trainings end in an order that `order` decides. `training`: as
    `train`."""
    layout = Layout.at(home)
    lines = []

    def conduct(sweep, wanted):
        assert not sweep.reported, "a report by the flow is a look, even where runs have failed"
        folders = [folder for folder in register(sweep, layout) if folder.name in wanted]
        random.Random(order).shuffle(folders)
        for folder in folders:
            if not folder.done_path.exists():
                train(folder, **training)
        return None

    run_steps(
        only, Running(replace(load_study(path), night=night), layout, conduct, lines.append, again)
    )
    return lines


def killed_after(writes, work):
    """Do `work` in a forked process that is killed (SIGKILL) at its n-th atomic write, before or
    after the file is in place, or after the first of a file of this name. Whether it came to its
    end."""
    child = os.fork()
    if child == 0:
        count = [0]
        replace = atomic_files.Path.replace

        def counted(self, target):
            count[0] += 1
            if count[0] == writes and writes % 2:  # never of a name
                os.kill(os.getpid(), signal.SIGKILL)
            replaced = replace(self, target)
            if writes in (count[0], os.path.basename(target)):
                os.kill(os.getpid(), signal.SIGKILL)
            return replaced

        atomic_files.Path.replace = counted
        # The engine that draws the report has threads, which a fork leaves behind: a drawing would
        # wait for them for ever.
        vl_convert.vegalite_to_svg = lambda *_, **__: ""
        vl_convert.svg_to_png = lambda *_, **__: b""
        code = 9
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL), ended
    return ended == 0


AGES = ("registered_at", "revision", "versions")


def contents(home):
    """All that a study has written, but for times; and the metrics and answers of its runs."""
    layout = Layout.at(home)
    paths = (home / "studies").rglob("*.json")
    files = {str(path.relative_to(home)): json.loads(path.read_text()) for path in paths}
    for record in files.values():
        for name in AGES:
            record.pop(name, None)
    runs = {
        f"{sweep}/{folder.name}": (
            folder.read_manifest()["run_id"],
            numbers(folder),
            answers(folder),
        )
        for sweep in layout.sweeps()
        for folder in layout.run_folders(sweep)
        if folder.done_path.exists()
    }
    return files, runs


def answers(folder):
    return {name: read_eval(folder, name, 2).to_pylist() for name in folder.benchmarks()}
