"""The specification of a run: pydantic models whose defaults are the tested settings of the tiny
chain task.

Every union is discriminated by `type`; unknown fields are errors. The annotation of a field says
what it is for: fields that affect training, and the digest of the data, form the run's identity
(rpg.config.section, rpg.config.identity).
"""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from rpg.catalogue import Algorithm, algorithm, override
from rpg.config.backend import Backend, LocalBackend
from rpg.config.evaluation import Evaluation, ThisMachine, VllmEngineSpec
from rpg.config.model import Model, TinyModel, bfloat16, has_packed_base
from rpg.config.reward import CorrectnessReward, EnvironmentReward, Rewards
from rpg.config.section import ADDRESS, NAME, OPERATES, SEED, Section
from rpg.config.task import ChainTask, EnvironmentTask, RewardVerifier, Task
from rpg.config.tracking import Trackers
from rpg.config.training import Rollout, Training, Until, has_8bit_moments

ENTRY = ("name", "preset")
"""What chooses an entry of the catalogue; everything else is a setting of it."""


def _algorithm(value: Any) -> Any:
    """`grpo`, `{name: grpo, beta: 0.01}` or an Algorithm -> Algorithm.

    Raises AlgorithmError, a ValueError.
    """
    if isinstance(value, str):
        return algorithm(value)  # `algorithm: grpo` is short for `algorithm: {name: grpo}`
    if isinstance(value, dict):
        if "name" not in value:
            raise ValueError("an algorithm needs a name, e.g. {name: grpo}")
        if not isinstance(value["name"], str):
            raise ValueError(
                f"algorithm.name: expected a name such as grpo, got {str(value['name'])[:80]}"
            )
        settings = {field: setting for field, setting in value.items() if field not in ENTRY}
        entry = algorithm(**{field: value[field] for field in ENTRY if field in value})
        return override(entry, **settings) if settings else entry
    return value


