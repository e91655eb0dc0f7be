"""The specification of a run: pydantic models whose defaults are the tested settings of the tiny
chain task.

Every union is discriminated by `type`; unknown fields are errors. The annotation of a field says
what it is for: fields that affect training, and the digest of the data, form the run's identity
(rpg.config.section, rpg.config.identity).
"""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from rpg.catalogue import Algorithm, ModelReference, algorithm, override
from rpg.config.backend import Backend, LocalBackend
from rpg.config.evaluation import Evaluation, ThisMachine, VllmEngineSpec
from rpg.config.model import Model, TinyModel, bfloat16
from rpg.config.reward import CorrectnessReward, EnvironmentReward, Rewards
from rpg.config.section import ADDRESS, NAME, OPERATES, Section
from rpg.config.task import ChainTask, EnvironmentTask, RewardVerifier, Task
from rpg.config.tracking import Trackers
from rpg.config.training import Rollout, Training


def _algorithm(value: Any) -> Any:
    """`grpo`, `{name: grpo, beta: 0.01}` or an Algorithm -> Algorithm (raises AlgorithmError, a
    ValueError)."""
    if isinstance(value, str):
        return algorithm(value)
    if isinstance(value, dict):
        if "name" not in value:
            raise ValueError("an algorithm needs a name, e.g. {name: grpo}")
        if not isinstance(value["name"], str):
            raise ValueError(
                f"algorithm.name: expected a name such as grpo, got {str(value['name'])[:80]}"
            )
        return algorithm(**value)
    return value


_serialised = PlainSerializer(lambda algo: {"name": algo.name, **algo.settings()})
AlgorithmField = Annotated[Algorithm, BeforeValidator(_algorithm), _serialised]


def teacher_path(algorithm: Algorithm) -> str | None:
    """The model that is the reference, as the run names it; None if the loss reads no teacher."""
    reference = algorithm.reference
    if not isinstance(reference, ModelReference) or not algorithm.needs_reference:
        return None
    return str(reference.path)


