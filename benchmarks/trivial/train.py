"""python -m benchmarks.trivial.train RUN_DIR: like rpg.backends.local, but a step is a line of
made-up numbers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import zlib
from pathlib import Path

from benchmarks.trivial import HOLD, SECONDS
from rpg.store import RunFolder, locks, run_provenance
from rpg.store.checkpoints import digests
from rpg.store.run_writer import append_metrics, claim_run, release_run
from rpg.system.processes import die_with_parent


def main(folder: RunFolder) -> int:
    die_with_parent()
    lock = locks.take(folder.path / ".lock")
    if lock is None:
        return 75
    claim_run(folder)
    manifest = folder.read_manifest()
    seconds = float(os.environ.get(SECONDS, "0"))
    attempt, done = folder.next_attempt(), folder.checkpoint_steps()
    eval_steps = set(manifest["eval_steps"])
    if not done:
        _checkpoint(folder, 0)
    run_provenance.write(folder, attempt)
    for step in range((done[-1] if done else 0) + 1, manifest["steps"] + 1):
        time.sleep(seconds)
        reward = zlib.crc32(f"{manifest['run_id']} {step}".encode()) / 2**32
        append_metrics(
            folder,
            attempt,
            {"step": step, "optimizer_step": step, "reward": reward, "grad_norm": 1.0},
        )
        _checkpoint(folder, step)
        newest = folder.checkpoint_steps()[-2:]
        for old in folder.checkpoint_steps():
            if old not in eval_steps and old not in newest:
                shutil.rmtree(folder.checkpoint(old))
        if str(step) == os.environ.get(HOLD):
            signal.pause()
    release_run(folder)
    return 0


def _checkpoint(folder: RunFolder, step: int) -> None:
    final = folder.checkpoint(step)
    aside = final.with_name(f".{final.name}.tmp")
    aside.mkdir(parents=True, exist_ok=True)
    (aside / "model.safetensors").write_text(str(step))
    (aside / "checkpoint.json").write_text(json.dumps({"files": digests(aside)}))
    aside.rename(final)


if __name__ == "__main__":
    sys.exit(main(RunFolder(Path(sys.argv[1]))))