_serialised = PlainSerializer(lambda algo: {"name": algo.name, **algo.settings()})
AlgorithmField = Annotated[Algorithm, BeforeValidator(_algorithm), _serialised]


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
    seed: Annotated[int, Field(ge=0, lt=2**31), SEED] = 0

    @model_validator(mode="after")
    def _warm_start_follows_the_seed(self) -> Self:
        warm_start = self.model.warm_start
        if warm_start is not None and warm_start.seed is None:
            seeded = warm_start.model_copy(update={"seed": self.seed})
            model = self.model.model_copy(update={"warm_start": seeded})
            # The section is frozen; this is still its construction.
            object.__setattr__(self, "model", model)
        return self

    @model_validator(mode="after")
    def _correct_for_another_sampler(self) -> Self:
        """Where the embedded trainer's sampler computes other log-probabilities than its training
        pass, samples are weighted by default, as TRL does for vLLM; `rollout_correction: none` is
        obeyed. verl's own default is no weight (`rollout_is: null`), and stays."""
        said = "rollout_correction" in self.algorithm.model_fields_set
        if not said and self.sampler_differs():
            weighted = override(self.algorithm, rollout_correction={"type": "truncate"})
            object.__setattr__(self, "algorithm", weighted)  # as above
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        longest = self.rollout.max_prompt_tokens + self.rollout.max_response_tokens
        self._check_benchmarks()
        self._check_positions(longest)
        if not self.backend.is_embedded:
            self._check_other_backend()
        if self.rollout.engine.type == "vllm":
            self._check_vllm()
        if isinstance(self.task, EnvironmentTask):
            self._check_environment()
        else:
            self._check_no_environment()
        self._check_reference()
        self._check_critic()
        self._check_packed_base()
        self._check_floor()
        self._check_verifier()
        self.backend.check_longest(longest)
        self.backend.check_mini_batch(self.training.mini_batch_prompts, self.rollout.group_size)
        return self

    def _check_benchmarks(self) -> None:
        benchmarks = self.task_benchmarks()
        for name in self.evaluation.benchmarks or ():
            if name not in benchmarks:
                accepted = ", ".join(benchmarks)
                raise ValueError(f"evaluation.benchmarks: {name!r} is not one of {accepted}")

    def _check_positions(self, longest: int) -> None:
        if isinstance(self.model, TinyModel) and longest > self.model.max_positions:
            raise ValueError(
                f"rollout.max_prompt_tokens + max_response_tokens = {longest} do not fit "
                f"model.max_positions = {self.model.max_positions}"
            )

    def _check_reference(self) -> None:
        """A reference that is missing, or that cannot be compared with."""
        reference = self.algorithm.reference
        if reference.type == "ema" and (not self.backend.is_embedded or self.half_weights()):
            raise ValueError(
                "algorithm.reference ema: averaged by the embedded trainer (backend local), "
                "in float32; accepted: old, every_k, kl_above, fixed"
            )
        is_missing = reference.type == "model" and reference.path is None
        if is_missing and self.algorithm.needs_reference:
            raise ValueError(
                f"algorithm.reference.path: {self.algorithm.name} needs a teacher: a folder, "
                "a checkpoint of a run for example, or the name of a model"
            )
        restricted = self._restricted()
        if self.algorithm.reads_distributions and restricted:
            raise ValueError(
                f"rollout.{restricted[0]}: kl of type {self.algorithm.kl.type} compares whole "
                "distributions, and only part of the policy's can be sampled; accepted: "
                "top_p 1.0, top_k null, min_p 0.0, min_response_tokens 0"
            )

    def _check_critic(self) -> None:
        if self.algorithm.advantage.type == "gae" and self.model.lora:
            raise ValueError(
                "algorithm.advantage gae: the critic is a second model, which is trained in full, "
                "without model.lora; choose another advantage, e.g. {type: group}"
            )

    def _check_packed_base(self) -> None:
        dtype = self.rollout.sampler.dtype
        if has_packed_base(self.model) and dtype != "same":
            raise ValueError(
                f"rollout.sampler.dtype {dtype}: rounds the weights, and those of model.lora.base "
                "nf4 are rounded already; accepted: rollout.sampler.dtype same, or "
                "model.lora.base same"
            )

    def _check_floor(self) -> None:
        """An advantage over the mean counts rewards from what a wrong response earns."""
        advantage = self.algorithm.advantage
        if advantage.type != "over_mean" or len(self.reward) != 1:
            return
        [part] = self.reward
        if not isinstance(part, CorrectnessReward):
            return
        wrong = part.weight * min(part.wrong, part.right)
        if advantage.floor != wrong:
            raise ValueError(
                f"algorithm.advantage.floor {advantage.floor:g}: a wrong response earns {wrong:g} "
                f"(reward); accepted: {wrong:g}"
            )

    def _check_other_backend(self) -> None:
        """What other back ends than the embedded trainer cannot do, or would do wrongly."""
        name = self.backend.type
        remedy = "or backend.type local"
        dtype = self.rollout.sampler.dtype
        if self.training.until != Until():
            raise ValueError(
                f"training.until: backend {name} trains all training.steps; accepted: no until, "
                f"{remedy}"
            )
        if not self.training.optimizer.decay_vectors:
            raise ValueError(
                f"training.optimizer.decay_vectors false: in backend {name} all weights decay; "
                f"accepted: true, {remedy}"
            )
        if has_8bit_moments(self.training.optimizer):
            raise ValueError(
                f"training.optimizer.moments 8bit: not supported by backend {name}; "
                f"accepted: float32, {remedy}"
            )
        if has_packed_base(self.model):
            raise ValueError(
                f"model.lora.base nf4: not supported by backend {name}; accepted: same, {remedy}"
            )
        if dtype != "same":
            raise ValueError(
                f"rollout.sampler.dtype {dtype}: not supported by the sampler of backend {name}; "
                f"accepted: rollout.sampler.dtype same, {remedy}"
            )
        if self.algorithm.reference.type == "model" and self.model.lora is not None:
            raise ValueError(
                f"algorithm.reference model: with model.lora, backend {name} computes the "
                "reference with the policy's own model; accepted: fixed, or model.lora null, "
                f"{remedy}"
            )
        self._check_loss_of_other_backend(remedy)
        self._check_sampling_of_other_backend()
        has_turns = isinstance(self.task, EnvironmentTask)
        if has_turns and getattr(self.backend, "validation_samples", False):
            raise ValueError(
                "backend.validation_samples: verl's validation draws a response in one turn, "
                "without the environment of task.type environment; accepted: 0, as evaluations "
                f"of checkpoints have all turns, {remedy}"
            )

    def _check_loss_of_other_backend(self, remedy: str) -> None:
        """What a loss reads that only the embedded trainer tells it."""
        name = self.backend.type
        if getattr(self.algorithm.kl, "centred", False):
            raise ValueError(
                f"algorithm.kl.centred true: backend {name} passes on log-probabilities of the "
                f"sampled tokens only, not of the whole vocabulary; accepted: false, {remedy}"
            )
        if self.algorithm.reads_distributions:
            raise ValueError(
                f"algorithm.kl {self.algorithm.kl.type}: backend {name} passes on "
                "log-probabilities of the sampled tokens only, not of the whole vocabulary; "
                f"accepted: none, objective, loss, reward, advantage, {remedy}"
            )
        if self.algorithm.loss_agg_mode == "prompt-mean":
            raise ValueError(
                f"algorithm.loss_agg_mode prompt-mean: the loss of backend {name} does not see "
                "which responses belong to a prompt; accepted: token-mean, seq-mean-token-sum, "
                f"seq-mean-token-mean, seq-mean-token-sum-norm, {remedy}"
            )
        if self.algorithm.advantage.type == "target" and self.training.updates_per_step > 1:
            raise ValueError(
                f"algorithm.advantage target: it follows the policy, and backend {name} computes "
                f"advantages once per rollout; here it takes {self.training.updates_per_step} "
                "optimizer steps; accepted: mini_batch_prompts as prompts_per_step and 1 epoch, "
                f"{remedy}"
            )

    def _check_sampling_of_other_backend(self) -> None:
        restricted = self._restricted()
        if not restricted:
            return
        field = restricted[0]
        value = getattr(self.rollout, field)
        plain = getattr(Rollout(), field)
        accepted = "null" if plain is None else plain
        raise ValueError(
            f"rollout.{field} {value}: backend {self.backend.type} computes log-probabilities "
            "of the whole distribution and does not know which tokens could be drawn, "
            "so its ratios would not match the samples; "
            f"accepted: rollout.{field} {accepted}, or backend.type local"
        )

    def _check_vllm(self) -> None:
        """What the embedded trainer cannot draw with vLLM."""
        why = self._why_not_vllm()
        if why:
            raise ValueError(f"rollout.engine vllm: {why}; or rollout.engine local")

    def _why_not_vllm(self) -> str | None:
        restricted = self._restricted()
        if not self.backend.is_embedded:
            return f"backend {self.backend.type} has its own: backend.rollout {{type: vllm}}"
        if restricted:
            return (
                f"ratios need to know which tokens rollout.{restricted[0]} leaves, "
                "and vLLM does not say"
            )
        if isinstance(self.task, EnvironmentTask):
            return "only the trainer's own decoder takes turns with an environment"
        if self.rollout.rows_at_once:
            return "vLLM itself bounds its memory; accepted: rollout.rows_at_once null"
        if getattr(self.rollout.engine, "tensor_parallel", 1) > 1:
            return "a run has one GPU; accepted: tensor_parallel 1"
        return None

    def _restricted(self) -> list[str]:
        """The settings of `rollout` that leave part of the vocabulary out of sampling."""
        whole = Rollout()
        names = ("top_p", "top_k", "min_p", "min_response_tokens")
        return [name for name in names if getattr(self.rollout, name) != getattr(whole, name)]

    def _check_verifier(self) -> None:
        """Verifier and reward must not each ask the other what is correct."""
        by_reward = isinstance(getattr(self.task, "verifier", None), RewardVerifier)
        by_verifier = any(isinstance(part, CorrectnessReward) for part in self.reward)
        if by_reward and by_verifier:
            raise ValueError(
                "task.verifier: {type: reward} takes its verdict from the reward, and the reward "
                "{type: correctness} from the verifier: use another reward, "
                "e.g. reward: {type: python, function: my_rewards:score}"
            )

    def _check_no_environment(self) -> None:
        if any(isinstance(part, EnvironmentReward) for part in self.reward):
            raise ValueError(
                f"reward {{type: environment}}: a task of type {self.task.type} has no environment"
            )

    def _check_environment(self) -> None:
        """An environment takes its turns here, between tokens that can all be sampled."""
        is_local = self.evaluation.engine.type == "local"
        if not is_local or not isinstance(self.evaluation.place, ThisMachine):
            raise ValueError(
                "task.type environment: accepted: "
                "evaluation.engine local, evaluation.place this machine"
            )
        loop = "actor_rollout_ref.rollout.agent.default_agent_loop"
        keys_of_verl = {key.removeprefix("+") for key in getattr(self.backend, "verl", ())}
        if loop in keys_of_verl:
            raise ValueError(
                f"backend.verl: {loop}: with task.type environment, our agent loop takes its turns"
            )
        restricted = self._restricted()
        if restricted:
            raise ValueError(
                f"rollout.{restricted[0]}: "
                "with task.type environment all tokens can be sampled at any place"
            )

    def without_effect(self) -> str | None:
        """Why a file is refused of which a setting would do nothing.

        Runs that were stored with such a setting stay readable.
        """
        unread = self._unread_by_other_backend()
        if unread:
            return unread

        kl = self.algorithm.kl
        compares_old = getattr(kl, "at", "old") == "old" and self.algorithm.beta > 0
        is_zero = compares_old and self.algorithm.reference.type == "old"
        if kl.type in ("reward", "advantage") and is_zero:
            return (
                f"algorithm.reference old: kl {kl.type} is zero with it; "
                "accepted: every_k, kl_above, fixed"
            )

        steps = self.training.steps
        warmup = getattr(self.algorithm.advantage, "critic_warmup", 0)
        if warmup >= steps:
            return (
                f"algorithm.advantage.critic_warmup {warmup}: the policy is updated after it; "
                f"training.steps is {steps}"
            )

        if isinstance(self.training.keep_checkpoints, str):
            return None
        every = self.evaluation.every
        for step in self.training.keep_checkpoints:
            # Beyond the end it may be for a longer run.
            is_evaluated = step == steps or step in self.evaluation.steps(step + 1)
            if not is_evaluated:
                return (
                    f"training.keep_checkpoints {step}: only evaluated steps are kept, "
                    f"every {every} and {steps}"
                )
        return None

    def _unread_by_other_backend(self) -> str | None:
        """Which setting of the embedded trainer another back end would not read."""
        if self.backend.is_embedded:
            return None
        name = self.backend.type
        if self.training.fidelity_every:
            return (
                f"training.fidelity_every {self.training.fidelity_every}: backend {name} does not "
                "measure the exact gradient; accepted: 0, or backend.type local"
            )
        if self.rollout.rows_at_once:
            return (
                f"rollout.rows_at_once {self.rollout.rows_at_once}: the servers of backend {name} "
                "bound their own memory; accepted: null, or backend.type local"
            )
        if self.rollout.drop_solved is not None:
            return (
                f"rollout.drop_solved {self.rollout.drop_solved:g}: backend {name} draws every "
                "prompt in each pass; accepted: null, or backend.type local"
            )
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
        embedded trainer fills a GPU with responses, unless its model is tiny or it leaves a share
        (`evaluation.place.gpu_memory`).
        """
        place = self.evaluation.place
        if self.backend.device != "cuda" or not isinstance(place, ThisMachine):
            return 0
        if isinstance(self.evaluation.engine, VllmEngineSpec):
            return self.evaluation.engine.tensor_parallel
        if self.backend.type == "verl" or self.rollout.engine.type == "vllm":
            return 1
        return int(self.model.type == "pretrained" and place.gpu_memory is None)

    def sampler_differs(self) -> bool:
        """Whether what draws the embedded trainer's responses computes log-probabilities of its
        own: in bfloat16 its kernels round otherwise than the training pass, and vLLM has its own in
        any precision."""
        own = self.rollout.engine.type == "vllm" or bfloat16(self.model)
        return self.backend.is_embedded and own

    def half_weights(self) -> bool:
        """Whether the embedded trainer's model holds bfloat16 weights, beside the float32 ones.

        On a GPU, where the arithmetic is bfloat16. A CPU keeps float32 weights and rounds them for
        each product.
        """
        return bfloat16(self.model) and self.backend.device == "cuda"

    def rollout_rows(self) -> int:
        """Responses of a step, without refills."""
        return self.training.prompts_per_step * self.rollout.group_size

    def eval_steps(self) -> tuple[int, ...]:
        """Rollout steps whose checkpoints are evaluated: 0, early ones, every, 2*every, ..., and
        the last."""
        return self.evaluation.steps(self.training.steps)
