"""Supervised warm starts. A tiny model first learns an ability and then a behaviour that mostly
does not use it; a pretrained model learns only the behaviour."""

import random
import time
from collections.abc import Callable, Sequence

import torch

from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import TaskSection
from rpg.models.decoding import Batch, SamplingPlan
from rpg.models.micro_batches import Limits
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.models.positions import room_of
from rpg.models.special_tokens import last_token
from rpg.models.tokenizer import encode_prompts
from rpg.tasks import DataError, verifier_of
from rpg.tasks.problems import Demonstrations, Given
from rpg.tasks.rewards import Item, grader_for

# A change that gives another model for the same settings increments
# rpg.models.warm_start_cache.WARM_START_VERSION.
_SAY_SECONDS = 10.0
_MICRO_TOKENS = 2048
"""Prompt and response tokens of a micro-batch."""
_CHECK_EVERY = 25
_WARM_UP = 20
_SETTLE = 0.5
"""Above this accuracy, stage 1 lowers its learning rate in proportion to the remaining errors, down
to 5 %. Depending on the seed, learning takes off after 300 to 700 steps: no schedule in steps fits,
and with a constant rate some seeds never converge."""


Say = Callable[[str], None]


def warm_start(
    policy: Policy, task: TaskSection, demos: Demonstrations, warm: WarmStart, say: Say = print
) -> None:
    """Train `policy` in place and report progress to `say`. Raises ModelError: the target accuracy
    was not reached within warm.max_steps; DataError: a demonstration is longer than the model
    allows.
    """
    rng = random.Random(f"warm start {warm.seed}")
    optimizer = _ability(policy, task, demos, warm, rng, say)
    _decay(
        policy, optimizer, demos.ability, warm, warm.learning_rate, warm.consolidation_steps, rng
    )
    optimizer = _optimizer(policy, warm.behaviour_learning_rate)
    _decay(
        policy,
        optimizer,
        lambda rng: demos.behaviour(rng, warm),
        warm,
        warm.behaviour_learning_rate,
        warm.behaviour_steps,
        rng,
    )
    accuracy = _accuracy(policy, task, demos)
    say(
        f"warm start of seed {warm.seed}: done; the model has learnt the task and mostly does not "
        f"show it yet: training begins at accuracy {accuracy:.2f}"
    )


def supervised_start(
    policy: Policy, demos: Demonstrations, start: SupervisedStart, say: Say = print
) -> None:
    """Fine-tune `policy` in place on demonstrations and report progress to `say`. Raises DataError:
    a demonstration is longer than the model allows.
    """
    rng = random.Random(f"supervised start {start.seed}")
    optimizer = _optimizer(policy, start.learning_rate)
    began = reported = time.monotonic()

    def tell(step: int, loss: float) -> None:
        nonlocal reported
        if time.monotonic() - reported > _SAY_SECONDS or step == start.steps:
            reported = time.monotonic()
            left = (reported - began) / step * (start.steps - step)
            say(
                f"warm start: step {step} of {start.steps}, loss {loss:.3f} a token, about "
                f"{left:.0f} s left"
            )

    _decay(
        policy,
        optimizer,
        lambda rng: demos.behaviour(rng, start),
        start,
        start.learning_rate,
        start.steps,
        rng,
        tell,
    )


def _ability(
    policy: Policy,
    task: TaskSection,
    demos: Demonstrations,
    warm: WarmStart,
    rng: random.Random,
    say: Say,
) -> torch.optim.Optimizer:
    """Stage 1, up to the target accuracy."""
    optimizer = _optimizer(policy, warm.learning_rate)
    accuracy = best = 0.0
    for step in range(1, warm.max_steps + 1):
        factor = min(1.0, step / _WARM_UP) * min(1.0, max(0.05, (1 - accuracy) / _SETTLE))
        pairs = [demos.ability(rng) for _ in range(warm.batch_size)]
        _update(policy, optimizer, demonstration_batch(policy, pairs), warm.learning_rate * factor)
        if step % _CHECK_EVERY == 0 or step == warm.max_steps:
            accuracy = _accuracy(policy, task, demos)
            best = max(best, accuracy)
            if step % (4 * _CHECK_EVERY) == 0 or accuracy >= warm.target_accuracy:
                say(
                    f"warm start of seed {warm.seed}: step {step} of at most {warm.max_steps}, "
                    f"held-out accuracy {accuracy:.2f}, target {warm.target_accuracy}"
                )
            if accuracy >= warm.target_accuracy:
                return optimizer
    raise ModelError(
        f"model.warm_start: held-out accuracy {best:.2f} after max_steps={warm.max_steps} "
        "steps, the target_accuracy "
        f"is {warm.target_accuracy}; another seed, more steps or a larger model may reach it"
    )


