"""The process that evaluates the checkpoints of all runs of a sweep as they appear."""

import contextlib
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rpg.config.evaluation import ThisMachine
from rpg.config.load import spec_of
from rpg.config.run_spec import RunSpec
from rpg.config.task import EnvironmentTask, chat_of
from rpg.errors import UserError
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import Engine, EngineError
from rpg.evaluation.engines.ray import RayEngine
from rpg.evaluation.graded_samples import Progress, evaluate_problems, requests
from rpg.evaluation.kl_to_initial import DriftMeter
from rpg.evaluation.resource_limits import explained, strictest
from rpg.models.conversations import Conversations
from rpg.models.device import configure_device
from rpg.models.reward_models import scorer_of
from rpg.store.atomic_files import StoreError, atomic_write_json
from rpg.store.checkpoints import damaged, file_states, model_digest
from rpg.store.current import current_runs
from rpg.store.layout import Layout
from rpg.store.live_status import EVALUATION, WRITE_SECONDS, clear_progress, write_progress
from rpg.store.run_folder import RunFolder, pending_evaluations, step_name
from rpg.store.samples import drift_path, read_samples, write_eval
from rpg.tasks import verifier_of
from rpg.tasks.preparation import prepare_data, read_problems
from rpg.tasks.rewards.graders import rules_name
from rpg.tasks.rewards.scoring import Scorer

POLL_SECONDS = 0.5
SAY_SECONDS = 15.0
"""How often a long evaluation reports its progress."""


