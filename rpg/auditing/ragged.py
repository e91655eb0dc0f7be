"""What a loss does where responses differ in length: padding that holds garbage, advantages that
differ from token to token, an end token.

The worlds of the audit's figures have responses of equal length, in which several mistakes are
invisible. Here they are looked for one by one, and named.

Shapes: N responses, T tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from rpg.auditing.moments import Averaged, LossFunction, Size, batch_slopes, moments
from rpg.auditing.objectives import gradients
from rpg.auditing.subjects import Scene, Subject
from rpg.auditing.worlds import padded

CLOSE = 1e-6
"""Relative; somebody's own loss may compute in float32."""
STEP = 1e-3
"""By which the advantages of one place are changed."""


def scene_with_padding(
    subject: Subject, drift: float, *, seed: int = 0, garbage: int = 0, by_token: bool = True
) -> Scene:
    """All responses of a language with an end token, with random numbers where `response_mask` is
    False. by_token: the advantages differ within a response, too."""
    scene = Scene.of(subject, padded(seed), drift)
    mask = scene.world.mask
    generator = torch.Generator().manual_seed(1000 + garbage)
    inputs = dict(scene.inputs)
    if by_token:
        noise = torch.randn(mask.shape, generator=torch.Generator().manual_seed(seed))
        inputs["advantages"] = inputs["advantages"] + noise * mask
    for name, value in inputs.items():
        if value is None or name == "response_mask":
            continue
        junk = torch.randn(mask.shape, generator=generator, dtype=value.dtype)
        if name != "advantages":
            junk = -junk.abs()  # a log-probability
        inputs[name] = torch.where(mask, value, junk)
    return replace(scene, inputs=inputs)


def faults(subject: Subject, drift: float = 0.4) -> Iterator[str]:
    """Sentences about mistakes that responses of equal length hide."""
    loss = subject.losses[-1]
    if isinstance(loss, Averaged):
        loss = loss.loss  # with the same random numbers each time
    first = scene_with_padding(subject, drift)
    second = scene_with_padding(subject, drift, garbage=1)
    with _repeated():
        slopes = batch_slopes(loss, first.inputs)
    with _repeated():
        others = batch_slopes(loss, second.inputs)
    mask = first.world.mask
    on_padding = (slopes[~mask].norm() / slopes.norm()).item()
    changed = ((slopes - others)[mask].norm() / slopes[mask].norm()).item()
    if not on_padding <= CLOSE:
        yield (
            f"It ignores response_mask: {on_padding:.0%} of its gradient is that of padding. "
            "What follows holds where there is none."
        )
    elif not changed <= CLOSE:
        yield (
            "It ignores response_mask: what stands in the padding changes the gradient of real "
            "tokens. What follows holds where there is none."
        )
    places = moved(loss, first)
    if places:
        side = "before" if places > 0 else "after"
        yield (
            f"Its advantages are moved by {abs(places)}: a token is weighted with the advantage of "
            f"the token {side} it. What follows holds where all tokens of a response have the same."
        )


def moved(loss: LossFunction, scene: Scene) -> int:
    """By how many tokens the advantages are moved; 0 where each token has its own, and where a
    token's gradient depends on those of several."""
    mask = scene.world.mask
    inputs = scene.inputs
    longest = mask.sum(-1) == mask.sum(-1).max()
    width = int(mask.sum(-1).max())
    with _repeated():
        slopes = batch_slopes(loss, inputs)
    shifts = set()
    for place in range(width):
        advantages = inputs["advantages"].clone()
        advantages[:, place] += STEP
        with _repeated():
            others = batch_slopes(loss, {**inputs, "advantages": advantages})
        differs = (others - slopes).abs() > 1e-9 * slopes.abs().max()
        touched = differs[longest][:, :width].any(0).nonzero()[:, 0].tolist()
        if len(touched) > 1:
            return 0
        shifts |= {there - place for there in touched}
    return shifts.pop() if len(shifts) == 1 else 0


def padded_error(
    loss: LossFunction,
    subject: Subject,
    terms: dict[str, float],
    level: str,
    drift: float,
    seed: int,
) -> tuple[float, float]:
    """(|step - gradient of `terms`|, |gradient|) with padding, an end token, and, at token level,
    advantages that differ within a response.

    A mean over tokens may divide by the tokens of the batch, or by all of its places.
    """
    scene = scene_with_padding(subject, drift, seed=seed, by_token=level == "token")
    world = scene.world
    columns = gradients(world, scene.logits, world.ref, level)
    if level == "token":
        columns |= _of_advantages(scene)
    wanted = torch.stack([weight * columns[name] for name, weight in terms.items()]).sum(0)
    sizes: list[Size] = [torch.sum, torch.numel] if subject.per_token else [len]
    errors = []
    slopes = batch_slopes(loss, scene.inputs, size=lambda _mask: 1) * world.mask
    for size in sizes:
        scaled = slopes * size(world.mask)
        step = moments(world, scene.logits, scaled, scene.beside).mean
        errors.append((step - wanted).norm().item())
    return min(errors), wanted.norm().item()


def _of_advantages(scene: Scene) -> dict[str, Tensor]:
    """The gradient of the reward at token level, where each token has an advantage of its own."""
    world = scene.world
    weighted = scene.ratio() * torch.where(world.mask, scene.inputs["advantages"], 0)
    lengths = world.mask.sum(-1, keepdim=True)
    return {
        "reward": moments(world, scene.logits, -weighted).mean,
        "reward_per_token": moments(world, scene.logits, -weighted / lengths).mean,
    }


@contextmanager
def _repeated() -> Iterator[None]:
    """Within it, random numbers are the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
