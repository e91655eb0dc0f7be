"""One run on verl from its folder to its end: find out what is missing, start or find the job, follow it.

<run>/verl/attempt.json          the attempt under way: number, files, and the Ray job's id
           log-<attempt>.txt     what verl printed
           metrics-<attempt>.jsonl   verl's own metrics
           global_step_<n>/      a checkpoint that verl has not finished, or that is about to be published
"""

from __future__ import annotations

import hashlib
import importlib.util
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rpg.backends.manifest import spec_of
from rpg.backends.training_process import Say, TrainingFailed
from rpg.backends.verl import jobs
from rpg.backends.verl.checkpoints import VerlCheckpoints
from rpg.backends.verl.driver_state import State
from rpg.backends.verl.failure_reason import reason, tail
from rpg.backends.verl.initial_model import initial_model
from rpg.backends.verl.metrics_stream import Stream
from rpg.backends.verl.overrides import plan
from rpg.backends.verl.paths import STATE, Paths
from rpg.backends.verl.readiness import require
from rpg.config.backend import RayAddress, RayJob
from rpg.config.errors import ConfigError
from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.config.verl_keys import unknown
from rpg.store import run_provenance
from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.run_folder import RunFolder, pending_evaluations
from rpg.store.step_progress import TRAINING, clear_progress, moving, progress_line, read_progress
from rpg.tasks.preparation import PreparedData, prepare_data

POLL_SECONDS = 0.5
COMPUTES = (
    "rpg.answers", "rpg.backends", "rpg.catalogue", "rpg.config", "rpg.losses", "rpg.models", "rpg.rewards", "rpg.tasks",
)  # fmt: skip
"""Our code in verl's processes. This process does not import it; so all of it counts as what a training imports."""


@dataclass(frozen=True)
class Attempt:
    """One try at a run. `job` is the id of its Ray job, where it is one."""

    number: int
    metrics: str
    log: str
    job: str | None = None


class Launcher:
    """Trains one run; `stop()` may be called at any moment, also from a signal's handler."""

    def __init__(self) -> None:
        self._job: jobs.Job | None = None
        self._mark: str | None = None

    def stop(self) -> None:
        """End every process of the run, on this machine and on the cluster."""
        if self._job is not None:
            self._job.stop()
        if self._mark is not None:
            jobs.end_marked(self._mark)

    def train(self, folder: RunFolder, home: Path, say: Say) -> None:
        """Train a run to its last step, from its newest checkpoint where there is one.

        Raises:
            UserError: configuration, data, model or cluster that cannot be used, or a training that failed; one line.
        """
        spec = spec_of(folder)
        require_verl(spec, say)
        data = prepare_data(spec, home)
        self._mark = str(folder.path)
        run = _Run(folder, spec, say)
        attempt = run.earlier()
        job = _still_going(spec, attempt)
        if job is None:
            jobs.end_marked(self._mark)
            resume = run.collect_and_choose(attempt)
            if resume.step >= spec.training.steps:
                say(f"trained: all {spec.training.steps} steps")
                return
            require_readable(spec, resume.step, resume.path)
            model = initial_model(spec, home, say)
            if resume.path is None:
                run.checkpoints.begin_with(model)
            attempt = run.next_attempt(attempt)
            job = self._start(run, data, model, attempt, resume.path)
            say(_began(resume.step, spec.training.steps, attempt.log))
        else:
            say(f"following Ray job {attempt.job}, which is still going; verl's output: {attempt.log}")
        self._job = job
        try:
            run.follow(job, attempt)
        finally:
            self.stop()
            clear_progress(folder.path / TRAINING)

    def _start(
        self, run: _Run, data: PreparedData, model: Path, attempt: Attempt, resume: Path | None
    ) -> jobs.Job:
        spec, folder, log = run.spec, run.folder, Path(attempt.log)
        paths = Paths.of(folder.path, data, model, attempt.number, resume)
        launch = plan(spec, paths, project=folder.sweep, experiment=folder.name)
        if isinstance(spec.backend.ray, RayJob):
            job = jobs.ClusterJob(spec.backend.ray, attempt.job or "")
            self._job = job  # a signal from here on stops it
            job.submit(launch, log)
            return job
        if isinstance(spec.backend.ray, RayAddress):
            jobs.reachable(spec.backend.ray)
        return jobs.ProcessJob(launch, log, str(folder.path))


@dataclass(frozen=True)
class _Resume:
    step: int
    path: Path | None


