"""One run from its folder to its last step: find out what is missing and do it; the folder is
consistent at every moment."""

from collections.abc import Callable
from pathlib import Path

import torch

from rpg.backends.early_end import End, Watch, record_end, recorded_end
from rpg.backends.local import checkpoints as files
from rpg.backends.local.checkpoints import Checkpoints
from rpg.backends.local.rollout import Roller
from rpg.backends.local.roundings import fits_in_float32
from rpg.backends.local.sampler import Weights
from rpg.backends.local.trainer import Trainer
from rpg.backends.progress_reporter import Reporter, step_line
from rpg.backends.training_process import Say
from rpg.config.load import spec_of
from rpg.config.model import bfloat16, has_packed_base
from rpg.config.run_spec import RunSpec
from rpg.models.beside_base import is_beside_base
from rpg.models.device import configure_device
from rpg.models.four_bit import halve_weights
from rpg.models.initial_policy import initial_policy, starting_policy
from rpg.models.lora import adapters
from rpg.models.model_loading import ModelError, load_pretrained
from rpg.models.policy import Policy
from rpg.models.teacher import teacher_of
from rpg.planning.preflight import total_memory
from rpg.planning.space import memory
from rpg.store import run_provenance
from rpg.store.live_status import TRAINING
from rpg.store.run_folder import RunFolder, pending_evaluations
from rpg.store.run_writer import append_metrics
from rpg.store.token_records import write_records
from rpg.system.processes import give_memory_back, keep_memory
from rpg.tasks.preparation import prepare_data, read_problems


def train(folder: RunFolder, home: Path, say: Say) -> None:
    """Train a run to its last step, from its newest checkpoint where there is one. Raises
    UserError: data, model, files, configuration or a loss that cannot be used; one line.
    """
    spec = spec_of(folder)
    configure_torch(spec)
    configure_memory(spec)
    trainer, checkpoints, done = _begin(folder, spec, home, say)
    attempt = folder.next_attempt()
    steps = spec.training.steps
    end = recorded_end(folder, spec.training.until)
    watch = Watch(spec.training.until)
    for row in folder.read_metrics():
        if row["step"] <= done:
            watch.after(row)
    with Reporter(trainer.progress, folder.path / TRAINING, say):
        if end is not None and end.step <= done < steps:  # in a shorter run that is continued
            _end_early(folder, end, trainer, checkpoints, say)
            return
        for step in range(done + 1, steps + 1):
            metrics = trainer.step(step)
            if step == done + 1:  # by now everything that the training computes with is imported
                run_provenance.write(folder, attempt)
            if trainer.recorder is not None:
                write_records(folder, step, trainer.recorder.rows())
            saves = step % spec.training.checkpoint_every == 0 or step in checkpoints.eval_steps
            is_rounded = trainer.policy.bfloat16 or has_packed_base(spec.model)
            if saves and is_rounded and fits_in_float32(trainer.policy):
                exported = checkpoints.exported(trainer.policy, trainer.optimizer.weights())
                metrics |= trainer.export_gap(exported, _wide_base(spec, home, say))
                del exported
            # Before the checkpoint, so that a checkpoint implies the metrics of its steps.
            append_metrics(folder, attempt, metrics)
            end = end or watch.after(metrics)
            if end is not None and end.step <= step:
                _end_early(folder, end, trainer, checkpoints, say)
                return
            if saves:
                trainer.progress.begin("checkpoint", 0, "")
                checkpoints.wait_for_space(_room(trainer), say)
                _save(checkpoints, step, trainer)
            trainer.progress.begin("", 0, "")
            say(step_line(step, steps, metrics))
    say(f"trained: {steps} of {steps} steps")


def _end_early(
    folder: RunFolder, end: End, trainer: Trainer, checkpoints: Checkpoints, say: Say
) -> None:
    """Record why the training ends here, and save its policy as that of the last planned step."""
    steps = trainer.spec.training.steps
    record_end(folder, end)
    trainer.progress.begin("checkpoint", 0, "")
    checkpoints.wait_for_space(_room(trainer), say)
    _save(checkpoints, steps, trainer)
    say(f"trained: ended at step {end.step} of {steps}, {end.described()}")


def configure_torch(spec: RunSpec) -> None:
    """Threads, and the settings of the device."""
    torch.set_num_threads(spec.backend.threads)
    configure_device(spec.backend.device)


def rows_at_once(spec: RunSpec) -> int | None:
    """How many responses a run that begins here draws at a time, where its file does not say; None:
    all of a step."""
    cuda = spec.backend.device == "cuda"
    room = torch.cuda.get_device_properties(0).total_memory if cuda else total_memory()
    need = memory(spec, float(room))
    return need.rows_at_once if need and need.rows_at_once < spec.rollout_rows() else None


def configure_memory(spec: RunSpec) -> None:
    """Return freed memory at once where a training has to save memory; else keep it for the next
    step."""
    if spec.backend.gradient_checkpointing or spec.backend.offload:
        give_memory_back()
    else:
        keep_memory()


def _begin(
    folder: RunFolder, spec: RunSpec, home: Path, say: Say
) -> tuple[Trainer, Checkpoints, int]:
    """(trainer, checkpoints, steps that are done)."""
    prepared = prepare_data(spec, home)
    sources = folder.read_manifest().get("rewards") or {}
    roller = Roller(spec, read_problems(prepared.train), sources)
    checkpoints = Checkpoints(folder, spec.eval_steps(), spec.training.keep_checkpoints)
    newest = checkpoints.resumable({step for _, step in pending_evaluations(folder)}, say)
    if newest is None:
        roller.rows_at_once = spec.rollout.rows_at_once or rows_at_once(spec)
        trainer = _trainer(spec, starting_policy(spec, home, say), roller, home, say)
        _save(checkpoints, 0, trainer)
        return trainer, checkpoints, 0
    trainer, done = _resumed(spec, newest, home, roller, say)
    say(f"continuing after step {done} of {spec.training.steps}")
    return trainer, checkpoints, done