def _decay(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    demonstrate: Callable[[random.Random], tuple[Given, str | Sequence[str]]],
    start: WarmStart | SupervisedStart,
    learning_rate: float,
    steps: int,
    rng: random.Random,
    tell: Callable[[int, float], None] = lambda *_: None,
) -> None:
    """`steps` updates on `demonstrate(rng)`; the learning rate warms up and then decays linearly to
    a tenth."""
    rise = _WARM_UP if isinstance(start, WarmStart) else min(_WARM_UP, -(-steps // 5))
    for step in range(1, steps + 1):
        factor = min(1.0, step / rise) * (1 - 0.9 * step / steps)
        pairs = [demonstrate(rng) for _ in range(start.batch_size)]
        tell(
            step,
            _update(policy, optimizer, demonstration_batch(policy, pairs), learning_rate * factor),
        )


def _optimizer(policy: Policy, learning_rate: float) -> torch.optim.Optimizer:
    parameters = policy.model.parameters()
    return torch.optim.AdamW(
        parameters, learning_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
    )


def _update(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, learning_rate: float
) -> float:
    """One maximum-likelihood step on the responses' tokens; returns the loss per token."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.zero_grad(set_to_none=True)
    tokens = batch.mask.sum()
    total = 0.0
    limits = Limits(len(batch), _MICRO_TOKENS, _MICRO_TOKENS)
    for rows in limits.split(batch, range(len(batch))):
        loss = -policy.log_probs(batch.rows(rows), 1.0).sum() / tokens
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    optimizer.step()
    return total


def demonstration_batch(policy: Policy, pairs: list[tuple[Given, str | Sequence[str]]]) -> Batch:
    """Demonstrations as a batch, one response per prompt, each with an end token. Of turns (every
    second one is a tool's) each is tokenised by itself, as when they are sampled.
    """
    room = room_of(policy.model.config)
    end = last_token(policy.tokenizer)
    prompts = encode_prompts(policy.tokenizer, [prompt for prompt, _ in pairs], room)
    turns = [[response] if isinstance(response, str) else list(response) for _, response in pairs]
    texts = [text for of_turns in turns for text in of_turns]
    ids = iter(policy.tokenizer(texts, add_special_tokens=False)["input_ids"])
    parts = [[next(ids) for _ in of_turns] for of_turns in turns]
    lengths = torch.tensor([sum(map(len, of_turns)) + 1 for of_turns in parts])
    tokens = torch.zeros(len(pairs), int(lengths.max()), dtype=torch.long)
    heard = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, (prompt, of_turns) in enumerate(zip(prompts, parts, strict=True)):
        whole = len(prompt) + int(lengths[row])
        if whole > room:
            raise DataError(
                f"model.max_positions: {room}, but a demonstration has {whole} tokens with its "
                f"prompt: {''.join(turns[row])[:80]!r}"
            )
        at = 0
        for number, part in enumerate(of_turns):
            tokens[row, at : at + len(part)] = torch.tensor(part, dtype=torch.long)
            heard[row, at : at + len(part)] = number % 2 == 1
            at += len(part)
        tokens[row, at] = end
    device = policy.device
    one_turn = all(len(texts) == 1 for texts in turns)
    return Batch(
        prompts=prompts,
        prompt_of=torch.arange(len(pairs), device=device),
        tokens=tokens.to(device),
        lengths=lengths.to(device),
        heard=None if one_turn else heard.to(device),
    )


def _accuracy(policy: Policy, task: TaskSection, demos: Demonstrations) -> float:
    """Greedy accuracy on the held-out problems."""
    problems = demos.held_out
    room = room_of(policy.model.config)
    prompts = encode_prompts(policy.tokenizer, [p.given() for p in problems], room)
    limit = demos.longest_response() + 1
    plan = SamplingPlan(group_size=1, max_new_tokens=limit, uniforms=None)
    samples = policy.sample(prompts, plan)
    texts = policy.text(samples.batch)
    truncated = samples.truncated.tolist()
    items = [
        Item(text, problem.answer, is_cut, problem.columns)
        for text, problem, is_cut in zip(texts, problems, truncated, strict=True)
    ]
    with grader_for(verifier_of(task)) as grader:
        grades = grader.grade(items)
    return sum(grade.correct for grade in grades) / len(problems)
