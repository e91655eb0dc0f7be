"""The scorer of a run: its verifier, its reward functions and its reward models."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerBase

from rpg.config.reward import CorrectnessReward, ModelReward, RewardSection
from rpg.config.run_spec import RunSpec
from rpg.config.task import chat_of
from rpg.models import seeds
from rpg.models.model_loading import ModelError, complete
from rpg.tasks import verifier_of
from rpg.tasks.rewards.scoring import Answered, Judge, Scorer, Sources


class ErrorSettings(Protocol):
    """What decides about errors of grading: a run, or the settings of a verl job."""

    @property
    def reward(self) -> Sequence[RewardSection]: ...

    @property
    def seed(self) -> int: ...


def scorer_of(spec: RunSpec, sources: Sources | None = None) -> Scorer:
    """The scorer of a run. `sources` of its reward functions are those in its manifest; None reads
    them from disk. Raises RewardError, ConfigError: the source of a function is missing;
    ModelError: a reward model cannot be used.
    """
    return Scorer(
        verifier_of(spec.task),
        spec.reward,
        max_response_tokens=spec.rollout.max_response_tokens,
        sources=sources,
        models=partial(judge, device=spec.backend.device),
        prefix=chat_of(spec.task).prefix,
        prefix_every_turn=getattr(spec.task, "reply", "") is None,
    )


def error_draw(
    spec: ErrorSettings, place: tuple[int, int, int], problem: str, response: str
) -> float | None:
    """The number that decides whether the verdict on a response of a rollout is turned; None where
    no verdict is.

    `place` is the response's step, round and row. Equal for equal arguments, so that a resumed run
    and the other back end make the same errors.
    """
    for part in spec.reward:
        if not isinstance(part, CorrectnessReward):
            continue
        errors = part.corrupt
        if errors.false_positive or errors.false_negative:
            key = place if errors.by == "sample" else (problem, response)
            return seeds.number(spec.seed, "grading error", *key) / 2**63
    return None


def judge(part: ModelReward, device: str = "cpu") -> Judge:
    """A reward model as a function of responses. The reward is the one output of the classifier,
    unchanged.

    Prompt and response are formatted by the chat template of the model's tokenizer, or concatenated
    without one. Raises ModelError: it cannot be loaded, or is not a sequence classifier with one
    output.
    """
    try:
        how = {"revision": part.revision, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(part.path, **how)
        model = complete(AutoModelForSequenceClassification, part.path, **how)
    except (OSError, ValueError, KeyError, ModelError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"reward.path: {part.path} cannot be loaded as a reward model: {first}"
        ) from error
    if model.config.num_labels != 1:
        raise ModelError(
            f"reward.path: {part.path} has {model.config.num_labels} outputs; expected a "
            "sequence classifier with one"
        )
    # Padding after the text never changes the output; truncation removes the start, because the
    # response is at the end.
    tokenizer.padding_side, tokenizer.truncation_side = "right", "left"
    pads = tokenizer.pad_token_id is not None
    if pads:
        model.config.pad_token_id = tokenizer.pad_token_id
    rows = part.rows if pads else 1
    model.to(device).eval()

    def values(answered: Sequence[Answered]) -> list[float]:
        rewards: list[float] = []
        for start in range(0, len(answered), rows):
            texts = [_conversation(tokenizer, answer) for answer in answered[start : start + rows]]
            special = not tokenizer.chat_template  # a template writes its special tokens itself
            layout = {"padding": pads, "truncation": True, "add_special_tokens": special}
            inputs = tokenizer(texts, return_tensors="pt", **layout)
            with torch.inference_mode():
                logits = model(**{name: value.to(device) for name, value in inputs.items()}).logits
            rewards += logits[:, 0].float().tolist()
        return rewards

    return values


def _conversation(tokenizer: PreTrainedTokenizerBase, answered: Answered) -> str:
    prompt = answered.prompt
    response = answered.response
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not tokenizer.chat_template:
        return "\n".join([*(message["content"] for message in messages), response])
    messages.append({"role": "assistant", "content": response})
    return str(tokenizer.apply_chat_template(messages, tokenize=False))
