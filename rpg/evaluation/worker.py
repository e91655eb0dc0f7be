"""One process that evaluates the checkpoints of all runs of a sweep as they appear."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rpg.backends.local.checkpoint import damaged, model_digest
from rpg.backends.local.model import bfloat16
from rpg.backends.local.run import configure_torch, spec_of
from rpg.config.spec import RunSpec
from rpg.data import data_digest, prepare_data
from rpg.evaluation.evaluate import evaluate_checkpoint
from rpg.evaluation.owed import owed
from rpg.rewards import verifier_of
from rpg.store.files import StoreError, atomic_path, atomic_write_json
from rpg.store.layout import Layout
from rpg.store.run import RunFolder, step_name

POLL_SECONDS = 0.5


@dataclass
class Evaluator:
    """Does what the runs of a sweep owe; equal checkpoints under equal settings are evaluated once and copied."""

    layout: Layout
    sweep: str
    say: Callable[[str], None] = print
    _specs: dict[str, RunSpec] = field(default_factory=dict)
    _done: dict[str, Path] = field(default_factory=dict)
    _given_up: set[tuple[str, str, int]] = field(default_factory=set)

    def pass_over(self) -> int:
        """Evaluate everything that can be evaluated now; returns how many (run, benchmark, step) were done."""
        count = 0
        for folder in self.layout.run_folders(self.sweep):
            if not folder.manifest_path.exists():
                continue
            there = set(folder.checkpoint_steps())
            for benchmark, step in owed(folder):
                key = (folder.name, benchmark, step)
                if step in there and key not in self._given_up:
                    count += self._evaluate(folder, benchmark, step)
        return count

    def _evaluate(self, folder: RunFolder, benchmark: str, step: int) -> bool:
        """True when the samples are there; a failure is reported beside them and not tried again by this process."""
        began = time.perf_counter()
        try:
            target = folder.eval_path(benchmark, step)
            copied = self._fill(folder, benchmark, step, target)
            (target.parent / f"{step_name(step)}.error.json").unlink(missing_ok=True)
        except Exception as error:
            if not folder.checkpoint(step).exists():
                return False  # removed meanwhile, to be made again
            self._given_up.add((folder.name, benchmark, step))
            line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
            line = f"{folder.checkpoint(step)} cannot be evaluated on {benchmark}: {line or type(error).__name__}"
            self.say(f"warning: {line}")
            record = {"error": line, "kind": type(error).__name__, "time": time.time()}
            atomic_write_json(target.parent / f"{step_name(step)}.error.json", record)
            return False
        how = "copied" if copied else f"{time.perf_counter() - began:.2f} s"
        self.say(f"{folder.name}: step {step} on {benchmark}, {how}")
        return True

    def _fill(self, folder: RunFolder, benchmark: str, step: int, target: Path) -> bool:
        """Write the samples; True when they were copied from an equal evaluation."""
        checkpoint = folder.checkpoint(step)
        spec = self._spec(folder)
        damage = damaged(checkpoint)
        if damage:
            raise StoreError(f"{damage}; run the sweep again to make it anew")
        evaluation, rollout = spec.evaluation, spec.rollout
        settings = {
            "samples_per_problem": evaluation.samples_per_problem,
            "temperature": evaluation.temperature,
            "seed": spec.seed,
            "max_prompt_tokens": rollout.max_prompt_tokens,
            "max_response_tokens": rollout.max_response_tokens,
            "device": spec.backend.device,
            "bfloat16": bfloat16(spec.model),
        }
        same = json.dumps([model_digest(checkpoint), data_digest(spec), benchmark, settings], sort_keys=True)
        earlier = self._done.get(same)
        if earlier is not None and earlier.exists():
            with atomic_path(target) as temporary:
                shutil.copyfile(earlier, temporary)
            return True
        parquet = prepare_data(spec, self.layout.home).benchmarks[benchmark]
        rows = evaluate_checkpoint(checkpoint, parquet, verifier=verifier_of(spec.task), **settings)
        self._done[same] = folder.write_eval(benchmark, step, rows)
        return False

    def _spec(self, folder: RunFolder) -> RunSpec:
        if folder.name not in self._specs:
            self._specs[folder.name] = spec_of(folder)
            configure_torch(self._specs[folder.name])
        return self._specs[folder.name]

    def until(self, over: Callable[[], bool]) -> None:
        """Evaluate checkpoints as they appear until `over()`, then what is still there."""
        while not over():
            if not self.pass_over():
                time.sleep(POLL_SECONDS)
        while self.pass_over():
            pass


def stdin_closed() -> bool:
    """Whether the other end of standard input was closed; what it may send is thrown away."""
    import select

    while select.select([0], [], [], 0)[0]:
        if not os.read(0, 4096):
            return True
    return False
