"""verl's reward of a response: that of the embedded trainer, with our penalty for overlong
responses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rpg.backends.verl.gathering import Gathering
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.responses import Endings, place_of, problem_in, write_error
from rpg.models.reward_models import error_draw, judge
from rpg.store.atomic_files import read_json_object
from rpg.tasks import Problem
from rpg.tasks.rewards.scoring import Answered, Scored, Scorer, overlong_punishment


class VerlResponse(NamedTuple):
    """One response as verl passes it: token ids, with the end token if there is one."""

    tokens: list[int]
    problem: Problem
    turns: Mapping[str, Any] | None = None
    """What an agent loop with an environment says of it (agent_turns.py)."""
    place: tuple[int, int, int] | None = None
    """Step, round and row of a training response; None in verl's validation."""


class VerifierManager(RewardManagerBase):
    """Scores responses as the embedded trainer does; named in the job's configuration (main.py)."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any):
        super().__init__(config, tokenizer, compute_score)
        self.settings = JobSettings.inside(config.actor_rollout_ref)
        self.ended = Endings(tokenizer, config.actor_rollout_ref.model.path, self.settings.stop)
        manifest = self.settings.manifest
        self.scorer = Scorer(
            self.settings.verifier,
            self.settings.reward,
            max_response_tokens=self.settings.max_response_tokens,
            sources=read_json_object(manifest).get("rewards") or {} if manifest else None,
            models=judge,
            prefix=self.settings.prefix,
            prefix_every_turn=getattr(self.settings.task, "reply", "") is None,
        )
        self.gathering = Gathering(self._score_or_tell)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """verl's contract: the reward of the one response in `data`, and how it was graded."""
        row = data[-1]
        response = row.batch["responses"]
        length = int(row.batch["attention_mask"][-response.shape[-1] :].sum())
        tokens = response[:length].tolist()
        fields = row.non_tensor_batch
        turns = (fields.get("tool_extra_fields") or {}).get("turns")
        place = place_of(fields, self.settings.group_size)
        return await self.gathering.ask(VerlResponse(tokens, problem_in(fields), turns, place))

    def _score_or_tell(self, batch: Sequence[VerlResponse]) -> list[dict[str, Any]]:
        try:
            return self.score(batch)
        except Exception as error:
            write_error(self.config, error)
            raise

    def score(self, batch: Sequence[VerlResponse]) -> list[dict[str, Any]]:
        """What verl keeps about each response."""
        answered = [self._with_error_draw(response) for response in batch]
        scored = self.scorer.score(answered)
        parts = self.scorer.training_parts(scored)
        columns = {f"reward_{name}": values for name, values in parts.items()}
        rows = [
            {name: values[row] for name, values in columns.items()} for row in range(len(batch))
        ]
        return [self._result(*row) for row in zip(scored, answered, rows, strict=True)]

    def _with_error_draw(self, response: VerlResponse) -> Answered:
        answered = self._answered(response)
        if response.place is None:
            return answered
        problem = response.problem.id
        draw = error_draw(self.settings, response.place, problem, answered.response)
        return answered._replace(error_draw=draw)

    def _answered(self, response: VerlResponse) -> Answered:
        tokens, problem, turns, _ = response
        asked = problem.answer, problem.asked(), problem.columns
        if turns is not None:
            said = turns["said"]
            written = len(tokens) - turns["heard"]
            return Answered(
                "".join(said), written, turns["truncated"], *asked, said[-1], turns["earned"]
            )
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return Answered(text, len(tokens), not self.ended(tokens), *asked)

    def _result(
        self, scored: Scored, answered: Answered, parts: dict[str, float]
    ) -> dict[str, Any]:
        reward = scored.reward
        overlong = self.settings.algorithm.overlong
        if overlong:
            limit = self.settings.max_response_tokens
            reward += overlong_punishment(
                answered.tokens, limit, overlong.buffer_fraction, overlong.factor
            )
        grade = {"acc": float(scored.grade.correct), "truncated": float(answered.truncated)}
        return {
            "reward_score": reward,
            "reward_extra_info": {**grade, "earned": scored.reward, **parts},
        }
