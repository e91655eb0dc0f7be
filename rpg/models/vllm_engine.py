"""vLLM in this process, a seed for every response: what evaluation's engine and the trainer's
rollouts share."""

import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rpg.config.evaluation import VllmEngineSpec
from rpg.errors import install_command
from rpg.models.model_loading import ModelError
from rpg.models.truncated_sampling import Sampling

VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM has kernels for; adapters of a lower rank take the next."""


class Vllm:
    """vLLM for one model at a time, without child processes.

    Attributes:
        llm: vLLM's `LLM`; None before :meth:`begin` and after :meth:`close`.
        stop: the tokens that end a response.
        adapters: vLLM's `LoRARequest` for what is drawn with adapters beside the weights.
    """

    def __init__(
        self, section: str, spec: VllmEngineSpec, sampling: Sampling, bfloat16: bool = False
    ):
        """The engine of one section of a run. Raises ModelError: vLLM is not installed."""
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing is sent anywhere
        # Without child processes, there are no orphans, and killing this process frees the device.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        # GiB. On CPUs it would otherwise take `gpu_memory_utilization` of the machine's memory, and
        # refuse to start if that is not free.
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        try:
            import vllm.platforms  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ModelError(
                f"{section}.engine: vllm cannot be imported ({error}); "
                f"{install_command('vllm')}, or choose {{type: local}}"
            ) from error
        self._vllm = vllm
        self._is_cpu = vllm.platforms.current_platform.is_cpu()
        self.sampling = sampling
        self.spec = spec
        self.dtype = "bfloat16" if bfloat16 else "float32"
        self.llm: Any = None
        self.stop: list[int] = []
        self.adapters: Any = None
        self._adapters_used = 0
        self._round = 0
        """Counts calls of `outputs`, to tell the responses of this call from those of earlier ones.
        """

    def begin(self, path: str, revision: str | None = None, **settings: object) -> None:
        """Start with the model in this folder or of this name on the hub; `settings` of vLLM's
        `LLM` beside ours."""
        self.close()
        self.adapters = None
        longest = self.sampling.max_prompt_tokens + self.sampling.max_response_tokens
        how: dict[str, object] = {"enforce_eager": self.spec.enforce_eager}
        if self._is_cpu:
            how = {
                # Compiling the model takes longer than evaluating a model that fits a CPU.
                "enforce_eager": True,
                # With a prompt that spans two batches, vLLM samples a token too early and rewinds
                # the sample's generator (0.28, gpu_model_runner.py:3825); torch's generator for
                # CPUs cannot rewind, which ends the evaluation.
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(4096, longest),
            }
        self.llm = self._vllm.LLM(
            model=path,
            revision=revision,
            dtype=self.dtype,
            seed=0,
            max_model_len=longest,
            tensor_parallel_size=self.spec.tensor_parallel,
            gpu_memory_utilization=self.spec.gpu_memory_utilization,
            # a model's own settings (top-k, penalties) would change what is measured
            generation_config="vllm",
            # A cached prefix may round differently from a computed one, but a rerun must give the
            # same samples.
            enable_prefix_caching=False,
            **how,
            **settings,
        )

    def reload(self, **source: object) -> None:
        """Put other weights of the same shapes into the running model, named as in a checkpoint:
        those of a folder (`weights_path`), or pairs of name and tensor (`weights_iterator`).
        """
        self.llm.collective_rpc("reload_weights", kwargs=source)
        if self._is_cpu:
            self.llm.apply_model(_pack_output_layer)

    def use_adapters(self, folder: Path) -> None:
        """Draw from here on with the adapters in this folder, beside the weights; each call is of
        other adapters, even if the folder is the same."""
        from vllm.lora.request import LoRARequest  # noqa: PLC0415

        if self.adapters is not None:
            self.llm.llm_engine.remove_lora(self.adapters.lora_int_id)
        self._adapters_used += 1
        number = self._adapters_used
        self.adapters = LoRARequest(f"adapters-{number}", number, str(folder))

    def outputs(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **more: object
    ) -> Iterator[list[tuple[int, Any]]]:
        """Lists of (row, vLLM's output for it), as they are finished. Row i answers the token ids
        `prompts[i]`; its random numbers follow from `seeds[i]`; `more` of vLLM's `SamplingParams`.
        """
        engine = self.llm.llm_engine
        self._round += 1
        waiting = {f"{self._round}-{row}": row for row in range(len(prompts))}
        try:
            for name, ids, seed in zip(waiting, prompts, seeds, strict=True):
                engine.add_request(
                    name,
                    {"prompt_token_ids": ids},
                    self._parameters(seed, more),
                    lora_request=self.adapters,
                )
            while waiting:
                finished = [
                    out for out in engine.step() if out.finished and out.request_id in waiting
                ]
                if finished:
                    yield [(waiting.pop(out.request_id), out.outputs[0]) for out in finished]
        finally:  # after an interruption nothing is left for the next call
            if waiting:
                engine.abort_request(list(waiting))

    def _parameters(self, seed: int, more: dict[str, object]) -> Any:
        greedy = self.sampling.temperature == 0
        r = self.sampling.restriction
        return self._vllm.SamplingParams(
            temperature=self.sampling.temperature,
            max_tokens=self.sampling.max_response_tokens,
            **asdict(r) | {"top_k": r.top_k or -1, "stop": list(r.stop)},  # named as in vLLM
            skip_special_tokens=False,  # a stop string may be one
            stop_token_ids=self.stop,
            seed=None if greedy else seed,
            detokenize=bool(r.stop),
            **more,
        )

    def close(self) -> None:
        self.llm = None
        gc.collect()


def adapter_settings(rank: int) -> dict[str, Any]:
    """What vLLM's `LLM` needs to draw with adapters of this rank beside the weights."""
    highest = next((kernel for kernel in VLLM_RANKS if kernel >= rank), rank)
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": highest}


def _pack_output_layer(model: Any) -> None:
    """On a CPU, vLLM computes with repacked weights. An output layer that shares the embedding's
    keeps what was packed when the model was started (0.28, layerwise.py:238: it has loaded
    nothing).
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead  # noqa: PLC0415

    for layer in model.modules():
        if isinstance(layer, ParallelLMHead):
            layer.quant_method.process_weights_after_loading(layer)
