"""The lean Qwen3 against transformers': values, gradients, decoding."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rpg.models import huggingface, packing, qwen3
from rpg.models.batch import Batch
from rpg.models.packing import Packing


def model(seed=0, **changes):
    config = Qwen3Config(
        **{
            "vocab_size": 19,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 64,
            "tie_word_embeddings": True,
            "initializer_range": 0.3,
            "pad_token_id": 0,
            "eos_token_id": 2,
            **changes,
        }
    )
    torch.manual_seed(seed)
    made = Qwen3ForCausalLM(config).eval()
    for name, parameter in made.named_parameters():
        if "norm" in name:  # ones would hide a norm weight that is left out
            parameter.data.uniform_(0.5, 1.5)
    return made


def batch(seed=0, prompts=4, rows=20, width=7, vocabulary=3):
    """Responses over few tokens, so that many are equal or begin alike; lengths from 1."""
    g = torch.Generator().manual_seed(seed)
    r = lambda low, high, *shape: torch.randint(low, high, shape, generator=g)  # noqa: E731
    lengths = r(1, width + 1, rows)
    tokens = r(3, 3 + vocabulary, rows, width) * (torch.arange(width) < lengths[:, None])
    tokens = tokens[:, : int(lengths.max())]
    sizes = r(1, 9, prompts).tolist()
    return Batch([r(0, 19, n).tolist() for n in sizes], r(0, prompts, rows), tokens, lengths)


CASES = {
    "few tokens": {},
    "many tokens": {"vocabulary": 16},
    "one row": {"prompts": 1, "rows": 1},
    "one token each": {"width": 1},
    "one prompt": {"prompts": 1, "rows": 30, "vocabulary": 1},
    "long": {"prompts": 3, "rows": 12, "width": 30, "vocabulary": 2},
}


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_transformers(case, temperature, untied):
    lm = model(tie_word_embeddings=not untied)
    assert qwen3.supports(lm)
    rows = batch(**CASES[case])
    lean = qwen3.log_probs(lm, rows, temperature)
    full = huggingface.log_probs(lm, rows, temperature)
    assert lean.shape == rows.tokens.shape
    assert torch.allclose(lean, full, atol=2e-5)
    assert bool((lean[~rows.mask] == 0).all())
    weight = torch.randn(lean.shape, generator=torch.Generator().manual_seed(1))
    (full * weight).sum().backward()
    expected = {name: p.grad.clone() for name, p in lm.named_parameters()}
    lm.zero_grad()
    (lean * weight).sum().backward()
    for name, parameter in lm.named_parameters():
        scale = expected[name].abs().max()
        assert scale > 0, name
        assert (parameter.grad - expected[name]).abs().max() < 1e-5 * scale + 1e-6, name


def test_blocks_of_any_size_give_the_same(monkeypatch):
    lm, rows = model(), batch(rows=40, vocabulary=16)
    with torch.no_grad():
        whole = qwen3.log_probs(lm, rows, 1.0)
        count = len(Packing.of(rows).blocks)
        monkeypatch.setattr(packing, "_CELLS", 100)
        assert len(Packing.of(rows).blocks) > 2 * count
        assert torch.allclose(qwen3.log_probs(lm, rows, 1.0), whole, atol=1e-5)


def test_what_is_common_is_packed_once():
    prompts = [[5, 6, 7], [8]]
    responses = [[3, 4, 4, 2], [3, 4, 5, 2], [3, 4, 4, 6], [3, 2], [9, 2], [9, 2]]
    tokens = torch.tensor([r + [0] * (4 - len(r)) for r in responses])
    rows = Batch(prompts, torch.tensor([0, 0, 0, 0, 1, 1]), tokens, torch.tensor([4, 4, 4, 2, 2, 2]))
    pack = Packing.of(rows)
    # prompts 3 + 1; then 3, 4, 4 (twice) and the 5 that parts from them; 9 once.
    assert sorted(pack.ids.tolist()) == sorted([5, 6, 7, 8, 3, 4, 4, 5, 9])
    assert len(pack.predictors) == 7  # the last tokens of both prompts, 3, 4, 4, 5 and 9
    assert len(pack.predictor_of) == int(rows.lengths.sum())


def test_only_what_it_computes_exactly_is_supported():
    assert not qwen3.supports(model(hidden_act="gelu"))
    assert not qwen3.supports(model(attention_bias=True))
    assert not qwen3.supports(model().double())
    assert not qwen3.supports(
        model(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0})
    )
    assert not qwen3.supports(
        model(
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=0,
        )
    )
    assert not qwen3.supports(torch.nn.Linear(1, 1))
