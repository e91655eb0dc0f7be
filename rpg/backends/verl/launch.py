"""One run on verl from its folder to its last step: find out what is missing, start or find the job, follow it.

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
from typing import Any

from rpg.backends.manifest import spec_of
from rpg.backends.training_process import Say, TrainingFailed, TrainingLost
from rpg.backends.verl import jobs
from rpg.backends.verl.checkpoints import State, VerlCheckpoints, finished
from rpg.backends.verl.job_output import Stream, reason, tail
from rpg.backends.verl.overrides import STATE, Paths, plan
from rpg.backends.verl.readiness import require
from rpg.config.backend import LocalRay, RayAddress, RayJob, VerlBackend
from rpg.config.errors import ConfigError
from rpg.config.model import PretrainedModel, bfloat16
from rpg.config.run_spec import RunSpec
from rpg.config.verl_keys import unknown
from rpg.errors import first_line
from rpg.store import run_provenance
from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.checkpoints import link
from rpg.store.live_status import TRAINING, clear_progress, moving, progress_line, read_progress
from rpg.store.run_folder import RunFolder, pending_evaluations
from rpg.tasks.preparation import PreparedData, once, prepare_data

POLL_SECONDS = 0.5
COMPUTES = (
    "rpg.answers", "rpg.backends", "rpg.catalogue", "rpg.config", "rpg.losses", "rpg.models", "rpg.rewards", "rpg.tasks",
)  # fmt: skip
"""Our code in verl's processes, which this process does not import: all of it counts as the code of a training."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run. `job` is the id of its Ray job, if it is one."""

    number: int
    metrics: str
    log: str
    job: str | None = None


class Launcher:
    """Trains one run; `stop()` may be called at any moment, also from a signal handler."""

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
        earlier = run.earlier()
        attempt = self._running(run, earlier) or self._begin(run, earlier, data, home)
        if attempt is None:
            say(f"trained: all {spec.training.steps} steps")
            return
        assert self._job is not None
        try:
            run.follow(self._job, attempt)
        finally:
            self.stop()
            clear_progress(folder.path / TRAINING)

    def _running(self, run: _Run, earlier: Attempt | None) -> Attempt | None:
        """The earlier attempt, if it is a Ray job that is still running."""
        ray = run.backend.ray
        if earlier is None or earlier.job is None or not isinstance(ray, RayJob):
            return None
        job = jobs.ClusterJob(ray, earlier.job)
        if job.status() not in jobs.UNFINISHED:
            return None
        self._job = job
        run.say(f"following Ray job {earlier.job}, which is still running; verl's output: {earlier.log}")
        return earlier

    def _begin(self, run: _Run, earlier: Attempt | None, data: PreparedData, home: Path) -> Attempt | None:
        """A new attempt under way; None if no step is missing."""
        spec, folder = run.spec, run.folder
        jobs.end_marked(str(folder.path))
        done, resume = run.collect_and_choose(earlier)
        if done >= spec.training.steps:
            return None
        require_readable(spec, done, resume)
        model = initial_model(spec, home, run.say)
        if resume is None:
            run.checkpoints.begin_with(model)
        attempt = run.next_attempt(earlier)
        paths = Paths.of(folder.path, data, model, attempt.number, resume)
        launch, log = plan(spec, paths, project=folder.sweep, experiment=folder.name), Path(attempt.log)
        ray = run.backend.ray
        if isinstance(ray, RayJob):
            self._job = job = jobs.ClusterJob(ray, attempt.job or "")  # from here on a signal stops it
            job.submit(launch, log)
        else:
            if isinstance(ray, RayAddress):
                jobs.require_reachable(ray)
            self._job = jobs.ProcessJob(launch, log, str(folder.path))
        start = f"continuing after step {done} of" if done else "starting verl for"
        run.say(f"{start} {spec.training.steps} steps; verl's output: {attempt.log}")
        return attempt


