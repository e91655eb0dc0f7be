"""What a run's responses earn: its verifier, its functions, and its reward models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from rpg.config.reward import ModelReward, RewardSection
from rpg.config.run_spec import RunSpec
from rpg.config.task import VerifierSection, chat_of
from rpg.models.model_loading import ModelError
from rpg.rewards.scoring import Answered, Judge, Scorer, Sources
from rpg.tasks import verifier_of


def scorer_of(spec: RunSpec, sources: Sources | None = None) -> Scorer:
    """The scorer of a run; `sources` are those of its reward functions in its manifest, None: those on disk.

    Raises:
        RewardError, ConfigError: a function's source is not there; ModelError: a reward model cannot be used.
    """
    return make_scorer(
        verifier_of(spec.task),
        spec.reward,
        spec.rollout.max_response_tokens,
        sources=sources,
        device=spec.backend.device,
        prefix=chat_of(spec.task).prefix,
    )


def make_scorer(
    verifier: VerifierSection,
    reward: Sequence[RewardSection],
    max_response_tokens: int,
    *,
    sources: Sources | None,
    device: str,
    prefix: str = "",
) -> Scorer:
    """The same from its parts."""
    return Scorer(
        verifier,
        reward,
        max_response_tokens=max_response_tokens,
        sources=sources,
        models=partial(judge, device=device),
        prefix=prefix,
    )


def judge(part: ModelReward, device: str = "cpu") -> Judge:
    """A reward model as a function of responses. Its value is the classifier's one output, as it is.

    Prompt and response go through the chat template of the model's tokenizer; without one, one after the other.

    Raises:
        ModelError: it cannot be loaded, or is no sequence classifier with one output.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(part.path, revision=part.revision)
        model = AutoModelForSequenceClassification.from_pretrained(
            part.path, revision=part.revision, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"reward.path: {part.path} is no reward model that can be loaded: {first}"
        ) from error
    if model.config.num_labels != 1:
        raise ModelError(
            f"reward.path: {part.path} has {model.config.num_labels} outputs; expected a sequence classifier with one"
        )
    # Behind the text padding changes nothing, whatever the model's positions; and a response is at the end.
    tokenizer.padding_side, tokenizer.truncation_side = "right", "left"
    pads = tokenizer.pad_token_id is not None
    if pads:
        model.config.pad_token_id = tokenizer.pad_token_id
    rows = part.rows if pads else 1
    model.to(device).eval()

    def values(answered: Sequence[Answered]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(answered), rows):
            texts = [_conversation(tokenizer, one) for one in answered[start : start + rows]]
            own = not tokenizer.chat_template  # a template writes its special tokens itself
            inputs = tokenizer(
                texts, return_tensors="pt", padding=pads, truncation=True, add_special_tokens=own
            )
            with torch.inference_mode():
                logits = model(**{name: value.to(device) for name, value in inputs.items()}).logits
            found += logits[:, 0].float().tolist()
        return found

    return values


def _conversation(tokenizer, one: Answered) -> str:
    asked = [{"role": "user", "content": one.prompt}] if isinstance(one.prompt, str) else list(one.prompt)
    if not tokenizer.chat_template:
        return "\n".join([*(message["content"] for message in asked), one.response])
    messages = [*asked, {"role": "assistant", "content": one.response}]
    return tokenizer.apply_chat_template(messages, tokenize=False)
