"""One run on verl from its folder to its last step: find out what is missing, start verl's driver,
follow it.

    <run>/verl/
        log-<attempt>.txt         what verl printed
        metrics-<attempt>.jsonl   verl's own metrics
        global_step_<n>/          a checkpoint that is not finished, or about to be published
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

from rpg.backends.progress_reporter import step_line
from rpg.backends.training_process import Say, TrainingFailed, TrainingLost
from rpg.backends.verl.checkpoints import VerlCheckpoints, finished
from rpg.backends.verl.driver_process import end_marked, require_reachable, start_driver
from rpg.backends.verl.job_output import Stream, reason, tail
from rpg.backends.verl.overrides import STATE, Paths, plan
from rpg.backends.verl.readiness import require
from rpg.catalogue import ModelReference
from rpg.config.backend import LocalRay, RayAddress, VerlBackend
from rpg.config.errors import ConfigError
from rpg.config.load import spec_of
from rpg.config.model import PretrainedModel, bfloat16
from rpg.config.run_spec import RunSpec
from rpg.config.verl_keys import unknown
from rpg.errors import first_line
from rpg.store import run_provenance
from rpg.store.atomic_files import link
from rpg.store.live_status import TRAINING, clear_progress, moving, progress_line, read_progress
from rpg.store.run_folder import RunFolder, pending_evaluations
from rpg.system.processes import LOST
from rpg.tasks.preparation import once, prepare_data

POLL_SECONDS = 0.5
COMPUTES = (
    "rpg.answers",
    "rpg.backends",
    "rpg.catalogue",
    "rpg.config",
    "rpg.losses",
    "rpg.models",
    "rpg.tasks.rewards",
    "rpg.tasks",
)
"""Our code in verl's processes, which this process does not import: all of it counts as the code of
a training."""


def train(folder: RunFolder, home: Path, say: Say) -> None:
    """Train a run to its last step, from its newest checkpoint where there is one. Raises
    UserError: configuration, data, model or cluster that cannot be used, or a training that failed;
    one line.
    """
    spec = _on_its_nodes(spec_of(folder))
    wrong = unknown(_backend(spec).verl)
    if wrong:
        raise ConfigError("\n".join(wrong))
    require(_backend(spec), say)
    data = prepare_data(spec, home)
    end(folder)  # what an earlier launcher left
    run = _Run(folder, spec, say)
    steps = spec.training.steps
    done, resume = run.collect_and_choose()
    if done >= steps:
        say(f"trained: all {steps} steps")
        return
    model = initial_model(spec, home, say)
    from rpg.models.initial_policy import require_lengths  # noqa: PLC0415 (torch: after all checks)

    require_lengths(spec, home)  # again, for a model of the hub has just come
    if resume is None:
        run.checkpoints.begin_with(model)
    run.begin_attempt()
    paths = Paths.of(folder.path, data, model, run.attempt, resume)
    if isinstance(run.backend.ray, RayAddress):
        require_reachable(run.backend.ray)
    launch = plan(
        with_teacher(spec, model, home, say), paths, project=folder.sweep, experiment=folder.name
    )
    driver = start_driver(launch, run.log, str(folder.path))
    start = f"continuing after step {done} of" if done else "starting verl for"
    say(f"{start} {steps} steps; verl's output: {run.log}")
    try:
        run.follow(driver)
    finally:
        end(folder)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(10)
        clear_progress(folder.path / TRAINING)


def end(folder: RunFolder) -> None:
    """End every process of a run on this machine; a signal handler may call it at any moment."""
    end_marked(str(folder.path))


class _Run:
    """The files of a run, and how they grow."""

    def __init__(self, folder: RunFolder, spec: RunSpec, say: Say):
        self.folder = folder
        self.spec = spec
        self.say = say
        self.backend = _backend(spec)
        self.state = folder.path / STATE
        keep = spec.training.keep_checkpoints
        half = bfloat16(spec.model)
        self.checkpoints = VerlCheckpoints(folder, spec.eval_steps(), self.state, keep, half)
        logs = (path.stem.rpartition("-")[2] for path in self.state.glob("log-*.txt"))
        self.attempt = max(map(int, logs), default=0)
        """The newest attempt; 0 before the first."""

    @property
    def log(self) -> Path:
        """What verl prints in the attempt under way."""
        return self.state / f"log-{self.attempt}.txt"

    def begin_attempt(self) -> None:
        """A new number, taken by an empty log before anything of the attempt starts."""
        self.attempt = max(self.folder.next_attempt(), self.attempt + 1)
        self.state.mkdir(exist_ok=True)
        self.log.touch()
        run_provenance.write(self.folder, self.attempt, COMPUTES)

    def collect_and_choose(self) -> tuple[int, Path | None]:
        """Publish what an earlier attempt left; the step to go on from, and verl's folder of it."""
        self.checkpoints.rescue()
        self._collect(self._stream())
        newest = self.checkpoints.resumable(
            {step for _, step in pending_evaluations(self.folder)}, self.say
        )
        step = int(newest.name.rpartition("-")[2]) if newest else 0
        return step, self.checkpoints.resume_path(newest)

    def follow(self, driver: subprocess.Popen[bytes]) -> None:
        """Carry over metrics and checkpoints until verl's driver ends. Raises TrainingFailed: it
        ended without having trained every step, or showed no progress for too long; TrainingLost if
        it was killed, or never got a Ray to train on.
        """
        stream = self._stream()
        log = self.log
        steps = self.spec.training.steps
        limit = self.backend.hang_minutes * 60
        moved = time.monotonic()
        where = self.folder.path / TRAINING
        at = None
        while True:
            code = driver.poll()  # first, so that what was written before the end is seen below
            before = at
            at = moving(where)
            if (
                self._collect(stream) or at != before
            ):  # a step, a phase, or a prompt with all its responses
                moved = time.monotonic()
            if code is not None:
                break
            if time.monotonic() - moved > limit:
                last = read_progress(where, any_age=True)
                during = f"(backend.hang_minutes){f' in {progress_line(last)}' if last else ''}"
                why = f"no progress for {self.backend.hang_minutes:g} minutes {during}: "
                why += reason("", tail(log))
                raise TrainingFailed(why, log, tail(log))
            time.sleep(POLL_SECONDS)
        if code or steps not in self.folder.checkpoint_steps():
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            why = f"verl's driver {how}" if code else f"verl ended before step {steps} was saved"
            kind = TrainingLost if code < 0 or code == LOST else TrainingFailed
            raise kind(reason(why, tail(log)), log, tail(log))
        self.say(f"trained: {steps} of {steps} steps")

    def _stream(self) -> Stream:
        return Stream(self.folder, self.attempt, self.state / f"metrics-{self.attempt}.jsonl")

    def _collect(self, stream: Stream) -> bool:
        """Metrics, then the checkpoints that were whole before: a checkpoint implies the metrics of
        its steps."""
        whole = finished(self.state)
        records = stream.pump()
        for record in records:
            self.say(step_line(record["step"], self.spec.training.steps, record))
        for step, source in whole:
            self.checkpoints.adopt(step, source)
        return bool(records or whole)


