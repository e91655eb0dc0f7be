"""The KL between a policy and its initial model, estimated from the samples of evaluations.

KL(policy || initial) is a mean over the policy's responses, KL(initial || policy) over the initial model's (those of the
evaluation at step 0). With y = q/p of a token sampled from p, the expectation of the sum of -log y over the tokens is the
KL between whole responses, and that of y - 1 is zero: a multiple of its sum, between 0 and 1, is added as a control
variate. (The multiple 1 is k3 of the paper's Appendix D, the best for close policies and noisy for others.) Standard errors
are over problems.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rpg.config.model import TinyModel
from rpg.config.run_spec import RunSpec
from rpg.errors import UserError
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import Engine
from rpg.evaluation.graded_samples import request
from rpg.models.decoding import Samples
from rpg.models.initial_policy import initial_policy
from rpg.models.policy import Policy
from rpg.models.warm_start_cache import warm_folder
from rpg.tasks import Problem

Array = NDArray[np.float64]

DIRECTIONS = ("policy_to_initial", "initial_to_policy")
_LIMIT = 20.0  # of exponents, as in rpg.losses
_ROWS = 256


class DriftMeter:
    """Measures the checkpoints that one process evaluates; keeps the initial models and their samples."""

    def __init__(self, home: Path, say: Callable[[str], None]):
        self.home, self.say = home, say
        self._models: dict[str, Policy | None] = {}
        self._samples: dict[str, list[Samples]] = {}

    def measure(
        self, spec: RunSpec, engine: Engine, benchmark: str, problems: Sequence[Problem], step: int
    ) -> dict[str, Any] | None:
        """:func:`drift` of the model in `engine` from its latest samples; None if it cannot be estimated.

        That is the case for engines other than `local`, for greedy sampling, if no sample was drawn, and if the initial
        model is not available.
        """
        if not isinstance(engine, LocalEngine) or spec.evaluation.temperature == 0:
            return None
        samples = engine.take_samples()
        if not samples or engine.policy is None:
            return None
        model = spec.model_dump_json(include={"task", "model"})
        if model not in self._models:
            self._models[model] = self._initial(spec)
        if (initial := self._models[model]) is None:
            return None
        count = spec.evaluation.samples_per_problem
        key = repr((model, benchmark, spec.seed, spec.evaluation, spec.rollout))
        if key not in self._samples:
            reusable = step == 0 and sum(len(part.batch) for part in samples) == count * len(problems)
            self._samples[key] = samples if reusable else _draw(engine, initial, problems, count, spec.seed)
        return drift(engine.policy, initial, samples, self._samples[key], spec.evaluation.temperature)

    def _initial(self, spec: RunSpec) -> Policy | None:
        if isinstance(spec.model, TinyModel) and not warm_folder(spec, self.home).exists():
            return None  # made by trainings, not by evaluations
        try:
            return initial_policy(spec, self.home, self.say)
        except UserError as error:
            self.say(f"warning: KL to the initial model is not measured: {error}")
            return None


def _draw(
    engine: LocalEngine, initial: Policy, problems: Sequence[Problem], count: int, seed: int
) -> list[Samples]:
    """The samples of step 0's evaluation, drawn again."""
    sampler = LocalEngine.of(initial, engine.sampling)
    sampler.rows, sampler.keeps_samples, sampler.conversations = engine.rows, True, engine.conversations
    for _ in sampler.complete([request(problem, k, seed) for problem in problems for k in range(count)]):
        pass
    return sampler.take_samples()


def drift(
    policy: Policy,
    initial: Policy,
    of_policy: Sequence[Samples],
    of_initial: Sequence[Samples],
    temperature: float,
) -> dict[str, Any]:
    """{direction: {per_response, per_response_se, per_token, per_token_se, responses, problems}} in nats.

    The samples come with their sampler's log-probabilities; a direction without samples is left out. Both policies have
    the temperature of the samples.
    """
    samples = dict(zip(DIRECTIONS, ((of_policy, initial), (of_initial, policy)), strict=True))
    return {
        direction: _summary([_terms(part, other, temperature) for part in parts])
        for direction, (parts, other) in samples.items()
        if parts
    }


def _terms(samples: Samples, other: Policy, temperature: float) -> dict[tuple[int, ...], Array]:
    """Prompt -> (responses, 3): the sums of -log y and of y - 1, and the number of tokens."""
    batch = samples.batch
    sums = torch.zeros(len(batch), 2, dtype=torch.float64)
    with torch.no_grad():
        for rows in torch.arange(len(batch), device=batch.lengths.device).split(_ROWS):
            part = batch.rows(rows)
            log_ratio = other.log_probs(part, temperature) - samples.log_prob[rows, : part.tokens.shape[1]]
            terms = torch.stack([-log_ratio, torch.expm1(log_ratio.clamp(-_LIMIT, _LIMIT))], -1)
            terms = torch.where(part.mask[..., None], terms, 0).cpu()  # not every GPU has float64
            sums[rows.cpu()] = terms.double().sum(1)
    values = np.concatenate([sums.numpy(), batch.written.cpu().double().numpy()[:, None]], 1)
    of = batch.prompt_of.cpu().numpy()
    return {tuple(prompt): values[of == index] for index, prompt in enumerate(batch.prompts)}


def _summary(parts: Sequence[Mapping[tuple[int, ...], Array]]) -> dict[str, Any]:
    problems: dict[tuple[int, ...], list[Array]] = {}
    for part in parts:
        for prompt, values in part.items():
            problems.setdefault(prompt, []).append(values)
    grouped = [np.concatenate(values) for values in problems.values()]
    responses = np.concatenate(grouped)
    spread = responses[:, 1].var()
    covariance = np.cov(responses[:, 0], responses[:, 1], ddof=0)[0, 1]
    multiple = float(np.clip(-covariance / spread, 0, 1)) if spread > 0 else 0.0
    means = np.stack([(part[:, 0] + multiple * part[:, 1]).mean() for part in grouped])
    sizes = np.stack([part[:, 2].mean() for part in grouped])
    kl, tokens = means.mean(), sizes.mean()
    per_token = kl / tokens
    residuals = (means - per_token * sizes) / tokens  # their spread is the error of a ratio of means
    return {
        "per_response": float(kl),
        "per_response_se": _error(means),
        "per_token": float(per_token),
        "per_token_se": _error(residuals),
        "responses": len(responses),
        "problems": len(problems),
    }


def _error(values: Array) -> float | None:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
