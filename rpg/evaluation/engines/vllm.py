"""vLLM as an engine: continuous batching, one engine for all checkpoints with the same shapes."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from rpg.config.evaluation import VllmEngineSpec
from rpg.errors import first_line
from rpg.evaluation.engines.protocol import Completion, EngineError, Request
from rpg.models import seeds
from rpg.models.beside_base import is_beside_base, load_beside_base, load_model
from rpg.models.decoding import ignore_progress
from rpg.models.lora import FOLDER, has_adapters, peft_config, save_base
from rpg.models.model_loading import shape_of
from rpg.models.special_tokens import stop_tokens
from rpg.models.tokenizer import encode_prompts
from rpg.models.truncated_sampling import Sampling
from rpg.models.vllm_engine import Vllm, adapter_settings


class VllmEngine(Vllm):
    """vLLM in this process. The weights of later checkpoints are loaded into the running engine if
    possible."""

    def __init__(self, sampling: Sampling, spec: VllmEngineSpec, bfloat16: bool = False):
        super().__init__("evaluation", spec, sampling, bfloat16)
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self.own_dtype = self.dtype
        self.tell: Callable[[int, int], None] = ignore_progress
        self._config = b""
        self._beside: tuple[bytes, ...] | None = None
        """The shapes and the base of the adapters that are evaluated beside a base of 4 bits."""

    def load(self, model: str | Path, revision: str | None = None) -> None:
        local = Path(model).expanduser()
        path = str(local) if local.exists() else str(model)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(
                path, revision=revision, trust_remote_code=False
            )
            if is_beside_base(path):
                self._load_beside_base(local)
            else:
                self._load_whole(path, revision)
        except Exception as error:  # vLLM, the hub and the loaders raise many kinds
            raise EngineError(f"vllm cannot load {path!r}: {first_line(error)}") from error
        try:
            load = GenerationConfig.from_pretrained
            generation_config = load(path, revision=revision, trust_remote_code=False)
        except OSError:  # the model has none
            generation_config = None
        self.stop = stop_tokens(self.tokenizer, generation_config)

    def _load_whole(self, path: str, revision: str | None) -> None:
        if has_adapters(path):  # merged in float32, which bfloat16 would round away
            self.dtype = "float32"
        else:
            self.dtype = self.own_dtype
        self._beside = None
        if self.llm is None or self.adapters or not self._reload(path, revision):
            self.begin(path, revision)
            config = Path(path) / "config.json"
            self._config = config.read_bytes() if config.is_file() else b""

    def _load_beside_base(self, checkpoint: Path) -> None:
        """Adapters alone. vLLM gets the base as products have it, taken out of 4 bits, and in
        bfloat16 the adapters beside it; in float32 they are merged."""
        self.dtype = self.own_dtype
        self._config = b""
        merges = self.dtype == "float32"
        shape = shape_of(checkpoint)
        if merges or self.llm is None or shape != self._beside:
            how: dict[str, Any] = {}
            with tempfile.TemporaryDirectory() as folder:
                if merges:
                    model, tokenizer = load_model(checkpoint)
                else:
                    model, tokenizer = load_beside_base(checkpoint)
                    how = adapter_settings(peft_config(model)["r"])
                model.config.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                save_base(model, Path(folder))
                del model
                self.begin(folder, **how)
            self._beside = shape
        if not merges:
            self.use_adapters(checkpoint / FOLDER)

    def _reload(self, path: str, revision: str | None) -> bool:
        """Load weights of the same shapes into the running engine; False if that is not
        possible."""
        config = Path(path) / "config.json"
        if revision is not None or not config.is_file() or config.read_bytes() != self._config:
            return False
        self.reload(weights_path=path)
        return True

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        prompts = [request.prompt for request in requests]
        encoded = encode_prompts(self.tokenizer, prompts, self.sampling.max_prompt_tokens)
        for finished in self.outputs(encoded, [seeds.number(*request.key) for request in requests]):
            yield [(index, self._completion(output)) for index, output in finished]

    def _completion(self, output: Any) -> Completion:
        assert self.tokenizer is not None
        ids = tuple(output.token_ids)
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return Completion(text, ids, output.finish_reason == "length")