class _Run:
    """What lies in a run's folder, and how it grows."""

    def __init__(self, folder: RunFolder, spec: RunSpec, say: Say):
        self.folder, self.spec, self.say = folder, spec, say
        self.state = folder.path / STATE
        self.checkpoints = VerlCheckpoints(
            folder, spec.eval_steps(), self.state, spec.training.keep_checkpoints, bfloat16(spec.model)
        )

    def earlier(self) -> Attempt | None:
        """The attempt that was under way when the launcher was last here."""
        try:
            return Attempt(**read_json_object(self.state / "attempt.json"))
        except (StoreError, TypeError):
            return None

    def next_attempt(self, earlier: Attempt | None) -> Attempt:
        """A new attempt, written down before anything of it starts."""
        number = max(self.folder.next_attempt(), earlier.number + 1 if earlier else 1)
        job = None
        if isinstance(self.spec.backend.ray, RayJob):
            place = hashlib.sha256(str(self.folder.path).encode()).hexdigest()[:8]
            job = f"rpg-{self.folder.read_manifest()['run_id']}-{place}-{number}"
        files = (str(self.state / name) for name in (f"metrics-{number}.jsonl", f"log-{number}.txt"))
        attempt = Attempt(number, *files, job)
        run_provenance.write(self.folder, number, COMPUTES)
        atomic_write_json(self.state / "attempt.json", asdict(attempt))
        return attempt

    def collect_and_choose(self, earlier: Attempt | None) -> _Resume:
        """Take in what an earlier attempt left, and find the step to go on from."""
        self.checkpoints.rescue()
        if earlier is not None:
            self._collect(Stream(self.folder, earlier.number, Path(earlier.metrics)))
        found = self.checkpoints.resumable({step for _, step in pending_evaluations(self.folder)}, self.say)
        step = int(found.name.rpartition("-")[2]) if found else 0
        return _Resume(step, self.checkpoints.resume_path(found))

    def follow(self, job: jobs.Job, attempt: Attempt) -> None:
        """Carry over metrics and checkpoints until the job ends.

        Raises:
            TrainingFailed: it ended without having trained every step, or showed no progress for too long.
        """
        stream = Stream(self.folder, attempt.number, Path(attempt.metrics))
        log, steps = Path(attempt.log), self.spec.training.steps
        limit = self.spec.backend.hang_minutes * 60
        moved, where, at = time.monotonic(), self.folder.path / TRAINING, None
        while True:
            ended = job.poll()  # first: what was written before the end is then seen below
            before, at = at, moving(where)
            if (
                self._collect(stream) or at != before
            ):  # a step, a phase of it, or a prompt that got its responses
                moved = time.monotonic()
            if ended is not None:
                break
            if time.monotonic() - moved > limit:
                job.stop()
                minutes, last = f"{self.spec.backend.hang_minutes:g}", read_progress(where, any_age=True)
                during = f" in {progress_line(last)}" if last else ""
                raise TrainingFailed(
                    f"no progress for {minutes} minutes (backend.hang_minutes){during}: {reason('', tail(log))}",
                    log, tail(log),
                )  # fmt: skip
            time.sleep(POLL_SECONDS)
        if ended or steps not in self.folder.checkpoint_steps():
            why = ended or f"verl ended before step {steps} was saved"
            raise TrainingFailed(reason(why, tail(log)), log, tail(log))
        self.say(f"trained: {steps} of {steps} steps")

    def _collect(self, stream: Stream) -> bool:
        """Metrics first, and checkpoints that were whole before that: a checkpoint implies its steps' metrics."""
        whole = self.checkpoints.whole()
        records = stream.pump()
        for record in records:
            self.say(_line(record, self.spec.training.steps))
        for step, source in whole:
            self.checkpoints.adopt(step, source)
        return bool(records or whole)


def require_verl(spec: RunSpec, say: Say = lambda line: None) -> None:
    """Raises: ConfigError: something this back end needs of this machine is not here (rpg.backends.verl.readiness)."""
    backend = spec.backend
    needs = ["ray"] if isinstance(backend.ray, RayJob) else ["ray", "verl", "transfer_queue"]
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"backend.type: 'verl' needs {missing[0]}, which is not installed; "
            "install it with: pip install 'rpg-lab[verl]', or choose: 'local'"
        )
    if wrong := unknown(backend.verl):
        raise ConfigError("\n".join(wrong))
    if isinstance(backend.ray, RayJob):
        return  # its driver looks around where it runs
    require(backend, say)


def require_readable(spec: RunSpec, step: int, resume: Path | None) -> None:
    """Raises: ConfigError: the checkpoint to go on from was written by FSDP1 on another number of workers."""
    if resume is None or spec.backend.strategy == "fsdp2":
        return
    workers, then = spec.backend.nodes * spec.backend.gpus_per_node, State.read(resume).world_size
    if workers != then:
        raise ConfigError(
            f"backend.nodes x gpus_per_node = {workers}, but the checkpoint of step {step} that this run goes on from was "
            f"written by {then} workers, and with strategy fsdp verl reads it with as many only: choose {then} again, or "
            "begin another run (another seed, or rpg rm SWEEP/RUN); with strategy fsdp2 any number goes on"
        )


def _still_going(spec: RunSpec, attempt: Attempt | None) -> jobs.ClusterJob | None:
    """The Ray job of an earlier launcher, where it is still going."""
    if attempt is None or attempt.job is None or not isinstance(spec.backend.ray, RayJob):
        return None
    job = jobs.ClusterJob(spec.backend.ray, attempt.job)
    return job if job.status() in ("PENDING", "RUNNING") else None


def _began(done: int, steps: int, log: str) -> str:
    how = f"going on after step {done} of {steps}" if done else f"starting verl for {steps} steps"
    return f"{how}; verl's output: {log}"


def _line(record: dict, steps: int) -> str:
    parts = [f"{time.strftime('%H:%M:%S')} step {record['step']}/{steps}"]
    for name, form in (("reward", "+.3f"), ("accuracy", ".3f"), ("entropy", ".3f"), ("grad_norm", ".2f"),
                       ("seconds_step", ".2f"), ("validation_accuracy", ".3f")):  # fmt: skip
        if name in record:
            parts.append(f"{name} {record[name]:{form}}")
    return "  ".join(parts)
