"""verl's reward of one response: our verifiers, and our punishment of overlong responses."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from omegaconf import OmegaConf
from transformers import GenerationConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rpg.backends.verl.settings import Settings
from rpg.rewards import Item, grader_for
from rpg.rewards.reward import overlong_punishment, reward


class VerifierManager(RewardManagerBase):
    """Grades responses as the embedded trainer does; named in the job's config (main.py)."""

    def __init__(self, config, tokenizer, compute_score=None, **_):
        super().__init__(config, tokenizer, compute_score)
        container = OmegaConf.to_container(config.actor_rollout_ref)
        self.settings = Settings.inside(container)
        self.stop = stop_tokens(container["model"]["path"], tokenizer)
        self.grader = grader_for(self.settings.verifier)
        # One thread: a grader is not for two at once, and answers that take long have a process of their own anyway.
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grader")

    async def run_single(self, data: DataProto) -> dict:
        """verl's contract: `data` holds one response; its reward, and what else is known about it."""
        row = data[-1]
        response = row.batch["responses"]
        length = int(row.batch["attention_mask"][-response.shape[-1] :].sum())
        tokens = response[:length].tolist()
        truth = row.non_tensor_batch["reward_model"]["ground_truth"]
        loop = asyncio.get_running_loop()
        correct, truncated, score = await loop.run_in_executor(self.thread, self.score, tokens, truth)
        known = {"acc": float(correct), "truncated": float(truncated)}
        return {"reward_score": score, "reward_extra_info": known}

    def score(self, tokens: list[int], truth: str) -> tuple[bool, bool, float]:
        """(correct, truncated, reward) of a response given as token ids, the end token included where there is one."""
        truncated = not tokens or tokens[-1] not in self.stop
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        (grade,) = self.grader.grade([Item(text, truth, truncated)])
        score = reward(grade.correct)
        overlong = self.settings.algorithm.overlong
        if overlong:
            limit = self.settings.max_response_tokens
            score += overlong_punishment(len(tokens), limit, overlong.buffer_fraction, overlong.factor)
        return grade.correct, truncated, score


def stop_tokens(model: str, tokenizer) -> set[int]:
    """Ids that end a response: those of the model's generation config and the tokenizer's end of sequence."""
    try:
        configured = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # a model without one
        configured = None
    ids = configured if isinstance(configured, list) else [configured]
    return {i for i in (*ids, tokenizer.eos_token_id) if i is not None}
