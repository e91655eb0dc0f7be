"""How responses are drawn from a model: an engine when one is needed, in this process or on a Ray
cluster, and the responses that are stored.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from rpg.config import evaluation
from rpg.config.evaluation import EngineSpec, OnRay, Place, VllmEngineSpec
from rpg.config.identity import leaves
from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.config.section import EVALUATES, registered
from rpg.config.task import EnvironmentTask
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.protocol import Engine, EngineError
from rpg.evaluation.engines.ray import RayEngine
from rpg.evaluation.engines.vllm import VllmEngine
from rpg.models.device import missing
from rpg.models.truncated_sampling import Sampling, evaluation_restriction
from rpg.store.checkpoints import model_files_digest
from rpg.store.draws import Draws

Say = Callable[[str], None]


class Drawing(NamedTuple):
    """All that a response depends on besides model, problem and number; and where the engine
    runs."""

    engine: EngineSpec
    place: Place | None
    sampling: Sampling
    seed: int
    device: str
    bfloat16: bool
    environment: Mapping[str, Any] | None = None
    """Of a task with turns: what they depend on."""

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """As a run's checkpoints are evaluated."""
        rollout = spec.rollout
        e = spec.evaluation
        lengths = rollout.max_prompt_tokens, rollout.max_response_tokens
        sampling = Sampling(e.temperature, *lengths, evaluation_restriction(spec))
        names = {
            "factory",
            "digest",
            "calls",
            "call",
            "markers",
            "reply",
            "reply_characters",
            "network",
        }
        talks = isinstance(spec.task, EnvironmentTask)
        turns = spec.task.model_dump(mode="json", include=names) if talks else None
        return cls(
            e.engine, e.place, sampling, spec.seed, spec.backend.device, bfloat16(spec.model), turns
        )

    def start(self, say: Say = print) -> Engine:
        """An engine where `place` says; its model comes with `load`. On a Ray cluster the place
        decides about the device; `say` reports what the cluster does. Raises ModelError: the
        engine's package is not installed; EngineError: there is no such device, or the cluster
        cannot be used.
        """
        begin = partial(_in_process, self.engine, self.sampling, self.bfloat16)
        if isinstance(self.place, OnRay):
            return RayEngine(begin, self.sampling, self.place, say)
        return begin(self.device)

    @contextmanager
    def when_needed(
        self, checkpoint: str | Path, revision: str | None, say: Say
    ) -> Iterator[Callable[[], Engine]]:
        """A function that gives the engine with the model, which starts at its first call."""
        with ExitStack() as at_end:

            @cache
            def engine() -> Engine:
                started = self.start(say)
                at_end.callback(started.close)
                started.load(checkpoint, revision)
                return started

            yield engine

    def draws(self, home: Path, checkpoint: str | Path, revision: str | None = None) -> Draws:
        """The stored responses of a model.

        It is known by the digest of its files, or on the hub by its commit (`revision`), never by a
        name alone. The digest covers the tokenizer, and with it the chat template.
        """
        folder = Path(checkpoint).expanduser()
        where = self.place
        sampling = self.sampling.record()
        del sampling["max_prompt_tokens"]  # a longer prompt is an error
        fields = leaves(self.engine, purpose=EVALUATES)
        engine = {leaf.dotted: leaf.value for leaf in fields if leaf.purpose is EVALUATES}
        device = self.device
        if isinstance(where, OnRay):
            device = "cuda" if where.gpus else "cpu"
        local = folder.is_dir()
        on_hub = f"{checkpoint}@{revision}"
        settings: dict[str, Any] = {
            "model": model_files_digest(folder, home) if local else on_hub,
            "engine": {"type": self.engine.type, **engine},
            "sampling": sampling,
            "seed": self.seed,
            "device": device,
            "bfloat16": self.bfloat16,
        }
        if self.environment is not None:
            settings["environment"] = self.environment
        return Draws(home, settings, folder if local else on_hub)


def _in_process(spec: EngineSpec, sampling: Sampling, bfloat16: bool, device: str) -> Engine:
    if isinstance(spec, VllmEngineSpec):
        return VllmEngine(sampling, spec, bfloat16)  # it chooses the device itself
    reason = missing(device)
    if reason:
        raise EngineError(f"device: {reason}")
    return _ENGINES[type(spec)](sampling, device, bfloat16, spec.rows)


_ENGINES: dict[type, Callable[..., Engine]] = {
    evaluation.LocalEngineSpec: LocalEngine,
    evaluation.HuggingFaceEngineSpec: LocalEngine,
    VllmEngineSpec: VllmEngine,
}
registered("engine", evaluation.ENGINES.values(), _ENGINES, "rpg/evaluation/drawing.py")
