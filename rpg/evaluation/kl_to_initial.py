"""How far a policy has moved from its initial model: the KL in both directions, in each evaluation.

KL(policy || initial) is a mean over the responses of the evaluation, KL(initial || policy) over the
initial model's responses to the same problems. Both are exact at every prefix of these responses
(rpg.evaluation.whole_kl).

The numbers follow from the responses of this evaluation alone, in their order: other sweeps that
share the data folder, and ends in the middle, change nothing.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rpg.config.evaluation import OnRay, VllmEngineSpec
from rpg.config.model import PretrainedModel, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import chat_of
from rpg.errors import UserError
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import Engine, Request
from rpg.evaluation.graded_samples import as_draw, draw_missing
from rpg.evaluation.whole_kl import response_kl, summary
from rpg.models.decoding import Batch
from rpg.models.initial_policy import folder_with_chat_template, initial_policy
from rpg.models.policy import Policy
from rpg.models.tokenizer import encode_prompts
from rpg.models.truncated_sampling import Sampling
from rpg.models.warm_start_cache import warm_folder
from rpg.store.draws import Draw, Draws, Key, digest

ESTIMATOR = "whole distributions"
"""In the files: numbers of older versions, which lack it, were too small."""

Drift = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Initial:
    """An initial model as a source of responses."""

    model: str | Path
    """Its folder, or its name on the hub."""
    revision: str | None
    template: str
    """The task's chat template, which its tokenizer is given."""

    @classmethod
    def of(cls, spec: RunSpec, home: Path) -> "Initial | None":
        """None if there is none yet: trainings make it, and not evaluations."""
        template = chat_of(spec.task).model_dump_json()
        model = spec.model
        if not isinstance(model, PretrainedModel) or model.warm_start is not None:
            folder = warm_folder(spec, home)
            return cls(folder, None, template) if folder.exists() else None
        local = located(model.path, home)
        if local:
            return cls(folder_with_chat_template(spec, home, local), None, template)
        return cls(model.path, f"{model.revision} {digest(template)}", template)


class DriftMeter:
    """Measures the checkpoints that one process evaluates; keeps the initial models, and what equal
    checkpoints have in common."""

    def __init__(self, home: Path, say: Callable[[str], None]):
        self.home = home
        self.say = say
        self._models: dict[Initial, Policy | None] = {}
        self._measured: dict[str, Drift] = {}

    def measure(
        self,
        spec: RunSpec,
        draws: Draws,
        requests: Mapping[Key, Request],
        engine: Callable[[], Engine],
    ) -> Drift | None:
        """{direction: estimate} of the responses to `requests`, which are in `draws`; None if it
        cannot be measured.

        That is the case for greedy sampling, for engines other than `local` on this machine, and
        without the initial model. `engine` gives the one with the checkpoint. The initial model's
        responses are drawn once and stored, as are tokens of responses that an older version
        stored without them.
        """
        initial = self._initial(spec)
        if initial is None:
            return None
        name = digest([draws.key, str(initial), [list(key) for key in requests]])
        if name not in self._measured:
            drift = self._measure(spec, initial, draws, requests, engine)
            if drift is None:
                return None
            self._measured[name] = drift
        return self._measured[name]

    def _measure(
        self,
        spec: RunSpec,
        initial: Initial,
        draws: Draws,
        requests: Mapping[Key, Request],
        engine: Callable[[], Engine],
    ) -> Drift | None:
        first = self._model(initial, spec)
        if first is None:
            return None
        ours = engine()
        assert isinstance(ours, LocalEngine) and ours.policy is not None
        theirs = copy(ours)
        theirs.policy = first
        of_initial = Drawing.of(spec).draws(self.home, initial.model, initial.revision)
        draw_missing(lambda: theirs, requests, of_initial)
        drift = {}
        for direction, sampler, other, stored in (
            ("policy_to_initial", ours, first, draws),
            ("initial_to_policy", theirs, ours.policy, of_initial),
        ):
            responses = _with_tokens(sampler, requests, stored)
            if responses is None:
                self.say(
                    "warning: KL to the initial model is not measured: responses that an older "
                    "version stored are drawn differently on this machine"
                )
                return None
            assert sampler.policy is not None
            batch = _batch(sampler.policy, requests, responses, ours.sampling)
            values = response_kl(sampler.policy, other, batch, ours.sampling)
            problems: dict[str, list[int]] = {}
            for row, key in enumerate(requests):
                problems.setdefault(key.problem, []).append(row)
            estimate = summary([values[rows] for rows in problems.values()])
            drift[direction] = {"estimator": ESTIMATOR, **asdict(estimate)}
        return drift

    def _initial(self, spec: RunSpec) -> Initial | None:
        how = spec.evaluation
        if how.temperature == 0:
            return None
        if isinstance(how.place, OnRay) or isinstance(how.engine, VllmEngineSpec):
            return None
        return Initial.of(spec, self.home)

    def _model(self, initial: Initial, spec: RunSpec) -> Policy | None:
        if initial not in self._models:
            try:
                self._models[initial] = initial_policy(spec, self.home, self.say)
            except UserError as error:
                self.say(f"warning: KL to the initial model is not measured: {error}")
                self._models[initial] = None
        return self._models[initial]


def _with_tokens(
    engine: LocalEngine, requests: Mapping[Key, Request], draws: Draws
) -> list[Draw] | None:
    """The responses to `requests` with their tokens, drawn again where they were stored without;
    None if one of these comes out differently."""
    stored = draws.read()
    without = [key for key in requests if stored[key].ids is None]
    for finished in engine.complete([requests[key] for key in without]) if without else ():
        draws.add({without[place]: as_draw(completion) for place, completion in finished})
    stored = draws.read()
    responses = [stored[key] for key in requests]
    return None if any(draw.ids is None for draw in responses) else responses


def _batch(
    policy: Policy, requests: Mapping[Key, Request], responses: list[Draw], sampling: Sampling
) -> Batch:
    """Stored responses as the policy's tensors, in the order of the requests."""
    prompts: list[list[int]] = []
    prompt_of = []
    row_of: dict[Any, int] = {}
    for (key, request), draw in zip(requests.items(), responses, strict=True):
        name = key.prompt if draw.prompt_ids is None else tuple(draw.prompt_ids)
        if name not in row_of:
            row_of[name] = len(prompts)
            if draw.prompt_ids is None:
                longest = sampling.max_prompt_tokens
                prompts += encode_prompts(policy.tokenizer, [request.prompt], longest)
            else:
                prompts.append(list(draw.prompt_ids))
        prompt_of.append(row_of[name])
    lengths = torch.tensor([len(draw.ids or ()) for draw in responses])
    tokens = torch.zeros(len(responses), int(lengths.max()), dtype=torch.long)
    heard = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, draw in enumerate(responses):
        tokens[row, : lengths[row]] = torch.tensor(list(draw.ids or ()))
        heard[row, list(draw.heard or ())] = True
    device = policy.device
    return Batch(
        prompts,
        torch.tensor(prompt_of, device=device),
        tokens.to(device),
        lengths.to(device),
        heard=heard.to(device) if heard.any() else None,
    )
