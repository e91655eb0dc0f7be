"""verl's reward of a response: what it earns in the embedded trainer, and our punishment of overlong responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from transformers import GenerationConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rpg.backends.verl.job_settings import JobSettings
from rpg.models.reward_models import make_scorer
from rpg.models.stop_strings import Stopper
from rpg.rewards.scoring import Answered, Scored, overlong_punishment, parts_of
from rpg.store.atomic_files import atomic_write_text, read_json_object
from rpg.tasks import Problem
from rpg.tasks.preparation import problem_of

_GATHER_SECONDS = 0.02
"""Responses that come within this time are scored together."""
ERROR = "reward-error.txt"
"""Beside verl's checkpoints: why a reward could not be had. The driver is only told that a response failed."""


class Told(NamedTuple):
    """One response as verl hands it over: token ids, the end token included where there is one."""

    tokens: list[int]
    problem: Problem


class VerifierManager(RewardManagerBase):
    """Scores responses as the embedded trainer does; named in the job's config (main.py)."""

    def __init__(self, config, tokenizer, compute_score=None, **_):
        super().__init__(config, tokenizer, compute_score)
        container = OmegaConf.to_container(config.actor_rollout_ref)
        self.settings = JobSettings.inside(container)
        self.stop = stop_tokens(container["model"]["path"], tokenizer)
        self.error = Path(config.trainer.default_local_dir).absolute() / ERROR
        manifest = self.settings.manifest
        self.scorer = make_scorer(
            self.settings.verifier,
            self.settings.reward,
            self.settings.max_response_tokens,
            sources=read_json_object(manifest).get("rewards") or {} if manifest else None,
            device="cpu",
            prefix=self.settings.prefix,
        )
        self.waiting: list[tuple[Told, asyncio.Future]] = []
        self.work: asyncio.Task | None = None
        # One thread: a scorer is not for two at once, and what takes long has a process of its own anyway.
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scorer")

    async def run_single(self, data: DataProto) -> dict:
        """verl's contract: `data` holds one response; its reward, and what else is known about it."""
        row = data[-1]
        response = row.batch["responses"]
        length = int(row.batch["attention_mask"][-response.shape[-1] :].sum())
        told = Told(response[:length].tolist(), _problem(row.non_tensor_batch))
        answer: asyncio.Future = asyncio.get_running_loop().create_future()
        self.waiting.append((told, answer))
        if self.work is None or self.work.done():
            self.work = asyncio.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        while self.waiting:
            await asyncio.sleep(_GATHER_SECONDS)
            batch, self.waiting = self.waiting, []
            try:
                loop = asyncio.get_running_loop()
                results = await loop.run_in_executor(self.thread, self.score, [told for told, _ in batch])
            except Exception as error:
                self.error.parent.mkdir(parents=True, exist_ok=True)
                atomic_write_text(self.error, f"{error}\n")
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for (_, answer), result in zip(batch, results, strict=True):
                answer.set_result(result)

    def score(self, batch: Sequence[Told]) -> list[dict[str, Any]]:
        """What verl wants to know about each response."""
        answered = [self._answered(told) for told in batch]
        scored = self.scorer.score(answered)
        parts = {} if self.scorer.plain else parts_of(scored)
        return [
            self._result(one, told, {f"reward_{name}": values[row] for name, values in parts.items()})
            for row, (one, told) in enumerate(zip(scored, answered, strict=True))
        ]

    def _answered(self, told: Told) -> Answered:
        tokens, problem = told
        truncated = not tokens or (tokens[-1] not in self.stop and not self._came_to_stop(tokens))
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return Answered(text, len(tokens), truncated, problem.answer, problem.asked(), problem.columns)

    def _came_to_stop(self, tokens: list[int]) -> bool:
        return bool(self.settings.stop) and Stopper(self.tokenizer, self.settings.stop)([tokens])[0]

    def _result(self, scored: Scored, answered: Answered, parts: dict[str, float]) -> dict[str, Any]:
        reward, overlong = scored.reward, self.settings.algorithm.overlong
        if overlong:
            limit = self.settings.max_response_tokens
            reward += overlong_punishment(answered.tokens, limit, overlong.buffer_fraction, overlong.factor)
        known = {"acc": float(scored.grade.correct), "truncated": float(answered.truncated)}
        return {"reward_score": reward, "reward_extra_info": {**known, "earned": scored.reward, **parts}}


def _problem(row: Any) -> Problem:
    """The problem of a row of the data that we prepare; of others the gold answer is all that is known."""
    if "extra_info" not in row or "problem_id" not in (row["extra_info"] or {}):
        return Problem("", "", "", row["reward_model"]["ground_truth"], "")
    prompt = row.get("raw_prompt", [{"role": "user", "content": ""}])
    told = {name: row[name] for name in ("extra_info", "reward_model")}
    return problem_of({**told, "prompt": list(prompt), "ability": str(row.get("ability", ""))})


def stop_tokens(model: str, tokenizer) -> set[int]:
    """Ids that end a response: those of the model's generation config and the tokenizer's end of sequence."""
    try:
        configured = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # a model without one
        configured = None
    ids = configured if isinstance(configured, list) else [configured]
    return {i for i in (*ids, tokenizer.eos_token_id) if i is not None}