def _on_its_nodes(spec: RunSpec) -> RunSpec:
    """The run on the Ray that its Slurm job has started, where the job has several nodes. Raises
    ConfigError: the job has started none."""
    try:
        backend = _backend(spec).with_ray_of_its_job(os.environ.get("RAY_ADDRESS"))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return spec.model_copy(update={"backend": backend})


def _backend(spec: RunSpec) -> VerlBackend:
    assert isinstance(spec.backend, VerlBackend)
    return spec.backend


def initial_model(spec: RunSpec, home: Path, say: Say) -> Path:
    """A tiny model's warm start from the cache (made if it is missing), or a pretrained model's
    folder. Raises ConfigError: model.path is neither a usable folder nor an id the hub knows;
    ModelError, DataError, StoreError: the warm start cannot be made.
    """
    from rpg.models.initial_policy import folder_with_chat_template, prepare_model  # noqa: PLC0415 (torch: after all checks)

    if not isinstance(spec.model, PretrainedModel) or spec.model.warm_start is not None:
        model = prepare_model(spec, home, say)
        assert model is not None  # as it is for every run that has a warm start
        return model
    folder = _folder(spec, "model.path", spec.model.path, spec.model.revision, home, say)
    return folder_with_chat_template(spec, home, folder)


def with_teacher(spec: RunSpec, model: Path, home: Path, say: Say) -> RunSpec:
    """The run with its teacher's folder for the name. Raises ConfigError: no usable folder, nor an
    id the hub knows; ModelError: its tokens are not those of `model`."""
    path = spec.algorithm.teacher_path
    if path is None:
        return spec
    from rpg.models.teacher import FIELD, check_teacher  # noqa: PLC0415 (torch: after all checks)

    folder = _folder(spec, FIELD, path, None, home, say)
    check_teacher(path, folder, model)
    algorithm = spec.algorithm.model_copy(update={"reference": ModelReference(path=folder)})
    return spec.model_copy(update={"algorithm": algorithm})


def _folder(
    spec: RunSpec, field: str, named: str, revision: str | None, home: Path, say: Say
) -> Path:
    """The folder of a pretrained model, which all nodes that train see."""
    from rpg.models.model_cache import pretrained_folder  # noqa: PLC0415 (torch: after all checks)

    folder = Path(pretrained_folder(named, home, say))
    if folder.exists():
        for name in ("config.json", "tokenizer_config.json"):
            if not (folder / name).is_file():
                raise ConfigError(
                    f"{field}: {folder} is not a Hugging Face model: {name} is missing"
                )
        return folder.resolve()
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (few runs need the hub)

    unused = ["*.bin", "*.pth", "*.gguf"]
    try:
        snapshot = Path(snapshot_download(named, revision=revision, ignore_patterns=unused))
    except Exception as error:  # the hub's client raises many kinds
        raise ConfigError(
            f"{field}: {named!r} is neither a local folder nor a model on the hub "
            f"({first_line(error)})"
        ) from error
    return (
        snapshot
        if isinstance(_backend(spec).ray, LocalRay)
        else _for_all_nodes(snapshot, named, home)
    )


def _for_all_nodes(snapshot: Path, name: str, home: Path) -> Path:
    """A snapshot in the hub's cache, which only this machine sees, in the data folder, which all
    nodes of a cluster see."""
    folder = home / "cache" / "hub" / f"{name.replace('/', '--')}-{snapshot.name}"
    with once(folder) as build:
        for path in filter(Path.is_file, snapshot.iterdir()):
            if build is not None:
                link(path.resolve(), build / path.name)
    return folder