class _Run:
    """The files of a run, and how they grow."""

    def __init__(self, folder: RunFolder, spec: RunSpec, say: Say):
        self.folder, self.spec, self.say = folder, spec, say
        self.backend = _backend(spec)
        self.state = folder.path / STATE
        keep, half = spec.training.keep_checkpoints, bfloat16(spec.model)
        self.checkpoints = VerlCheckpoints(folder, spec.eval_steps(), self.state, keep, half)

    def earlier(self) -> Attempt | None:
        """The attempt that was under way when a launcher last worked on this run."""
        try:
            return Attempt(**read_json_object(self.state / "attempt.json"))
        except (StoreError, TypeError):
            return None

    def next_attempt(self, earlier: Attempt | None) -> Attempt:
        """A new attempt, written down before anything of it starts."""
        number = max(self.folder.next_attempt(), earlier.number + 1 if earlier else 1)
        job = None
        if isinstance(self.backend.ray, RayJob):
            place = hashlib.sha256(str(self.folder.path).encode()).hexdigest()[:8]
            job = f"rpg-{self.folder.read_manifest()['run_id']}-{place}-{number}"
        metrics, log = self.state / f"metrics-{number}.jsonl", self.state / f"log-{number}.txt"
        attempt = Attempt(number, str(metrics), str(log), job)
        run_provenance.write(self.folder, number, COMPUTES)
        atomic_write_json(self.state / "attempt.json", asdict(attempt))
        return attempt

    def collect_and_choose(self, earlier: Attempt | None) -> tuple[int, Path | None]:
        """Publish what an earlier attempt left; the step to go on from, and verl's folder of it."""
        self.checkpoints.rescue()
        if earlier is not None:
            self._collect(Stream(self.folder, earlier.number, Path(earlier.metrics)))
        newest = self.checkpoints.resumable({step for _, step in pending_evaluations(self.folder)}, self.say)
        step = int(newest.name.rpartition("-")[2]) if newest else 0
        return step, self.checkpoints.resume_path(newest)

    def follow(self, job: jobs.Job, attempt: Attempt) -> None:
        """Carry over metrics and checkpoints until the job ends.

        Raises:
            TrainingFailed: it ended without having trained every step, or showed no progress for too long; TrainingLost if
                its driver was killed, or never got a Ray to train on.
        """
        stream = Stream(self.folder, attempt.number, Path(attempt.metrics))
        log, steps = Path(attempt.log), self.spec.training.steps
        limit = self.backend.hang_minutes * 60
        moved, where, at = time.monotonic(), self.folder.path / TRAINING, None
        while True:
            ended = job.poll()  # first, so that what was written before the end is seen below
            before, at = at, moving(where)
            if self._collect(stream) or at != before:  # a step, a phase, or a prompt with all its responses
                moved = time.monotonic()
            if ended is not None:
                break
            if time.monotonic() - moved > limit:
                job.stop()
                last = read_progress(where, any_age=True)
                during = f"(backend.hang_minutes){f' in {progress_line(last)}' if last else ''}"
                why = f"no progress for {self.backend.hang_minutes:g} minutes {during}: "
                why += reason("", tail(log))
                raise TrainingFailed(why, log, tail(log))
            time.sleep(POLL_SECONDS)
        if ended or steps not in self.folder.checkpoint_steps():
            why = ended or f"verl ended before step {steps} was saved"
            kind = TrainingLost if job.lost else TrainingFailed
            raise kind(reason(why, tail(log)), log, tail(log))
        self.say(f"trained: {steps} of {steps} steps")

    def _collect(self, stream: Stream) -> bool:
        """Metrics, then the checkpoints that were whole before: a checkpoint implies the metrics of its steps."""
        whole = finished(self.state)
        records = stream.pump()
        for record in records:
            self.say(_line(record, self.spec.training.steps))
        for step, source in whole:
            self.checkpoints.adopt(step, source)
        return bool(records or whole)


def _backend(spec: RunSpec) -> VerlBackend:
    assert isinstance(spec.backend, VerlBackend)
    return spec.backend


