"""vLLM as an engine: continuous batching, one engine for all checkpoints with the same shapes."""

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from rpg.config.evaluation import VllmEngineSpec
from rpg.errors import first_line, install_command
from rpg.evaluation.engines.protocol import Completion, EngineError, Request, Sampling
from rpg.models import seeds
from rpg.models.tokenizer import encode_prompts, stop_tokens


class VllmEngine:
    """vLLM in this process. The weights of later checkpoints are loaded into the running engine if possible."""

    def __init__(self, sampling: Sampling, spec: VllmEngineSpec, bfloat16: bool = False):
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing is sent anywhere
        # Without child processes, there are no orphans, and killing this process frees the device.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        # GiB. On CPUs it would otherwise take `gpu_memory_utilization` of the machine's memory, and refuse to start if
        # that is not free.
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        try:
            import vllm  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise EngineError(
                f"evaluation.engine: vllm cannot be imported ({error}); {install_command('vllm')}, or choose "
                "{type: local}"
            ) from error
        self._vllm = vllm
        self.sampling, self.spec = sampling, spec
        self.dtype = "bfloat16" if bfloat16 else "float32"
        self.llm: Any = None
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self._config = b""
        self._round = 0
        """Counts calls of `complete`, to tell the responses of this call from those of earlier ones."""

    def load(self, model: str | Path, revision: str | None = None) -> None:
        local = Path(model).expanduser()
        path = str(local) if local.exists() else str(model)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
            if self.llm is None or not self._reload(path, revision):
                self._start(path, revision)
        except Exception as error:  # vLLM, the hub and the loaders raise many kinds
            raise EngineError(f"vllm cannot load {path!r}: {first_line(error)}") from error
        try:
            load = GenerationConfig.from_pretrained
            generation_config = load(path, revision=revision, trust_remote_code=False)
        except OSError:  # the model has none
            generation_config = None
        self.stop = stop_tokens(self.tokenizer, generation_config)

    def _start(self, path: str, revision: str | None) -> None:
        from vllm.platforms import current_platform  # noqa: PLC0415 (optional)

        self.close()
        longest = self.sampling.max_prompt_tokens + self.sampling.max_response_tokens
        self.llm = self._vllm.LLM(
            model=path,
            revision=revision,
            dtype=self.dtype,
            seed=0,
            max_model_len=longest,
            tensor_parallel_size=self.spec.tensor_parallel,
            gpu_memory_utilization=self.spec.gpu_memory_utilization,
            generation_config="vllm",  # a model's own settings (top-k, penalties) would change what is measured
            # A cached prefix may round differently from a computed one, but a rerun must give the same samples.
            enable_prefix_caching=False,
            **(_on_cpu(longest) if current_platform.is_cpu() else {"enforce_eager": self.spec.enforce_eager}),
        )
        config = Path(path) / "config.json"
        self._config = config.read_bytes() if config.is_file() else b""

    def _reload(self, path: str, revision: str | None) -> bool:
        """Load weights of the same shapes into the running engine; False if that is not possible."""
        config = Path(path) / "config.json"
        if revision is not None or not config.is_file() or config.read_bytes() != self._config:
            return False
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
        return True

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        prompts = [request.prompt for request in requests]
        encoded = encode_prompts(self.tokenizer, prompts, self.sampling.max_prompt_tokens)
        engine, self._round = self.llm.llm_engine, self._round + 1
        waiting = {f"{self._round}-{index}": index for index in range(len(requests))}
        try:
            for name, request, ids in zip(waiting, requests, encoded, strict=True):
                engine.add_request(name, {"prompt_token_ids": ids}, self._parameters(request))
            while waiting:
                finished = [out for out in engine.step() if out.finished and out.request_id in waiting]
                if finished:
                    yield [(waiting.pop(o.request_id), self._completion(o.outputs[0])) for o in finished]
        finally:  # after an interruption nothing is left for the next evaluation
            if waiting:
                engine.abort_request(list(waiting))

    def _parameters(self, request: Request) -> Any:
        greedy, r = self.sampling.temperature == 0, self.sampling.restriction
        return self._vllm.SamplingParams(
            temperature=self.sampling.temperature,
            max_tokens=self.sampling.max_response_tokens,
            top_k=r.top_k or -1,
            top_p=r.top_p,
            min_p=r.min_p,
            min_tokens=r.min_tokens,
            stop=list(r.stop),
            skip_special_tokens=False,  # a stop string may be one
            stop_token_ids=self.stop,
            seed=None if greedy else seeds.number(*request.key),
            detokenize=bool(r.stop),
        )

    def _completion(self, output: Any) -> Completion:
        assert self.tokenizer is not None
        ids = tuple(output.token_ids)
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return Completion(text, ids, output.finish_reason == "length")

    def close(self) -> None:
        self.llm = None
        gc.collect()


def _on_cpu(longest: int) -> dict[str, object]:
    """Settings for CPUs; `longest` is the maximal length of prompt plus response, in tokens."""
    return {
        # Compiling the model takes longer than evaluating a model that fits a CPU.
        "enforce_eager": True,
        # With a prompt that spans two batches, vLLM samples a token too early and rewinds the sample's generator
        # (0.28, gpu_model_runner.py:3825); torch's generator for CPUs cannot rewind, which ends the evaluation.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(4096, longest),
    }