class RunSpec(Section):
    """One training run, fully resolved."""

    task: Task = ChainTask()
    model: Model = TinyModel()
    algorithm: Annotated[AlgorithmField, NAME] = Field(default_factory=lambda: algorithm("grpo"))
    training: Training = Training()
    rollout: Rollout = Rollout()
    reward: Rewards = (CorrectnessReward(),)
    evaluation: Evaluation = Evaluation()
    backend: Backend = LocalBackend()
    track: Annotated[Trackers, OPERATES, ADDRESS] = ()
    """Trackers to which metrics are also sent: `tensorboard`, or mappings with a `type`."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _warm_start_follows_the_seed(self) -> Self:
        start = self.model.warm_start
        if start is not None and start.seed is None:
            model = self.model.model_copy(
                update={"warm_start": start.model_copy(update={"seed": self.seed})}
            )
            object.__setattr__(
                self, "model", model
            )  # the section is frozen; this is still its construction
        return self

    @model_validator(mode="after")
    def _correct_for_another_sampler(self) -> Self:
        """Where the sampler computes other log-probabilities than the trainer, samples are weighted
        by default, as verl's `rollout_is: token` does; `rollout_correction: none` is obeyed."""
        said = "rollout_correction" in self.algorithm.model_fields_set
        if not said and self.sampler_differs():
            weighted = override(self.algorithm, rollout_correction={"type": "truncate"})
            object.__setattr__(self, "algorithm", weighted)  # as above
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        benchmarks = self.task_benchmarks()
        for name in self.evaluation.benchmarks or ():
            if name not in benchmarks:
                raise ValueError(
                    f"evaluation.benchmarks: {name!r} is not one of {', '.join(benchmarks)}"
                )
        if isinstance(self.model, TinyModel):
            need = self.rollout.max_prompt_tokens + self.rollout.max_response_tokens
            if need > self.model.max_positions:
                raise ValueError(
                    f"rollout.max_prompt_tokens + max_response_tokens = {need} do not fit "
                    f"model.max_positions = {self.model.max_positions}"
                )
        self._check_embedded()
        self._check_vllm()
        self._check_turns()
        self._check_teacher()
        if self.algorithm.advantage.type == "gae" and self.model.lora:
            raise ValueError(
                "algorithm.advantage gae: the critic is a second model, which is trained in full, without model.lora; "
                "choose another advantage, e.g. {type: group}"
            )
        self._check_verifier()
        self.backend.check_longest(
            self.rollout.max_prompt_tokens + self.rollout.max_response_tokens
        )
        self.backend.check_mini_batch(self.training.mini_batch_prompts, self.rollout.group_size)
        return self

    def _check_teacher(self) -> None:
        """Raises ValueError for a reference that is missing, or that cannot be compared with."""
        algo, reference = self.algorithm, self.algorithm.reference
        if reference.type == "ema" and (not self.backend.is_embedded or self.half_weights()):
            raise ValueError(
                "algorithm.reference ema: averaged by the embedded trainer (backend local), in float32; accepted: old, "
                "every_k, kl_above, fixed"
            )
        if reference.type == "model" and reference.path is None and algo.needs_reference:
            raise ValueError(
                f"algorithm.reference.path: {algo.name} needs a teacher: a folder, a checkpoint of a run for example, or "
                "the name of a model"
            )
        if algo.kl.type == "distribution" and (restricted := self._restricted()):
            raise ValueError(
                f"rollout.{restricted[0]}: kl of type distribution compares whole distributions, and only part of "
                "the policy's can be sampled; accepted: top_p 1.0, top_k null, min_p 0.0, min_response_tokens 0"
            )

    def _check_embedded(self) -> None:
        """Raises ValueError for what other back ends than the embedded trainer cannot do, or would
        do wrongly."""
        if self.backend.is_embedded:
            return
        field, *_ = self._restricted() or [""]
        plain = getattr(Rollout(), field, None)
        dtype = self.rollout.sampler.dtype
        reasons = {
            "training.optimizer.decay_vectors false: in backend {} all weights decay; accepted: true": not (
                self.training.optimizer.decay_vectors
            ),
            f"rollout.sampler.dtype {dtype}: not supported by the sampler of backend {{}}; accepted: "
            "rollout.sampler.dtype same": dtype != "same",
            "algorithm.reference model: with model.lora, backend {} computes the reference with the policy's own model; "
            "accepted: fixed, or model.lora null": self.algorithm.reference.type == "model"
            and self.model.lora is not None,
            "algorithm.kl distribution: backend {} passes on log-probabilities of the sampled tokens only, not of the whole "
            "vocabulary; accepted: none, objective, loss, reward": self.algorithm.kl.type
            == "distribution",
            f"rollout.{field} {getattr(self.rollout, field, None)}: backend {{}} computes log-probabilities of the whole "
            "distribution and does not know which tokens could be drawn (docs/verl-inside.md, Sampling), so its ratios "
            f"would not match the samples; accepted: rollout.{field} {'null' if plain is None else plain}": field,
            "backend.validation_samples: verl's validation draws a response in one turn, without the environment of "
            "task.type environment; accepted: 0, as evaluations of checkpoints have all turns": isinstance(
                self.task, EnvironmentTask
            )
            and bool(getattr(self.backend, "validation_samples", 0)),
        }
        for reason, applies in reasons.items():
            if applies:
                raise ValueError(f"{reason.format(self.backend.type)}, or backend.type local")

    def _check_vllm(self) -> None:
        """Raises ValueError for what the embedded trainer cannot draw with vLLM."""
        engine, field = self.rollout.engine, (self._restricted() or [""])[0]
        has_turns = isinstance(self.task, EnvironmentTask)
        reasons = {
            f"backend {self.backend.type} has its own: backend.rollout {{type: vllm}}": not self.backend.is_embedded,
            f"ratios need to know which tokens rollout.{field} leaves, and vLLM does not say": field,
            "only the trainer's own decoder takes turns with an environment": has_turns,
            "vLLM itself bounds its memory; accepted: rollout.rows_at_once null": self.rollout.rows_at_once,
            "a run has one GPU; accepted: tensor_parallel 1": getattr(engine, "tensor_parallel", 1)
            > 1,
        }
        for reason, applies in reasons.items():
            if applies and engine.type == "vllm":
                raise ValueError(f"rollout.engine vllm: {reason}; or rollout.engine local")

    def _restricted(self) -> list[str]:
        """The settings of `rollout` that leave part of the vocabulary out of sampling."""
        whole = Rollout()
        names = ("top_p", "top_k", "min_p", "min_response_tokens")
        return [name for name in names if getattr(self.rollout, name) != getattr(whole, name)]

    def _check_verifier(self) -> None:
        """Raises ValueError if verifier and reward each ask the other what is correct."""
        by_reward = isinstance(getattr(self.task, "verifier", None), RewardVerifier)
        if by_reward and any(isinstance(part, CorrectnessReward) for part in self.reward):
            raise ValueError(
                "task.verifier: {type: reward} takes its verdict from the reward, and the reward {type: correctness} from "
                "the verifier: use another reward, e.g. reward: {type: python, function: my_rewards:score}"
            )

    def _check_turns(self) -> None:
        """Raises ValueError if an environment is asked for where none can take its turns."""
        if not isinstance(self.task, EnvironmentTask):
            if any(isinstance(part, EnvironmentReward) for part in self.reward):
                kind = self.task.type
                raise ValueError(
                    f"reward {{type: environment}}: a task of type {kind} has no environment"
                )
            return
        if self.evaluation.engine.type != "local" or not isinstance(
            self.evaluation.place, ThisMachine
        ):
            why = "task.type environment: accepted: evaluation.engine local, evaluation.place this machine"
            raise ValueError(why)
        loop = "actor_rollout_ref.rollout.agent.default_agent_loop"
        if loop in {key.removeprefix("+") for key in getattr(self.backend, "verl", ())}:
            raise ValueError(
                f"backend.verl: {loop}: with task.type environment, our agent loop takes its turns"
            )
        if restricted := self._restricted():
            why = "with task.type environment all tokens can be sampled at any place"
            raise ValueError(f"rollout.{restricted[0]}: {why}")

    def without_effect(self) -> str | None:
        """Why a file is refused of which a setting would do nothing; stored runs that have it stay
        readable."""
        algo, t = self.algorithm, self.training
        kl = algo.kl.type if getattr(algo.kl, "at", "old") == "old" and algo.beta else ""
        if kl in ("reward", "advantage") and algo.reference.type == "old":
            return f"algorithm.reference old: kl {kl} is zero with it; accepted: every_k, kl_above, fixed"
        warmup = getattr(algo.advantage, "critic_warmup", 0)
        if warmup >= t.steps:
            return f"algorithm.advantage.critic_warmup {warmup}: the policy is updated after it; training.steps is {t.steps}"
        kept, every = t.keep_checkpoints, self.evaluation.every
        for step in () if isinstance(kept, str) else kept:
            if step != t.steps and step % every:  # beyond the end it may be for a longer run
                return f"training.keep_checkpoints {step}: only evaluated steps are kept, every {every} and {t.steps}"
        return None

    def task_benchmarks(self) -> tuple[str, ...]:
        """Names of all benchmarks of the task, in order."""
        return (*self.task.benchmark_names(), *self.task.tuning_names())

    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks on which this run is evaluated."""
        return self.evaluation.benchmarks or self.task.benchmark_names()

    def evaluator_gpus(self) -> int:
        """GPUs of this machine that one evaluator of this run occupies alone; 0 if it runs beside
        trainings.

        vLLM cannot share a GPU with a process whose memory use varies, and neither can verl. The
        embedded trainer leaves room (`evaluation.place.gpu_memory`).
        """
        if self.backend.device != "cuda" or not isinstance(self.evaluation.place, ThisMachine):
            return 0
        if isinstance(self.evaluation.engine, VllmEngineSpec):
            return self.evaluation.engine.tensor_parallel
        return int(self.backend.type == "verl" or self.rollout.engine.type == "vllm")

    def sampler_differs(self) -> bool:
        """Whether what draws the responses computes log-probabilities of its own: in bfloat16 its
        kernels round otherwise than the training pass, and vLLM has its own in any precision. (On a
        CPU verl's server is our decoder.)"""
        verl_on_gpus = self.backend.type == "verl" and self.backend.device == "cuda"
        own_engine = self.rollout.engine.type == "vllm" or verl_on_gpus
        return own_engine or bfloat16(self.model)

    def half_weights(self) -> bool:
        """Whether the embedded trainer's model holds bfloat16 weights, beside the float32 ones that
        are updated. On a GPU, where the arithmetic is bfloat16. A CPU keeps float32 weights and
        rounds them for each product."""
        return bfloat16(self.model) and self.backend.device == "cuda"

    def rollout_rows(self) -> int:
        """Responses of a step, without refills."""
        return self.training.prompts_per_step * self.rollout.group_size

    def eval_steps(self) -> tuple[int, ...]:
        """Rollout steps whose checkpoints are evaluated: 0, every, 2*every, ..., and the last."""
        return tuple(
            sorted({*range(0, self.training.steps, self.evaluation.every), self.training.steps})
        )
