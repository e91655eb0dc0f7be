"""Responses drawn by vLLM in the trainer's process (`rollout.engine`), with the weights of the
policy that samples."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from rpg.backends.progress_reporter import Progress
from rpg.config.evaluation import VllmEngineSpec
from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.models import seeds
from rpg.models.decoding import Batch, Samples
from rpg.models.lora import merged, save_adapters, save_base
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.models.truncated_sampling import Sampling, restriction_of
from rpg.models.vllm_engine import VLLM_RANKS, Vllm, adapter_settings


class VllmSampler(Vllm):
    """vLLM, which starts at the first rollout. On a GPU it sleeps between rollouts and gives its
    memory back."""

    _slept = False

    def __init__(self, spec: RunSpec, engine: VllmEngineSpec):
        """Raises ModelError: vLLM is not installed."""
        r = spec.rollout
        self.group_size = r.group_size
        # Else it moves this process, and with it the training, to cores of its own choice.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        # Else it warns at every step of layers that have no weights of their own.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        sampling = Sampling(
            r.temperature, r.max_prompt_tokens, r.max_response_tokens, restriction_of(r)
        )
        # Adapters stay beside bfloat16 weights, which would round them away. A rounded copy of the
        # policy (rollout.sampler) has them merged, in float32.
        half = bfloat16(spec.model)
        lora = spec.model.lora
        apart = half and lora is not None and r.sampler.dtype == "same"
        self.rank = lora.rank if lora is not None and apart else 0
        """Of adapters that vLLM multiplies with beside the weights; 0: there are none."""
        if self.rank > VLLM_RANKS[-1]:
            raise ModelError(
                f"model.lora.rank {self.rank}: vLLM takes at most {VLLM_RANKS[-1]}; "
                "accepted: a lower rank, or rollout.engine local"
            )
        super().__init__("rollout", engine, sampling, half and (lora is None or apart))

    @contextmanager
    def holding(self, policy: Policy) -> Iterator[None]:
        """A context in which responses are drawn from `policy`, as it is at the beginning."""
        cuda = policy.device.type == "cuda"
        if self.llm is None:
            self._start(policy, cuda)
        elif cuda:
            torch.cuda.empty_cache()  # what the updates have left
            # Memory for the weights first: the cache is not there yet while they are replaced.
            self.llm.wake_up(tags=["weights"])
        with tempfile.TemporaryDirectory() as folder:
            if self.rank:
                save_adapters(policy.model, Path(folder), "")
                self.use_adapters(Path(folder))
            else:
                self.reload(weights_iterator=iter(merged(policy.model).items()))
            if cuda and self._slept:
                self.llm.wake_up(tags=["kv_cache"])
            yield
        if cuda:
            # Level 1 copies the weights to the host: those of a frozen base are not sent again.
            self.llm.sleep(level=1 if self.rank else 2)
            self._slept = True

    def _start(self, policy: Policy, cuda: bool) -> None:
        """Start vLLM with the policy's shapes, and with adapters also with its base's weights."""
        self.stop = policy.stop
        how: dict[str, Any] = {"load_format": "dummy"}  # random weights at first
        with tempfile.TemporaryDirectory() as folder:
            policy.model.config.save_pretrained(folder)
            policy.tokenizer.save_pretrained(folder)
            if self.rank:
                save_base(policy.model, Path(folder))
                how = adapter_settings(self.rank)
            # Log-probabilities are those at the temperature.
            self.begin(folder, enable_sleep_mode=cuda, logprobs_mode="processed_logprobs", **how)

    def sample(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        key: tuple[object, ...],
        progress: Progress,
    ) -> Samples:
        """`rollout.group_size` responses to each prompt, row i from random numbers that follow from
        (*key, i), with the log-probabilities that vLLM computed. Their negatives, of the same mean,
        stand in for the entropies, which it does not tell.
        """
        rows = len(prompts) * self.group_size
        limit = self.sampling.max_response_tokens
        asked = [prompt for prompt in prompts for _ in range(self.group_size)]
        tokens = torch.zeros(rows, limit, dtype=torch.long)
        lengths = torch.zeros(rows, dtype=torch.long)
        log_prob = torch.zeros(rows, limit)
        truncated = torch.zeros(rows, dtype=torch.bool)
        numbers = [seeds.number(*key, row) for row in range(rows)]
        for row, output in chain.from_iterable(self.outputs(asked, numbers, logprobs=0)):
            ids = output.token_ids
            size = len(output.token_ids)
            lengths[row] = size
            truncated[row] = output.finish_reason == "length"
            tokens[row, :size] = torch.tensor(ids)
            values = [at[i].logprob for at, i in zip(output.logprobs, ids, strict=True)]
            log_prob[row, :size] = torch.tensor(values)
            progress.done += 1
            progress.tokens += size
            progress.share = progress.done / rows
        width = int(lengths.max())
        device = policy.device
        prompt_of = torch.arange(rows, device=device) // self.group_size
        batch = Batch(
            [list(p) for p in prompts], prompt_of, tokens[:, :width].to(device), lengths.to(device)
        )
        reported = log_prob[:, :width].to(device)
        return Samples(batch, reported, -reported, truncated.to(device))
