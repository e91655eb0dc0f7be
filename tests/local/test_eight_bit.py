"""AdamW with moments of 8 bits (bitsandbytes, which is optional): it goes on to the bit, is near
float32, and takes the memory that the forecast says."""

import pytest
import torch
from torch import nn

from rpg.backends.local.optimizers import Optimizer
from rpg.config.training import AdamW
from rpg.planning.space import moment_bytes
from tests.tiny import make_spec

pytest.importorskip("bitsandbytes")
EIGHT = AdamW(type="adamw", learning_rate=0.01, weight_decay=0.1, moments="8bit")


def layer():
    torch.manual_seed(0)
    return nn.Linear(128, 256)


def update(model, optimizer, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(32, 128, generator=generator)
        optimizer.zero_grad()
        (model(inputs) - inputs.repeat(1, 2)).square().mean().backward()
        optimizer.step(step, None)


def test_it_goes_on_from_its_saved_state_to_the_bit():
    whole = layer()
    update(whole, Optimizer(whole, EIGHT), range(1, 9))
    model = layer()
    first = Optimizer(model, EIGHT)
    update(model, first, range(1, 5))
    second = Optimizer(model, EIGHT)
    second.load({name: value.clone() for name, value in first.tensors().items()}, first.numbers())
    update(model, second, range(5, 9))
    assert all(map(torch.equal, model.parameters(), whole.parameters()))


def test_it_is_near_adamw_in_float32():
    models = [layer(), layer()]
    for model, moments in zip(models, ("8bit", "float32"), strict=True):
        settings = EIGHT.model_copy(update={"moments": moments})
        update(model, Optimizer(model, settings), range(1, 41))
    start = layer().weight
    eight, full = (model.weight - start for model in models)
    assert (eight - full).norm() < 0.1 * full.norm()


def test_its_state_takes_the_bytes_that_the_forecast_counts():
    model = layer()
    optimizer = Optimizer(model, EIGHT)
    update(model, optimizer, [1])
    state = optimizer.tensors()
    counted = sum(value.nbytes for name, value in state.items() if "qmap" not in name)
    spec = make_spec(training={"optimizer": EIGHT.model_dump()})
    assert counted == pytest.approx(moment_bytes(spec) * (128 * 256), rel=0.15)
    assert moment_bytes(spec) < 0.26 * moment_bytes(make_spec())
