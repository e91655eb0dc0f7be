"""How responses are drawn from a model: an engine when one is needed, and the responses that are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rpg.config.evaluation import EngineSpec, OnRay, Place
from rpg.config.identity import leaves
from rpg.config.model import bfloat16
from rpg.config.run_spec import RunSpec
from rpg.config.section import EVALUATES
from rpg.config.task import EnvironmentTask
from rpg.evaluation.engines.factory import start_engine
from rpg.evaluation.engines.protocol import Engine, Sampling
from rpg.models.truncated_sampling import evaluation_restriction
from rpg.store.checkpoints import model_files_digest
from rpg.store.draws import Draws

Say = Callable[[str], None]


class Drawing(NamedTuple):
    """All that a response depends on besides model, problem and number; and where the engine runs."""

    engine: EngineSpec
    place: Place | None
    sampling: Sampling
    seed: int
    device: str
    bfloat16: bool
    environment: Mapping[str, Any] | None = None
    """Of a task with turns: what they depend on."""

    @classmethod
    def of(cls, spec: RunSpec) -> Drawing:
        """As a run's checkpoints are evaluated."""
        rollout, e = spec.rollout, spec.evaluation
        lengths = rollout.max_prompt_tokens, rollout.max_response_tokens
        sampling = Sampling(e.temperature, *lengths, evaluation_restriction(spec))
        names = {"factory", "digest", "calls", "call", "markers", "reply", "reply_characters", "network"}
        talks = isinstance(spec.task, EnvironmentTask)
        turns = spec.task.model_dump(mode="json", include=names) if talks else None
        return cls(e.engine, e.place, sampling, spec.seed, spec.backend.device, bfloat16(spec.model), turns)

    def start(self, say: Say) -> Engine:
        """An engine without a model, see start_engine."""
        return start_engine(self.engine, self.sampling, self.device, self.bfloat16, self.place, say)

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

        It is known by the digest of its files, or on the hub by its commit (`revision`), never by a name alone. The digest
        covers the tokenizer, and with it the chat template.
        """
        folder, where = Path(checkpoint).expanduser(), self.place
        sampling = self.sampling.record()
        del sampling["max_prompt_tokens"]  # a longer prompt is an error
        engine = {x.dotted: x.value for x in leaves(self.engine, kind=EVALUATES) if x.kind is EVALUATES}
        local, on_hub = folder.is_dir(), f"{checkpoint}@{revision}"
        settings: dict[str, Any] = {
            "model": model_files_digest(folder, home) if local else on_hub,
            "engine": {"type": self.engine.type, **engine},
            "sampling": sampling,
            "seed": self.seed,
            "device": ("cuda" if where.gpus else "cpu") if isinstance(where, OnRay) else self.device,
            "bfloat16": self.bfloat16,
        }
        if self.environment is not None:
            settings["environment"] = self.environment
        return Draws(home, settings, folder if local else on_hub)