def resume(spec: RunSpec, checkpoint: Path | None, roller: Roller, home: Path, say: Say) -> Trainer:
    """The training as it was at a checkpoint, or (None) as it began; with a new optimizer where the
    checkpoint has no training state. Raises UserError: data, model or files that cannot be used.
    """
    if checkpoint is None:
        return _trainer(spec, starting_policy(spec, home, say), roller, home, say)
    if (checkpoint / "training" / "state.json").exists():
        return _resumed(spec, checkpoint, home, roller, say)[0]
    trainer = _trainer(spec, _policy(spec, checkpoint, home, say), roller, home, say)
    # Without the state only `fixed` and a teacher are known; the initial model stands in for the
    # other schedules.
    if trainer.reference.needed and trainer.reference.policy is None:
        trainer.reference.policy = _initial(spec, home, say).frozen_copy()
    return trainer


def _resumed(
    spec: RunSpec, checkpoint: Path, home: Path, roller: Roller, say: Say
) -> tuple[Trainer, int]:
    """(trainer, steps that are done)."""
    state, tensors = files.load_training(checkpoint)
    trainer = _trainer(spec, _policy(spec, checkpoint, home, say), roller, home, say)
    trainer.optimizer.load(tensors["optimizer"], state["optimizer"])
    reference = trainer.reference
    weights = tensors.get("reference")
    reference.restore(
        state["reference"], weights, trainer.policy, lambda: _initial(spec, home, say)
    )
    past = files.load_past(checkpoint)
    device = spec.backend.device
    trainer.sampler.past = [
        (step, {k: v.to(device) for k, v in kept.items()}) for step, kept in past
    ]
    trainer.optimizer_step, trainer.tokens = state["optimizer_step"], state["tokens"]
    roller.rows_at_once = spec.rollout.rows_at_once or state.get("rows_at_once")
    roller.order.restore(state.get("prompts", {}))
    if trainer.critic is not None:
        trainer.critic.load(tensors["critic"], state["critic"])
    return trainer, state["step"]


def _trainer(spec: RunSpec, policy: Policy, roller: Roller, home: Path, say: Say) -> Trainer:
    """The training of a run that begins, with its teacher if it has one."""
    teacher = teacher_of(spec, policy.tokenizer, home, say)
    if teacher and spec.half_weights():
        halve_weights(teacher.model)
    trainer = Trainer(spec, policy, roller, teacher)
    if teacher:
        say(
            f"teacher: {teacher.model.name_or_path}, SHA-256 of its weights "
            f"{trainer.reference.digest}..."
        )
    return trainer


def _initial(spec: RunSpec, home: Path, say: Say) -> Policy:
    """The policy that the training started from, with the weights it computed with."""
    policy = starting_policy(spec, home, say)
    if spec.half_weights():
        halve_weights(policy.model)
    return policy


def _policy(spec: RunSpec, checkpoint: Path, home: Path, say: Say) -> Policy:
    if spec.model.lora:  # merged in the checkpoint, which cannot be undone to the bit
        if not (checkpoint / "training").exists() and not is_beside_base(checkpoint):
            why = "its adapters are merged; only the newest checkpoints can be trained further"
            raise ModelError(f"{checkpoint}: {why}")
        policy = starting_policy(spec, home, say)
        files.restore(policy.model, checkpoint)
        return policy
    model, tokenizer = load_pretrained(checkpoint)
    files.restore(model, checkpoint)
    return Policy(model.to(spec.backend.device), tokenizer, bfloat16=bfloat16(spec.model))


def _wide_base(spec: RunSpec, home: Path, say: Say) -> Callable[[], Weights] | None:
    """Reads the weights of 4 bits as they were before; None if there are none of 4 bits."""
    if not has_packed_base(spec.model):
        return None

    def read() -> Weights:
        weights: Weights = initial_policy(spec, home, say, device="cpu").model.state_dict()
        return weights

    return read


def _room(trainer: Trainer) -> float:
    """Bytes that have to be free for a checkpoint: twice its size, since other runs write too."""
    optimizer = trainer.optimizer
    model = trainer.policy.model
    alone = has_packed_base(trainer.spec.model)
    written: list[Weights] = [adapters(model) if alone else model.state_dict()]
    written.append(optimizer.tensors())
    if trainer.policy.bfloat16:
        written.append(optimizer.weights())
    if trainer.critic is not None:
        written.append(trainer.critic.tensors())
    written += [
        kept for _, kept in trainer.sampler.past[-1:]
    ]  # the older ones are links to existing files
    size = sum(value.nbytes for tensors in written for value in tensors.values())
    return 2.0 * size + 1e6


def _save(checkpoints: Checkpoints, step: int, trainer: Trainer) -> None:
    optimizer = trainer.optimizer
    critic = trainer.critic
    numbers, reference = trainer.reference.state()
    state: dict[str, object] = {
        "optimizer_step": trainer.optimizer_step,
        "tokens": trainer.tokens,
        "optimizer": optimizer.numbers(),
        "reference": numbers,
        "rows_at_once": trainer.roller.rows_at_once,
        "prompts": trainer.roller.order.state(),
    }
    tensors = {"optimizer": optimizer.tensors()}
    if critic:
        state["critic"], tensors["critic"] = critic.numbers(), critic.tensors()
    tensors |= {"reference": reference} if reference else {}
    checkpoints.save(
        step, trainer.policy, state, tensors, trainer.sampler.past, optimizer.weights()
    )
