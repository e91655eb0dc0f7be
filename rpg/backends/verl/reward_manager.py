"""verl's reward of a response: that of the embedded trainer, with our penalty for overlong responses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import GenerationConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rpg.backends.verl.gathering import Gathering
from rpg.backends.verl.job_settings import JobSettings
from rpg.models.reward_models import judge
from rpg.models.tokenizer import Stopper, stop_tokens
from rpg.rewards.scoring import Answered, Scored, Scorer, overlong_punishment, parts_of
from rpg.store.atomic_files import atomic_write_text, read_json_object
from rpg.tasks import Problem
from rpg.tasks.preparation import problem_of

ERROR = "reward-error.txt"
"""Beside verl's checkpoints: why a reward could not be computed. verl only tells the driver that a response failed."""


class VerlResponse(NamedTuple):
    """One response as verl passes it: token ids, with the end token if there is one."""

    tokens: list[int]
    problem: Problem


class VerifierManager(RewardManagerBase):
    """Scores responses as the embedded trainer does; named in the job's configuration (main.py)."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any):
        super().__init__(config, tokenizer, compute_score)
        self.settings = JobSettings.inside(config.actor_rollout_ref)
        try:
            generation = GenerationConfig.from_pretrained(config.actor_rollout_ref.model.path)
        except OSError:  # a model without one
            generation = None
        self.stop = stop_tokens(tokenizer, generation)
        self.error = Path(config.trainer.default_local_dir).absolute() / ERROR
        manifest = self.settings.manifest
        self.scorer = Scorer(
            self.settings.verifier,
            self.settings.reward,
            max_response_tokens=self.settings.max_response_tokens,
            sources=read_json_object(manifest).get("rewards") or {} if manifest else None,
            models=judge,
            prefix=self.settings.prefix,
        )
        self.gathering = Gathering(self._score_or_tell)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """verl's contract: the reward of the one response in `data`, and how it was graded."""
        row = data[-1]
        response = row.batch["responses"]
        length = int(row.batch["attention_mask"][-response.shape[-1] :].sum())
        tokens, problem = response[:length].tolist(), _problem(row.non_tensor_batch)
        return await self.gathering.ask(VerlResponse(tokens, problem))

    def _score_or_tell(self, batch: Sequence[VerlResponse]) -> list[dict[str, Any]]:
        try:
            return self.score(batch)
        except Exception as error:
            self.error.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(self.error, f"{error}\n")
            raise

    def score(self, batch: Sequence[VerlResponse]) -> list[dict[str, Any]]:
        """What verl keeps about each response."""
        answered = [self._answered(response) for response in batch]
        scored = self.scorer.score(answered)
        parts = {} if self.scorer.plain else parts_of(scored)
        columns = {f"reward_{name}": values for name, values in parts.items()}
        rows = [{name: values[row] for name, values in columns.items()} for row in range(len(batch))]
        return [self._result(*row) for row in zip(scored, answered, rows, strict=True)]

    def _answered(self, response: VerlResponse) -> Answered:
        (tokens, problem), stop = response, self.settings.stop
        ended = tokens and (tokens[-1] in self.stop or (stop and Stopper(self.tokenizer, stop)([tokens])[0]))
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return Answered(text, len(tokens), not ended, problem.answer, problem.asked(), problem.columns)

    def _result(self, scored: Scored, answered: Answered, parts: dict[str, float]) -> dict[str, Any]:
        reward, overlong = scored.reward, self.settings.algorithm.overlong
        if overlong:
            limit = self.settings.max_response_tokens
            reward += overlong_punishment(answered.tokens, limit, overlong.buffer_fraction, overlong.factor)
        grade = {"acc": float(scored.grade.correct), "truncated": float(answered.truncated)}
        return {"reward_score": reward, "reward_extra_info": {**grade, "earned": scored.reward, **parts}}


def _problem(row: Any) -> Problem:
    """The problem of a row of the data that we prepare; of other data only the gold answer is known."""
    if "extra_info" not in row or "problem_id" not in (row["extra_info"] or {}):
        return Problem("", "", "", row["reward_model"]["ground_truth"], "")
    prompt = row.get("raw_prompt", [{"role": "user", "content": ""}])
    columns = {name: row[name] for name in ("extra_info", "reward_model")}
    return problem_of({**columns, "prompt": list(prompt), "ability": str(row.get("ability", ""))})
