"""A rollout server on the embedded trainer's decoder: token ids in, token ids out, as verl's
servers are.

The same weights, prompts and uniforms give the same responses as the embedded trainer.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import ray
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from rpg.backends.verl.gathering import Gathering
from rpg.models.decoding import SamplingPlan
from rpg.models.policy import Policy
from rpg.models.truncated_sampling import Restriction


class _Request(NamedTuple):
    prompt: list[int]
    limit: int
    temperature: float
    uniforms: list[float] | None
    restriction: Restriction
    logprobs: bool

    @property
    def kind(self) -> tuple[Any, ...]:
        """Requests of one kind can be decoded together."""
        return self.limit, self.temperature, self.uniforms is None, self.restriction


class Server:
    """One copy of the policy. verl calls its methods by name, as those of its own servers."""

    def __init__(self, path: str, response_length: int, threads: int):
        torch.set_num_threads(threads)
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa"
        )
        self.policy = Policy(model, AutoTokenizer.from_pretrained(path, trust_remote_code=False))
        self.response_length = response_length
        self.global_steps: int | None = None
        self.gathering = Gathering(self._decode, patient=True)

    async def ready(self) -> bool:
        return True

    async def load_weights(
        self, weights: dict[str, torch.Tensor], global_steps: int | None
    ) -> None:
        """Take over a policy's weights; the first call makes the server usable.

        Raises:
            KeyError: weights of another model.
        """
        model: Any = self.policy.model
        missing, unexpected = model.load_state_dict(weights, strict=False)
        tied = set(getattr(model, "all_tied_weights_keys", None) or model._tied_weights_keys or ())
        if unexpected or set(missing) - tied:
            raise KeyError(
                f"weights of another model: {sorted(set(missing) - tied)[:3]}, {unexpected[:3]}"
            )
        model.tie_weights()
        if global_steps is not None:
            self.global_steps = global_steps

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        temperature = float(sampling_params.get("temperature", 1.0))
        uniforms = sampling_params.get("uniforms")
        limit = int(sampling_params.get("max_tokens") or self.response_length)
        if temperature > 0 and uniforms is None:
            uniforms = torch.rand(limit).tolist()
        request = _Request(
            list(prompt_ids),
            limit,
            temperature if temperature > 0 else 1.0,
            uniforms if temperature > 0 else None,
            _restriction(sampling_params),
            bool(sampling_params.get("logprobs")),
        )
        return await self.gathering.ask(request)

    def _decode(self, requests: list[_Request]) -> list[TokenOutput]:
        if self.global_steps is None:
            raise RuntimeError("the rollout server has no weights yet")
        outputs: dict[int, TokenOutput] = {}
        for kind in dict.fromkeys(request.kind for request in requests):
            rows = [row for row, request in enumerate(requests) if request.kind == kind]
            outputs |= zip(
                rows, self._decode_together([requests[row] for row in rows]), strict=True
            )
        return [outputs[row] for row in range(len(requests))]

    def _decode_together(self, requests: list[_Request]) -> list[TokenOutput]:
        first = requests[0]
        uniforms = None
        if first.uniforms is not None:
            uniforms = torch.tensor([(r.uniforms or [])[: r.limit] for r in requests])
        plan = SamplingPlan(
            group_size=1,
            max_new_tokens=first.limit,
            uniforms=uniforms,
            temperature=first.temperature,
            restriction=first.restriction,
        )
        samples = self.policy.sample([r.prompt for r in requests], plan)
        lengths = samples.batch.lengths.tolist()
        return [
            TokenOutput(
                token_ids=samples.batch.tokens[row, :length].tolist(),
                log_probs=samples.log_prob[row, :length].tolist() if request.logprobs else None,
                stop_reason="completed",
                extra_fields={"global_steps": self.global_steps},
            )
            for row, (request, length) in enumerate(zip(requests, lengths, strict=True))
        ]

    async def abort_all_requests(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"aborted_count": 0, "request_ids": []}

    async def _no_op(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    # There is no memory to give back between rollouts, and nothing to profile.
    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = resume_generation = (
        _no_op
    )
    start_profile = stop_profile = _no_op


def _restriction(parameters: dict[str, Any]) -> Restriction:
    """From vLLM's sampling parameters, where a top_k of -1 or 0 is none."""
    top_k = int(parameters.get("top_k") or 0)
    return Restriction(
        top_k if top_k > 0 else None,
        float(parameters.get("top_p", 1.0)),
        float(parameters.get("min_p", 0.0)),
        stop=tuple(parameters.get("stop") or ()),
    )


def _actor_name(replica_rank: int) -> str:
    return f"rpg_rollout_server_{replica_rank}"


class Replica(RolloutReplica):
    """The server as verl's driver sees it."""

    async def launch_servers(self) -> None:
        name = _actor_name(self.replica_rank)
        server = (
            ray.remote(Server)
            .options(name=name, num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(
                self.model_config["path"],
                self.config.response_length,
                int(os.environ.get("OMP_NUM_THREADS", "1")),
            )
        )
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, name


class ServerAdapter(BaseRollout):
    """The server as a training worker sees it: where its weights go."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1):
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank

    def _server(self) -> Any:
        return ray.get_actor(_actor_name(self.replica_rank))

    async def resume(self, tags: list[str]) -> None:
        pass

    async def release(self) -> None:
        pass

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        copied = {}
        async for name, value in ensure_async_iterator(weights):
            copied[name] = value.detach().to("cpu", torch.float32).clone()
        await self._server().load_weights.remote(copied, global_steps)