@dataclass
class Evaluator:
    """Runs the pending evaluations of a sweep; equal checkpoints with equal settings are sampled
    once."""

    layout: Layout
    sweep: str
    say: Callable[[str], None] = print
    limits: ThisMachine | None = None
    """The limits of this process (rpg.evaluation.resource_limits)."""
    share: tuple[int, int] = (1, 1)
    """(i, n): this process does the i-th of n parts of the work; processes on other GPUs do the
    rest."""
    _specs: dict[str, RunSpec] = field(default_factory=dict)
    _engines: dict[str, Engine] = field(default_factory=dict)
    _loaded: dict[str, str] = field(default_factory=dict)
    _scorers: dict[str, Scorer] = field(default_factory=dict)
    _environments: dict[str, Conversations] = field(default_factory=dict)
    _given_up: set[tuple[str, str, int]] = field(default_factory=set)
    _whole: dict[Path, list[tuple[str, int, int]]] = field(default_factory=dict)
    """Checkpoints that were found undamaged, with the states of their files at that time."""

    def __post_init__(self) -> None:
        self._drift = DriftMeter(self.layout.home, self.say)

    def pass_over(self) -> int:
        """Run all evaluations that are possible now; returns the number of (run, benchmark, step)
        that were done."""
        count = 0
        for folder in current_runs(self.layout, self.sweep):
            if not folder.manifest_path.exists():
                continue
            available = set(folder.checkpoint_steps())
            for benchmark, step in pending_evaluations(folder):
                key = (folder.name, benchmark, step)
                if step in available and key not in self._given_up and self._is_ours(key):
                    count += self._evaluate(folder, benchmark, step)
        return count

    def _is_ours(self, key: tuple[str, str, int]) -> bool:
        """Decided by name, so that processes need not communicate; step 0, which runs share, goes
        to one of them."""
        part, parts = self.share
        run, benchmark, step = key
        return zlib.crc32(f"{run if step else ''} {benchmark} {step}".encode()) % parts == part - 1

    def _evaluate(self, folder: RunFolder, benchmark: str, step: int) -> bool:
        """True if the samples were written; a failure is reported beside them and not retried by
        this process."""
        began = time.perf_counter()
        try:
            target = folder.eval_path(benchmark, step)
            stored = self._fill(folder, benchmark, step, target)
            (target.parent / f"{step_name(step)}.error.json").unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 (one that cannot be evaluated must not stop the others)
            if not folder.checkpoint(step).exists():
                return False  # it was removed, to be made again
            self._given_up.add((folder.name, benchmark, step))
            if isinstance(error, EngineError):  # the next evaluation starts a new one
                self._close(object)
            line = (
                f"{folder.checkpoint(step)} cannot be evaluated on {benchmark}: "
                f"{explained(error, self.limits)}"
            )
            self.say(f"warning: {line}")
            record = {"error": line, "kind": type(error).__name__, "time": time.time()}
            atomic_write_json(target.parent / f"{step_name(step)}.error.json", record)
            return False
        how = "from stored samples" if stored else f"{time.perf_counter() - began:.2f} s"
        self.say(f"{folder.name}: step {step} on {benchmark}, {how}")
        return True

    def _fill(self, folder: RunFolder, benchmark: str, step: int, target: Path) -> bool:
        """Draw what is missing, grade it, and write the samples; True if they were all stored
        already."""
        checkpoint = folder.checkpoint(step)
        spec = self._spec(folder)
        self._require_whole(checkpoint)
        draws = Drawing.of(spec).draws(self.layout.home, checkpoint)
        used = list[Engine]()  # empty if nothing was to be drawn
        fewer = folder.fewer_path(benchmark, step)
        problems = read_problems(prepare_data(spec, self.layout.home).benchmarks[benchmark])

        def engine() -> Engine:
            used.append(self._engine(spec, checkpoint, model_digest(checkpoint)))
            if isinstance(used[-1], LocalEngine):
                used[-1].conversations = self._conversations(folder, spec)
            return used[-1]

        rows = evaluate_problems(
            engine,
            problems,
            samples_per_problem=spec.evaluation.samples,
            seed=spec.seed,
            scorer=self._scorer(folder, spec),
            draws=draws,
            graded_rows=read_samples(fewer).to_pylist() if fewer.exists() else (),
            progress=self._report_progress(folder, step, benchmark),
        )
        asked = requests(problems, spec.evaluation.samples, spec.seed, draws)
        drift = self._drift.measure(spec, draws, asked, engine)
        if drift:  # written before the samples, which say that all is done
            atomic_write_json(drift_path(target), drift)
        clear_progress(folder.path / EVALUATION)
        write_eval(folder, benchmark, step, rows, rules_name(verifier_of(spec.task)), draws.about)
        for done in (fewer, target.with_suffix(".partial.jsonl")):  # the latter of an older version
            done.unlink(missing_ok=True)
        return not used

    def _require_whole(self, checkpoint: Path) -> None:
        """Compare the files of a checkpoint with its record, once for all benchmarks. Raises
        StoreError: it is damaged."""
        states = file_states(checkpoint)
        if self._whole.get(checkpoint) == states:
            return
        damage = damaged(checkpoint)
        if damage:
            raise StoreError(f"{damage}; run the sweep again to rebuild it")
        self._whole[checkpoint] = states

    def _engine(self, spec: RunSpec, checkpoint: Path, weights: str) -> Engine:
        """The engine for these settings with this checkpoint loaded; engines are started once per
        settings."""
        drawing = Drawing.of(spec)
        key = repr(drawing._replace(seed=0))
        if key not in self._engines:
            self._engines[key] = drawing.start(self.say)
        # the tokenizer's template is the task's
        loaded = f"{weights} {chat_of(spec.task).model_dump_json()}"
        if self._loaded.get(key) != loaded:
            self._loaded.pop(key, None)
            self._engines[key].load(checkpoint)
            self._loaded[key] = loaded
        return self._engines[key]

    def _close(self, kind: type) -> None:
        """Close the engines of this kind; one that is needed again starts anew."""
        for key in [key for key, engine in self._engines.items() if isinstance(engine, kind)]:
            self._loaded.pop(key, None)
            with contextlib.suppress(Exception):  # the engine may be what failed
                self._engines.pop(key).close()

    def _scorer(self, folder: RunFolder, spec: RunSpec) -> Scorer:
        """The scorer of a run; runs with the same verifier, reward and prefix of responses share
        one."""
        limit = spec.rollout.max_response_tokens
        begins = chat_of(spec.task).prefix, getattr(spec.task, "reply", "")
        key = repr((verifier_of(spec.task), spec.reward, limit, begins))
        if key not in self._scorers:
            self._scorers[key] = scorer_of(spec, folder.read_manifest().get("rewards") or {})
        return self._scorers[key]

    def _conversations(self, folder: RunFolder, spec: RunSpec) -> Conversations | None:
        """The environments of a run, if its task has any; runs with the same task share them."""
        if not isinstance(spec.task, EnvironmentTask):
            return None
        key = repr(spec.task)
        if key not in self._environments:
            kept = folder.read_manifest().get("rewards") or {}
            self._environments[key] = Conversations(spec.task, kept)
        return self._environments[key]

    def _report_progress(
        self, folder: RunFolder, step: int, benchmark: str
    ) -> Callable[[Progress], None]:
        """Write progress to the run's folder when samples are finished, and to the log from time to
        time."""
        last = time.monotonic()
        written = float("-inf")

        def say(progress: Progress) -> None:
            nonlocal last, written
            if time.monotonic() - written > WRITE_SECONDS:
                written = time.monotonic()
                record = {
                    "step": step,
                    "phase": f"evaluation on {benchmark}",
                    "done": progress.done,
                    "of": progress.total,
                    "what": "samples",
                    "tokens": progress.tokens,
                    "tokens_per_second": progress.tokens_per_second,
                    "seconds": progress.seconds,
                    "left": progress.seconds_left,
                }
                if progress.length:
                    record["note"] = f"at token {progress.length:,} of at most {progress.limit:,}"
                write_progress(folder.path / EVALUATION, record)
            if time.monotonic() - last > SAY_SECONDS:
                last = time.monotonic()
                self.say(f"{folder.name}: step {step} on {benchmark}: {progress}")

        return say

    def _spec(self, folder: RunFolder) -> RunSpec:
        if folder.name not in self._specs:
            spec = self._specs[folder.name] = spec_of(folder)
            if isinstance(spec.evaluation.place, ThisMachine):
                configure_device(spec.backend.device)
        return self._specs[folder.name]

    def until(self, over: Callable[[], bool]) -> None:
        """Evaluate checkpoints as they appear until `over()`, and then all that are left."""
        while not over():
            if not self.pass_over():
                self._close(RayEngine)  # a training may be waiting for its workers' place
                time.sleep(POLL_SECONDS)
        while self.pass_over():
            pass


def limits_of(layout: Layout, sweep: str) -> ThisMachine | None:
    """The limits of a process that evaluates this sweep; None if all evaluations run elsewhere."""
    places = []
    for folder in current_runs(layout, sweep):
        with contextlib.suppress(
            UserError
        ):  # an unreadable manifest is reported when its run's turn comes
            places.append(spec_of(folder).evaluation.place)
    return strictest(places)
