"""Responses drawn by vLLM in the trainer's process (`rollout.engine`), with the weights of the
policy that samples."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch

from rpg.backends.progress_reporter import Progress
from rpg.config.evaluation import VllmEngineSpec
from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.models import seeds
from rpg.models.decoding import Batch, Samples
from rpg.models.lora import merged
from rpg.models.policy import Policy
from rpg.models.truncated_sampling import Sampling, restriction_of
from rpg.models.vllm_engine import Vllm


class VllmRollout(Vllm):
    """vLLM, which starts at the first rollout. On a GPU it sleeps between rollouts and gives its
    memory back."""

    def __init__(self, spec: RunSpec, engine: VllmEngineSpec):
        """Raises ModelError: vLLM is not installed."""
        r, self.group_size = spec.rollout, spec.rollout.group_size
        # Else it moves this process, and with it the training, to cores of its own choice.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        # Else it warns at every step of layers that have no weights of their own.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        sampling = Sampling(
            r.temperature, r.max_prompt_tokens, r.max_response_tokens, restriction_of(r)
        )
        # Adapters are merged, which bfloat16 would round away.
        rounds = bfloat16(spec.model) and spec.model.lora is None
        super().__init__("rollout", engine, sampling, rounds)

    @contextmanager
    def holding(self, policy: Policy) -> Iterator[None]:
        """As long as the context lasts, responses are drawn from `policy`, adapters merged, as it
        is at the beginning."""
        cuda = policy.device.type == "cuda"
        if self.llm is None:
            self.stop = policy.stop
            with tempfile.TemporaryDirectory() as folder:
                policy.model.config.save_pretrained(folder)
                policy.tokenizer.save_pretrained(folder)
                # Random weights at first; log-probabilities at the temperature.
                how = {"load_format": "dummy", "logprobs_mode": "processed_logprobs"}
                self.begin(folder, enable_sleep_mode=cuda, **how)
        elif cuda:
            torch.cuda.empty_cache()  # what the updates have left
            self.llm.wake_up()
        self.reload(weights_iterator=iter(merged(policy.model).items()))
        yield
        if cuda:
            self.llm.sleep(level=1)

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
        for row, output in chain.from_iterable(self.drawn(asked, numbers, logprobs=0)):
            ids = output.token_ids
            size = len(output.token_ids)
            lengths[row], truncated[row] = size, output.finish_reason == "length"
            tokens[row, :size] = torch.tensor(ids)
            values = [at[i].logprob for at, i in zip(output.logprobs, ids, strict=True)]
            log_prob[row, :size] = torch.tensor(values)
            progress.done, progress.tokens = progress.done + 1, progress.tokens + size
            progress.share = progress.done / rows
        width = int(lengths.max())
        device = policy.device
        prompt_of = torch.arange(rows, device=device) // self.group_size
        batch = Batch(
            [list(p) for p in prompts], prompt_of, tokens[:, :width].to(device), lengths.to(device)
        )
        drawn = log_prob[:, :width].to(device)
        return Samples(batch, drawn, -drawn, truncated.to(device))
