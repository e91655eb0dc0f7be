"""The trainer mode `rpg` of verl: rollout, log-probabilities, advantages and update as in the
embedded trainer.

One driver process runs this; tensors stay in verl's queue and on its workers, except for those of
the advantages. Shapes: N responses (rows), T response tokens of the longest.
"""

import functools
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer
from verl.workers.utils.padding import response_to_nested

from rpg.backends.progress_reporter import Progress, Reporter
from rpg.backends.reference_schedule import ReferenceSchedule
from rpg.backends.token_recorder import Recorder
from rpg.backends.verl import rollout
from rpg.backends.verl.checkpoints import State, newest
from rpg.backends.verl.critic_worker import CriticWorker, ValueLoss
from rpg.backends.verl.experience import arrange, experience, mini_batch_order
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.policy_worker import PolicyWorker
from rpg.backends.verl.prefetch import Prefetch
from rpg.backends.verl.responses import ERROR
from rpg.backends.verl.update import Updated, UpdatePlan
from rpg.errors import UserError
from rpg.store.live_status import TRAINING
from rpg.store.run_folder import RunFolder
from rpg.store.token_records import write_records

Metrics = dict[str, Any]


@register_trainer("rpg")
class Trainer(PPOTrainerSync):
    """verl's synchronous trainer with our step. Counters and the reference schedule live in the
    driver and are part of every checkpoint (checkpoints.py).

    verl calls, in this order:

        __init__    _build_replay_buffer
        init        _init_dataloader, _init_resource_pool_mgr, _load_checkpoint
        fit         on_validate_begin (where it validates first), on_train_begin, then each step:
            prepare_step, _step_once     the step itself
            _save_checkpoint             every training.checkpoint_every steps
            on_step_end                  the model alone, where the step is evaluated
            on_validate_begin, _val_metrics_update     every evaluation.every steps, if asked for
            _compute_metrics             our metrics beside verl's
            logger.log                   writes them, then _finish_checkpoint
    """

    def __init__(self, config: Any):
        self.settings = JobSettings.inside(config.actor_rollout_ref)
        self.state = Path(config.trainer.default_local_dir).absolute()
        config.trainer.v1.trainer_mode = "sync"  # verl asks for this name in many places
        super().__init__(config)
        self.optimizer_step = 0
        """Optimizer steps of the policy so far."""
        self.critic_updates = 0
        """Optimizer steps of the critic so far."""
        self.tokens = 0
        """Response tokens sampled so far."""
        self.reference = ReferenceSchedule(self.settings.algorithm)
        self.reference_has_weights = self.settings.algorithm.teacher_path is not None
        """Whether the reference has its own weights; otherwise it is the policy before the next
        updates."""
        self.step_metrics: dict[str, Any] = {}
        """Metrics of the current step, by the project's names."""
        self.step_tokens = 0
        """Response tokens that the current step sampled."""
        self.step_trains = False
        """Whether a group of the current step was left to train on."""
        self.saved: Path | None = None
        """A checkpoint that lacks only rpg.json, because the metrics of its step are not written
        yet."""
        self.resumable = True
        """Whether `saved` holds what a training needs to go on."""
        self.progress = Progress()
        """Shown to people, and read by the launcher, which ends a run that shows no progress."""

    def _build_replay_buffer(self) -> rollout.Groups:
        sampler = self.config.trainer.v1.sampler
        groups = rollout.Groups(
            trainer_mode="sync",
            trainer_config=self.config.trainer.v1.sync,
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            poll_interval=0.1,  # of validation
        )
        groups.error = self.state / ERROR
        groups.error.unlink(missing_ok=True)  # of an earlier attempt
        return groups

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        # verl divides by it; a data set may be smaller than a step.
        self.steps_per_epoch: int = max(1, self.steps_per_epoch)
        beside = not self.config.actor_rollout_ref.rollout.free_cache_engine
        self.prefetch = Prefetch(
            self.settings, len(self.train_dataset), self._ask, self._collect, beside
        )

    def init(self) -> None:
        tell = functools.partial(print, flush=True)
        self.reporter = Reporter(self.progress, self.state.parent / TRAINING, tell)
        self.reporter.__enter__()  # it ends with fit, or with this process
        self.progress.begin("starting verl's workers", 0, "")
        super().init()
        if self.use_critic:
            self.critic_wg.set_loss_fn(ValueLoss.of(self.settings))

    def fit(self, agent_loop_manager: Any) -> None:
        try:
            super().fit(agent_loop_manager)
        except Exception:
            if why := self.replay_buffer.why_failed():  # verl's validation: responses are missing
                raise UserError(why) from None
            raise
        finally:
            agent_loop_manager.end()  # before verl closes its queue
            self.reporter.__exit__()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(
                CriticWorker if role == Role.Critic else PolicyWorker
            )

    def prepare_step(self) -> dict[str, Any]:
        self.progress.begin_step(self.global_steps, self.settings.steps)
        return {}  # prompts are drawn in the rollout

    def _step_once(
        self,
        metrics: Metrics,
        timing_raw: dict[str, float],
        sample_batch_size: int,  # noqa: ARG002 (verl's)
    ) -> KVBatchMeta:
        timer = functools.partial(marked_timer, timing_raw=timing_raw)
        if self.reference.renew_if_due(self.optimizer_step):
            self.reference_has_weights = False
        step_metrics: dict[str, Any] = {"reference_age": self.reference.age(self.optimizer_step)}
        with timer("gen"):
            rolled = self.prefetch.begin(self.global_steps)
            if not self.prefetch.beside:
                self.on_sample_end()
        step_metrics |= rolled.metrics()
        self.tokens += rolled.tokens
        self.step_trains = bool(rolled.kept)
        # verl removes the rows that a step returns from its queue, and fails where there are none.
        batch = rollout.as_batch(rolled.sampled)
        if self.step_trains:
            rollout.discard(rolled.dropped())
            batch, sizes = self._arrange(rolled.kept)
            self.progress.begin("log-probabilities", 0, "")
            if self.settings.staleness:
                step_metrics["sampler_age"] = rolled.age(self.global_steps)
            with timer("old_log_prob"):
                batch = self._compute_old_log_prob(batch, metrics)
            if self.reference_has_weights:
                self.progress.begin("log-probabilities of the reference", 0, "")
                with timer("ref"):
                    batch = self._compute_ref_log_prob(batch, metrics)
            if self.use_critic:
                self.progress.begin("values of the critic", 0, "")
                with timer("values"):
                    batch = self._compute_values(batch, metrics)
            with timer("adv"):
                batch, measured = self._experience(batch, rolled.kept)
            step_metrics |= measured
            if self.use_critic:
                self.progress.begin("update of the critic", 0, "")
                with timer("update_critic"):
                    step_metrics |= self._train_critic(batch, sizes)
            self.progress.begin("update", 0, "")
            if self.global_steps > getattr(self.settings.algorithm.advantage, "critic_warmup", 0):
                with timer("update_actor"):
                    step_metrics |= self._update(batch, sizes, rolled.kept)
        if self.prefetch.beside:
            with timer("gen"):
                self.prefetch.finish()
                self.on_sample_end()
        step_metrics |= {"optimizer_step": self.optimizer_step, "tokens": self.tokens}
        self.step_metrics = step_metrics
        self.step_tokens = rolled.tokens
        self.progress.begin("weights to the rollout servers", 0, "")
        return batch

    def _ask(self, step: int, numbers: Sequence[int], names: Sequence[str]) -> None:
        """Make the servers begin with problems by number, as the prompts `names` of a step."""
        rows = collate_fn([self.train_dataset[number] for number in numbers])
        batch = tu.get_tensordict({**rows, "uid": list(names)})
        tu.assign_non_tensor(batch, global_steps=step)
        self._submit_batch_to_rollout(batch)

    def _collect(self, names: Sequence[str], round_: int) -> list[rollout.Group]:
        """The responses to prompts by name, all sampled with the same weights."""
        self.progress.begin(
            f"rollout, refill {round_}" if round_ else "rollout", len(names), "prompts"
        )
        return self.replay_buffer.collect(names, self.progress)

    def _arrange(self, groups: list[rollout.Group]) -> tuple[KVBatchMeta, list[int]]:
        """(rows in the order of workers and mini-batches, rows of each mini-batch on a worker)."""
        workers = max(self.actor_rollout_wg._query_dispatch_info("actor")) + 1  # data-parallel ones
        batch = rollout.as_batch(groups)
        end = self.tokenizer.eos_token_id
        batch = upsample_batch_to_divisible_size(batch, workers, end)
        lengths = [tag["seq_len"] for tag in batch.tags]
        order, sizes = arrange(self.settings, self.global_steps, len(groups), lengths, workers)
        batch.reorder(order)
        return batch, sizes

    def _experience(
        self, batch: KVBatchMeta, groups: list[rollout.Group]
    ) -> tuple[KVBatchMeta, dict[str, float]]:
        """(the batch with what the loss reads besides the policy's log-probabilities, our metrics
        of the sampler)."""
        names = ["response_mask", "rm_scores", "rollout_log_probs", "old_log_probs"]
        names += ["ref_log_prob"] if self.reference_has_weights else []
        names += ["values"] if self.use_critic else []
        nested = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=names
        )
        data = nested.to_padded_tensor()
        prompts = [rollout.prompt_of(key) for key in batch.keys]
        right = {response.key for group in groups for response in group if response.correct}
        correct = torch.tensor([key in right for key in batch.keys])
        written, measured = experience(
            self.settings, dict(data.items()) | {"correct": correct}, prompts
        )
        output = {
            name: response_to_nested(value, nested["response_mask"])
            for name, value in written.items()
        }
        output = TensorDict(output, batch_size=len(batch))
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=output
        ), measured

    def _recorder(self, batch: KVBatchMeta, groups: list[rollout.Group]) -> Recorder:
        """A recorder of this step's tokens; the rows of `batch` are in the order of `groups`."""
        size = self.settings.group_size
        names = ["prompts", "responses"]
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=names
        )
        prompts = [ids for row in data["prompts"].unbind()[::size] for ids in [row.tolist()] * size]
        rewards = [response.reward for group in groups for response in group]
        given = prompts, data["responses"].unbind(), rewards
        return Recorder(self.settings.token_records, size, *given, self.tokenizer.decode)

    def _instruct(
        self,
        batch: KVBatchMeta,
        sizes: list[int],
        done: int,
        renew: bool = False,
        marks: Sequence[int] = (),
    ) -> None:
        """Send the workers of an update their plan with the batch; `done`: optimizer steps of their
        model so far."""
        s = self.settings
        orders = [
            mini_batch_order(s, self.global_steps, epoch, len(sizes)) for epoch in range(s.epochs)
        ]
        batch.extra_info["temperature"] = s.temperature
        batch.extra_info["rpg_plan"] = asdict(UpdatePlan(sizes, orders, done, renew, list(marks)))

    def _train_critic(self, batch: KVBatchMeta, sizes: list[int]) -> dict[str, float]:
        """The critic's optimizer steps, on the policy's mini-batches; returns their metrics."""
        self._instruct(batch, sizes, self.critic_updates)
        updated = Updated(**self.critic_wg.update_critic(batch)["metrics"])
        self.critic_updates += updated.optimizer_steps
        return {"value_loss": updated.metrics["loss"]} if updated.metrics else {}

    def _update(
        self, batch: KVBatchMeta, sizes: list[int], groups: list[rollout.Group]
    ) -> dict[str, float]:
        """All optimizer steps on `groups`, whose rows `batch` has in another order; returns their
        metrics."""
        s = self.settings
        step = self.global_steps
        recorder = None
        marks = list[int]()
        if s.token_records.every and step % s.token_records.every == 0:
            kept = rollout.as_batch(groups)
            recorder = self._recorder(kept, groups)
            mark_of = dict(zip(kept.keys, recorder.marks.tolist(), strict=True))
            marks = [mark_of.get(key, -1) for key in batch.keys]  # also has rows of padding
        renew = self.reference.needed and not self.reference_has_weights
        self._instruct(batch, sizes, self.optimizer_step, renew, marks)
        output = self.actor_rollout_wg.update_actor(batch)
        updated = Updated(**output["metrics"])
        if recorder is not None:
            recorder.values = updated.values
            write_records(RunFolder(self.state.parent), step, recorder.rows())
        self.reference_has_weights |= renew
        self.optimizer_step += updated.optimizer_steps
        for step_kl_to_ref in updated.step_kls_to_ref:
            self.reference.observe(step_kl_to_ref)
        return updated.metrics

    def _compute_metrics(
        self,
        batch: KVBatchMeta,
        metrics: Metrics,
        timing_raw: dict[str, float],
        *rest: Any,
        **kwargs: Any,
    ) -> None:
        if self.step_trains:
            super()._compute_metrics(batch, metrics, timing_raw, *rest, **kwargs)

        phases = {"rollout": ["gen"], "log_prob": ["old_log_prob", "ref", "values", "adv"]}
        phases |= {"update": ["update_critic", "update_actor"], "step": ["step"]}
        step_metrics = self.step_metrics
        for name, timers in phases.items():
            step_metrics[f"seconds_{name}"] = sum(timing_raw.get(timer, 0.0) for timer in timers)
        step_metrics["tokens_per_second"] = self.step_tokens / step_metrics["seconds_step"]
        metrics |= {f"rpg/{name}": value for name, value in step_metrics.items()}

    def _val_metrics_update(
        self, sources: Any, uids: Any, infos: Any, *args: Any, **kwargs: Any
    ) -> Metrics:
        """The metrics of verl's validation, with ours; only where the job asks for it."""
        correct = infos["acc"]
        theirs = super()._val_metrics_update(sources, uids, infos, *args, **kwargs)
        return theirs | {"rpg/validation_accuracy": sum(correct) / len(correct)}

    def on_train_begin(self) -> None:
        super().on_train_begin()
        log = self.logger.log

        def then_finish(data: dict[str, Any], step: int) -> None:
            log(data=data, step=step)
            self._finish_checkpoint()

        self.logger.log = then_finish

    def on_step_end(self) -> None:
        if self.global_steps in self.settings.save_steps and self.saved is None:
            self._save_weights()
        super().on_step_end()

    def _save_weights(self) -> None:
        """The model alone, for its evaluation."""
        folder = self._begin_checkpoint()
        self.actor_rollout_wg.save_weights(str(folder / "actor"))
        self.saved = folder
        self.resumable = False

    def _begin_checkpoint(self) -> Path:
        self.progress.begin("checkpoint", 0, "")
        folder = self.state / f"global_step_{self.global_steps}"
        shutil.rmtree(folder, ignore_errors=True)  # what a kill left behind
        return folder

    def _save_checkpoint(self) -> None:
        folder = self._begin_checkpoint()
        is_initial = not self.reference.renewed_at
        if self.reference_has_weights and not is_initial:
            self.actor_rollout_wg.save_reference(str(folder / "reference"))
        super()._save_checkpoint()
        self.prefetch.save(folder)
        self.saved = folder
        self.resumable = True

    def _finish_checkpoint(self) -> None:
        """The checkpoint counts from here on: all files of its step are written, metrics
        included."""
        if self.saved is None:
            return
        schedule = self.reference
        reference = {
            "renewed_at": schedule.renewed_at,
            "average": schedule.average,
            "kept": self.reference_has_weights,
        }
        workers = self.resource_pool_manager.get_n_gpus()
        counters = self.global_steps, self.optimizer_step, self.tokens
        state = State(*counters, reference, workers, self.critic_updates, self.resumable)
        state.write(self.saved)
        self.saved = None

    def on_validate_begin(self) -> None:
        super().on_validate_begin()
        self.progress.begin("validation", 0, "")

    def _load_checkpoint(self) -> None:
        self.progress.begin("loading the checkpoint", 0, "")
        trainer = self.config.trainer
        if trainer.resume_mode == "auto":
            folder = newest(self.state)
            with open_dict(self.config):
                trainer.resume_mode = "disable" if folder is None else "resume_path"
                trainer.resume_from_path = str(folder)
        super()._load_checkpoint()
        if trainer.resume_mode == "disable":
            return
        folder = Path(trainer.resume_from_path)
        state = State.read(folder)
        self.optimizer_step = state.optimizer_step
        self.tokens = state.tokens
        self.critic_updates = state.critic_updates
        self.reference.renewed_at = state.reference["renewed_at"]
        self.reference.average = state.reference["average"]
        self.reference_has_weights = state.reference["kept"]
        if self.reference_has_weights and self.reference.renewed_at:
            self.actor_rollout_wg.load_reference(str(folder / "reference"))
        self.prefetch.restore(folder, state.step)
