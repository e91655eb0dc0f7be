"""verl without flash attention: padded micro-batches stay within the limit, log-probabilities are exact."""

import importlib.util

import pytest
import torch

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed (pip install -e '.[verl]')", allow_module_level=True)

from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.seqlen_balancing import rearrange_micro_batches

from rpg.backends.verl import padded

LIMIT = 16_384


def lengths_like_responses(rows=256, seed=0):
    torch.manual_seed(seed)
    return torch.empty(rows).log_normal_(7.0, 0.8).long().clamp(40, 8_000)


def nested(lengths, remove_padding=False):
    ids = torch.nested.as_nested_tensor([torch.arange(n) for n in lengths.tolist()], layout=torch.jagged)
    data = TensorDict({"input_ids": ids}, batch_size=[len(lengths)])
    tu.assign_non_tensor(data, use_remove_padding=remove_padding)
    return data


def sizes(batches):
    """Padded tokens of each micro-batch."""
    rows = [batch["input_ids"].offsets().diff() for batch in batches]
    return [len(each) * int(each.max()) for each in rows]


def test_padded_micro_batches_stay_within_the_limit_and_verl_s_do_not():
    lengths = lengths_like_responses()
    data = nested(lengths)
    theirs, _ = rearrange_micro_batches(data, LIMIT)
    assert max(sizes(theirs)) > 1.5 * LIMIT
    ours, index = padded.bounded(rearrange_micro_batches)(data, LIMIT, dp_group=None)
    assert max(sizes(ours)) <= LIMIT
    assert sorted(row for rows in index for row in rows) == list(range(len(lengths)))
    for batch, rows in zip(ours, index, strict=True):
        assert batch["input_ids"].offsets().diff().equal(lengths[rows])
    assert sum(sizes(ours)) < 1.1 * int(lengths.sum()), (
        "rows of a length are together: hardly any padding is left"
    )
    packed, expected = nested(lengths, remove_padding=True), rearrange_micro_batches(data, LIMIT)[1]
    assert padded.bounded(rearrange_micro_batches)(packed, LIMIT)[1] == expected


def test_one_micro_batch_keeps_its_order():
    assert padded.parts([3, 9, 4], 27) == [[0, 1, 2]]
    assert padded.parts([3, 9, 4], 26) == [[1, 2], [0]]


@pytest.mark.parametrize("elsewhere", [1, 15])
def test_workers_with_less_make_as_many_micro_batches(elsewhere, monkeypatch):
    """The other worker is made up: what the collective says of it."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda count, **_: count.clamp_(min=elsewhere))
    data = nested(lengths_like_responses(20))
    alone = len(padded.parts(lengths_like_responses(20).tolist(), LIMIT))
    batches, index = padded.bounded(rearrange_micro_batches)(data, LIMIT, dp_group="both")
    assert len(index) == max(alone, elsewhere) and max(sizes(batches)) <= LIMIT
    assert sorted(row for rows in index for row in rows) == list(range(20))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda count, **_: count.fill_(21))
    with pytest.raises(ValueError, match="20 rows cannot be 21"):
        padded.bounded(rearrange_micro_batches)(data, LIMIT, dp_group="both")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_log_probabilities_and_their_gradient_are_exact(dtype, monkeypatch):
    monkeypatch.setattr(padded, "_NUMBERS", 3 * 31)  # parts of three rows
    torch.manual_seed(0)
    logits = torch.randn(2, 5, 31).mul(4).to(dtype).requires_grad_()
    labels, weights = torch.randint(31, (2, 5)), torch.randn(2, 5)
    values = padded.log_probs(logits, labels)
    (values * weights).sum().backward()
    exact = logits.detach().double().requires_grad_()
    expected = exact.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    (expected * weights).sum().backward()
    assert torch.allclose(values.double(), expected, atol=1e-5)
    assert torch.allclose(logits.grad.double(), exact.grad, atol=2e-2 if dtype == torch.bfloat16 else 1e-5)
