"""The KL between a policy and its initial model, estimated from the samples of evaluations.

KL(policy || initial) is a mean over the policy's responses, KL(initial || policy) over the initial
model's (those of the evaluation at step 0). With y = q/p of a token sampled from p, the expectation
of the sum of -log y over the tokens is the KL between whole responses, and that of y - 1 is zero: a
multiple of its sum, between 0 and 1, is added as a control variate. (The multiple 1 is k3 of the
paper's Appendix D, the best for close policies and noisy for others.) Standard errors are over
problems.

The terms of each response are stored beside the policy's responses, before the response is: the
estimate is that of all responses of an evaluation, whichever sweep drew them and however often it
was killed.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rpg.config.evaluation import OnRay, VllmEngineSpec
from rpg.config.model import PretrainedModel, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import chat_of
from rpg.errors import UserError
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import Engine, Request
from rpg.evaluation.graded_samples import stored_as
from rpg.models.decoding import Samples
from rpg.models.initial_policy import initial_policy
from rpg.models.policy import Policy
from rpg.models.warm_start_cache import warm_folder
from rpg.store.checkpoints import model_files_digest
from rpg.store.draws import Draws, Key, Terms

Array = NDArray[np.float64]

POLICY_TO_INITIAL, INITIAL_TO_POLICY = DIRECTIONS = ("policy_to_initial", "initial_to_policy")
_LIMIT = 20.0  # of exponents, as in rpg.losses
_ROWS = 256


class DriftMeter:
    """Measures the checkpoints that one process evaluates; keeps the initial models and their
    samples."""

    def __init__(self, home: Path, say: Callable[[str], None]):
        self.home, self.say = home, say
        self._models: dict[str, Policy | None] = {}
        self._samples = defaultdict[str, dict[object, tuple[Sequence[Request], Samples]]](dict)

    def watch(self, engine: LocalEngine, spec: RunSpec, draws: Draws, step: int) -> None:
        """Have the terms of the responses that `engine` draws from now on stored."""
        engine.observe = None
        if (name := self._name(spec)) and (initial := self._model(name, spec)) and engine.policy:
            others = {POLICY_TO_INITIAL: initial}
            if step == 0:  # its responses are the initial model's
                others[INITIAL_TO_POLICY] = engine.policy
            engine.observe = self._keep(name, spec, draws, others)

    def measure(
        self,
        spec: RunSpec,
        draws: Draws,
        requests: Mapping[Key, Request],
        engine: Callable[[], Engine],
    ) -> dict[str, Any] | None:
        """{direction: :func:`summary`} of the responses to `requests`; None if it cannot be
        estimated.

        That is the case for engines other than `local` on this machine, for greedy sampling, and
        without the initial model. `engine` gives the watched one, and is not called if all terms
        are stored. Where some are not, responses are drawn again: the initial model's unless this
        process has them, the policy's if they were stored without terms.
        """
        if (name := self._name(spec)) is None:
            return None
        drift = {}
        for direction in DIRECTIONS:
            stored = draws.terms[f"{direction} {name}"]
            if missing := requests.keys() - stored.keys():
                if (initial := self._model(name, spec)) is None:
                    return None
                sampler = engine()
                assert isinstance(sampler, LocalEngine) and sampler.policy is not None
                if direction == INITIAL_TO_POLICY:
                    keep = self._keep(name, spec, draws, {direction: sampler.policy})
                    for part in [*self._samples[_shared(name, spec)].values()]:
                        if not missing.isdisjoint(map(stored_as, part[0])):
                            keep(*part)
                    sampler = copy(sampler)
                    sampler.policy, sampler.observe = initial, keep
                for _ in sampler.complete(
                    [asked for key, asked in requests.items() if key not in stored]
                ):
                    pass
            problems: dict[str, list[Sequence[float]]] = {}
            for key in requests:
                problems.setdefault(key.problem, []).append(stored[key])
            drift[direction] = summary([np.array(part) for part in problems.values()])
        return drift

    def _keep(
        self, name: str, spec: RunSpec, draws: Draws, others: Mapping[str, Policy]
    ) -> Callable[[Sequence[Request], Samples], None]:
        """What stores the terms of samples, direction -> the policy that did not draw them."""

        def keep(requests: Sequence[Request], samples: Samples) -> None:
            keys = [stored_as(request) for request in requests]
            for direction, other in others.items():
                kl, rows = (
                    f"{direction} {name}",
                    terms(samples, other, spec.evaluation.temperature).tolist(),
                )
                draws.add({key: Terms(kl, row) for key, row in zip(keys, rows, strict=True)})
            if INITIAL_TO_POLICY in others:
                self._samples[_shared(name, spec)][requests[0].key] = requests, samples

        return keep

    def _name(self, spec: RunSpec) -> str | None:
        """What tells the initial model from others; None if there is none yet, or KLs to it are not
        measured."""
        model, how = spec.model, spec.evaluation
        if (
            how.temperature == 0
            or isinstance(how.place, OnRay)
            or isinstance(how.engine, VllmEngineSpec)
        ):
            return None
        if isinstance(model, PretrainedModel) and model.warm_start is None:
            folder = located(model.path, self.home)
            return (
                model_files_digest(folder, self.home)
                if folder
                else f"{model.path}@{model.revision}"
            )
        folder = warm_folder(spec, self.home)  # made by trainings, not by evaluations
        return model_files_digest(folder, self.home) if folder.exists() else None

    def _model(self, name: str, spec: RunSpec) -> Policy | None:
        # its tokenizer has the task's chat template
        key = f"{name} {chat_of(spec.task).model_dump_json()}"
        if key not in self._models:
            try:
                self._models[key] = initial_policy(spec, self.home, self.say)
            except UserError as error:
                self.say(f"warning: KL to the initial model is not measured: {error}")
                self._models[key] = None
        return self._models[key]


def _shared(name: str, spec: RunSpec) -> str:
    return f"{name} {Drawing.of(spec)} {chat_of(spec.task).model_dump_json()}"


def terms(samples: Samples, other: Policy, temperature: float) -> Array:
    """(responses, 3): the sums of -log y and of y - 1, and the number of tokens. `samples` come
    with their sampler's log-probabilities; `other` has the temperature of the samples, too."""
    batch = samples.batch
    sums = torch.zeros(len(batch), 2, dtype=torch.float64)
    with torch.no_grad():
        for rows in torch.arange(len(batch), device=batch.lengths.device).split(_ROWS):
            part = batch.rows(rows)
            log_ratio = (
                other.log_probs(part, temperature) - samples.log_prob[rows, : part.tokens.shape[1]]
            )
            values = torch.stack([-log_ratio, torch.expm1(log_ratio.clamp(-_LIMIT, _LIMIT))], -1)
            values = torch.where(part.mask[..., None], values, 0).cpu()  # not every GPU has float64
            sums[rows.cpu()] = values.double().sum(1)
    return np.concatenate([sums.numpy(), batch.written.cpu().double().numpy()[:, None]], 1)


def summary(problems: Sequence[Array]) -> dict[str, Any]:
    """{per_response, per_response_se, per_token, per_token_se, responses, problems} in nats, of the
    :func:`terms` of each problem's responses."""
    responses = np.concatenate(problems)
    spread = responses[:, 1].var()
    covariance = np.cov(responses[:, 0], responses[:, 1], ddof=0)[0, 1]
    multiple = float(np.clip(-covariance / spread, 0, 1)) if spread > 0 else 0.0
    means = np.stack([(part[:, 0] + multiple * part[:, 1]).mean() for part in problems])
    sizes = np.stack([part[:, 2].mean() for part in problems])
    kl, tokens = means.mean(), sizes.mean()
    per_token = kl / tokens
    residuals = (
        means - per_token * sizes
    ) / tokens  # their spread is the error of a ratio of means
    of_response = {"per_response": float(kl), "per_response_se": _error(means)}
    of_token = {"per_token": float(per_token), "per_token_se": _error(residuals)}
    return {**of_response, **of_token, "responses": len(responses), "problems": len(problems)}


def _error(values: Array) -> float | None:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