def require_verl(spec: RunSpec, say: Say) -> None:
    """Raises: ConfigError: this machine lacks something that this back end needs."""
    backend = _backend(spec)
    packages = ["ray"] if isinstance(backend.ray, RayJob) else ["ray", "verl", "transfer_queue"]
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"backend.type: 'verl' needs {missing[0]}, which is not installed; "
            "install it with: pip install 'rpg-lab[verl]', or choose: 'local'"
        )
    if wrong := unknown(backend.verl):
        raise ConfigError("\n".join(wrong))
    if not isinstance(backend.ray, RayJob):  # a job's driver checks the machine that it runs on
        require(backend, say)


def require_readable(spec: RunSpec, step: int, resume: Path | None) -> None:
    """Raises: ConfigError: the checkpoint to go on from was written by FSDP1 on another number of workers."""
    backend = _backend(spec)
    if resume is None or backend.strategy == "fsdp2":
        return
    workers, then = backend.nodes * backend.gpus_per_node, State.read(resume).world_size
    if workers != then:
        raise ConfigError(
            f"backend.nodes x gpus_per_node = {workers}, but the checkpoint of step {step} from which this run continues "
            f"was written by {then} workers, and with strategy fsdp verl can only read it with as many: choose {then}, or "
            "start another run (another seed, or rpg rm SWEEP/RUN); with strategy fsdp2 any number can continue"
        )


def _line(record: dict[str, Any], steps: int) -> str:
    parts = [f"{time.strftime('%H:%M:%S')} step {record['step']}/{steps}"]
    for name, form in (("reward", "+.3f"), ("accuracy", ".3f"), ("entropy", ".3f"), ("grad_norm", ".2f"),
                       ("seconds_step", ".2f"), ("validation_accuracy", ".3f")):  # fmt: skip
        if name in record:
            parts.append(f"{name} {record[name]:{form}}")
    return "  ".join(parts)


def initial_model(spec: RunSpec, home: Path, say: Say) -> Path:
    """A tiny model's warm start from the cache (made if it is missing), or a pretrained model's folder.

    Raises:
        ConfigError: model.path is neither a usable folder nor an id the hub knows.
        ModelError, DataError, StoreError: the warm start cannot be made.
    """
    from rpg.models.initial_policy import folder_with_chat_template, prepare_model  # noqa: PLC0415 (torch: after all checks)
    from rpg.models.model_cache import pretrained_folder  # noqa: PLC0415 (as above)

    if not isinstance(spec.model, PretrainedModel) or spec.model.warm_start is not None:
        model = prepare_model(spec, home, say)
        assert model is not None  # as it is for every run that has a warm start
        return model
    folder = Path(pretrained_folder(spec.model.path, home, say))
    if folder.exists():
        for name in ("config.json", "tokenizer_config.json"):
            if not (folder / name).is_file():
                raise ConfigError(f"model.path: {folder} is not a Hugging Face model: {name} is missing")
        return folder_with_chat_template(spec, home, folder.resolve())
    snapshot = _from_hub(spec.model)
    if not (isinstance(spec.backend, VerlBackend) and isinstance(spec.backend.ray, LocalRay)):
        snapshot = _for_all_nodes(snapshot, spec.model.path, home)
    return folder_with_chat_template(spec, home, snapshot)


def _for_all_nodes(snapshot: Path, name: str, home: Path) -> Path:
    """A snapshot in the hub's cache, which only this machine sees, in the data folder, which all nodes of a cluster see."""
    folder = home / "cache" / "hub" / f"{name.replace('/', '--')}-{snapshot.name}"
    with once(folder) as build:
        for path in filter(Path.is_file, snapshot.iterdir()):
            if build is not None:
                link(path.resolve(), build / path.name)
    return folder


def _from_hub(model: PretrainedModel) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (few runs need the hub)

    unused = ["*.bin", "*.pth", "*.gguf"]
    try:
        return Path(snapshot_download(model.path, revision=model.revision, ignore_patterns=unused))
    except Exception as error:  # the hub's client raises many kinds
        raise ConfigError(
            f"model.path: {model.path!r} is neither a local folder nor a model on the hub ({first_line(error)})"
        ) from error
