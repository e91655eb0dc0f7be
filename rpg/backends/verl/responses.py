"""What the agent loops and the grader of a verl job both know: a row's problem, whether a response
ended, why one failed."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerBase

from rpg.models.special_tokens import stop_tokens
from rpg.models.tokenizer import Stopper
from rpg.store.atomic_files import atomic_write_text
from rpg.tasks import Problem
from rpg.tasks.preparation import problem_of

ERROR = "reward-error.txt"
"""Beside verl's checkpoints: why a response could not be drawn or graded. verl only tells the
driver that one failed."""


_NAME = re.compile(r"s(\d+)r(\d+)p(\d+)")


def prompt_name(step: int, round_: int, place: int) -> str:
    """The uid of a prompt. No underscore: verl's keys are `<uid>_<response>_<turn>`."""
    return f"s{step}r{round_}p{place:05d}"


def place_of(row: Mapping[str, Any], group_size: int) -> tuple[int, int, int] | None:
    """Step, round and row of a training response, from the name of its prompt and its number in
    the group. None for a response of verl's validation, whose prompts have random names."""
    name = _NAME.fullmatch(str(row.get("uid")))
    if name is None:
        return None
    step, round_, place = map(int, name.groups())
    return step, round_, place * group_size + int(row["session_id"])


def problem_in(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of the data that we prepare; of other data only the gold answer is
    known."""
    if "problem_id" not in (row.get("extra_info") or {}):
        return Problem("", "", "", row["reward_model"]["ground_truth"], "")
    prompt = row.get("raw_prompt", [{"role": "user", "content": ""}])
    columns = {name: row[name] for name in ("extra_info", "reward_model")}
    return problem_of({**columns, "prompt": list(prompt), "ability": str(row.get("ability", ""))})


class Endings:
    """Whether the policy ended its text, or was cut off: with an end token of the model at `path`,
    or a stop text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, path: str, stop: Sequence[str]):
        try:
            generation = GenerationConfig.from_pretrained(path)
        except OSError:  # a model without one
            generation = None
        self._tokens = stop_tokens(tokenizer, generation)
        self._completed = Stopper(tokenizer, stop) if stop else None

    def __call__(self, tokens: Sequence[int]) -> bool:
        if not tokens:
            return False
        return tokens[-1] in self._tokens or bool(
            self._completed and self._completed([list(tokens)])[0]
        )


def write_error(config: Any, error: Exception) -> None:
    """Leave an error for the driver of the job with this configuration."""
    folder = Path(config.trainer.default_local_dir).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(folder / ERROR, f"{error}\n")
