"""What `rpg show` estimates for a training's memory, compared with what tensors take."""

import copy

import pytest

from benchmarks.activations import Tokenizer, peak
from rpg.config.backend import LocalBackend
from rpg.config.load import resolve
from rpg.models.four_bit import halve_weights
from rpg.models.policy import Policy
from rpg.planning import preflight
from rpg.planning.model_shapes import Shape
from rpg.planning.space import (
    CONTEXT,
    PROCESS,
    ROOM,
    memory,
    pass_bytes,
    tokens_per_pass,
    with_backend,
)
from rpg.store import Layout
from tests.models.test_lean import batch, model
from tests.tiny import HUNGRY, make_spec

SHAPES = [  # layers, hidden, heads, key-value heads, head size, intermediate, vocabulary
    Shape(6, 32, 4, 2, 8, 96, 19),
    Shape(6, 64, 4, 1, 16, 512, 19),
    Shape(3, 64, 4, 4, 16, 128, 500),
]


def lean(shape):
    lm = model(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        head_dim=shape.head_dim,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary,
    )
    return Policy(lm, Tokenizer())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_memory_of_a_pass_is_about_that_foretold(shape, again):
    policy = lean(shape)
    rows = batch(prompts=12, rows=100, width=16, vocabulary=15)
    assert tokens_per_pass(shape, "cpu") == policy.tokens_per_pass
    tokens = float(rows.lengths.sum()) + sum(map(len, rows.prompts))
    foretold = pass_bytes(shape, tokens, LocalBackend(gradient_checkpointing=again))
    assert 0.5 < peak(policy, rows, again) / foretold < 2


def test_layers_computed_again_are_known_to_the_estimate():
    spec = make_spec(**HUNGRY)
    plain = memory(spec)
    again = memory(with_backend(spec, gradient_checkpointing=True))
    assert again.fixed == plain.fixed
    assert again.rollout == plain.rollout
    assert 0 < again.update < plain.update / 4


def test_bfloat16_on_a_gpu_is_weights_beside_masters_and_half_of_what_a_pass_keeps():
    model = {"type": "pretrained", "path": "smollm2-135m", "dtype": "bfloat16"}
    run = {"model": model, "algorithm": "grpo", "training": {"micro_batch_tokens": 2048}}
    run["rollout"] = {"max_response_tokens": 512}
    cpu, gpu = (
        memory(resolve({**run, "backend": {"device": device}}, "x")) for device in ("cpu", "cuda")
    )
    weights = 134_515_008
    # A reference, a weight and two moments; and beside the weight a master. Gradients are there in
    # updates only.
    assert cpu.fixed - PROCESS == pytest.approx(weights * 4 * 4, rel=1e-3)
    assert gpu.fixed - CONTEXT == pytest.approx(weights * (2 + 2 + 4 * 3), rel=1e-3)
    assert gpu.update - 4 * weights < 0.8 * (
        cpu.update - 4 * weights
    )  # but for the logits, of which a part at a time is there in float32
    other = {
        "backend": {"device": "cuda"},
        "algorithm": {"name": "grpo", "advantage": {"type": "gae"}},
    }
    other["rollout"] = {
        "max_response_tokens": 512,
        "engine": {"type": "vllm", "gpu_memory_utilization": 0.3},
    }
    other = memory(resolve({**run, **other}, "x"), 24e9)
    assert other.fixed - gpu.fixed == pytest.approx(weights * (2 + 4 * 4), rel=1e-3), (
        "a critic has a master, too"
    )
    assert other.rollout == 0.3 * 24e9 and other.most == other.fixed + other.rollout, (
        "vLLM takes its share"
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_the_memory_of_a_pass_in_bfloat16_is_about_that_foretold(shape):
    policy = lean(shape)
    rows = batch(prompts=12, rows=100, width=16, vocabulary=15)
    halve_weights(policy.model)
    assert tokens_per_pass(shape, "cpu", 2) == policy.tokens_per_pass
    elsewhere = Policy(copy.deepcopy(policy.model).to("meta"), Tokenizer())
    assert tokens_per_pass(shape, "cuda", 2) == elsewhere.tokens_per_pass
    tokens = float(rows.lengths.sum()) + sum(map(len, rows.prompts))
    foretold = pass_bytes(shape, tokens, LocalBackend(), 2)
    assert 0.5 < peak(policy, rows, False) / foretold < 2


def test_no_estimate_where_nothing_is_known():
    assert memory(resolve({"model": {"type": "pretrained", "path": "some/model"}}, "x")) is None
    assert memory(resolve({"backend": {"type": "verl"}}, "x")) is None


def test_too_little_memory_is_said_before_anything_starts(tmp_path, monkeypatch):
    spec = make_spec(**HUNGRY)
    need = memory(spec).most
    for free, said in ((need * 1.1, 0), (need * 0.9, 1)):
        monkeypatch.setattr(preflight, "free_memory", lambda free=free: free)
        lines = [
            line
            for line in preflight.preflight([spec], Layout(tmp_path))
            if line.startswith("memory:")
        ]
        assert len(lines) == said
    assert "GB are free; with backend.gradient_checkpointing: true," in lines[0]


def test_qwen3_0_6b_with_long_responses_fits_a_card_of_24_gb_in_parts():
    """64 prompts x 8 responses x 4,096 tokens: all at once would take ten times as much."""
    file = {
        "model": {"type": "pretrained", "path": "Qwen/Qwen3-0.6B", "dtype": "bfloat16"},
        "algorithm": "grpo",
        "training": {"prompts_per_step": 64, "mini_batch_prompts": 16},
        "rollout": {"group_size": 8, "max_prompt_tokens": 512, "max_response_tokens": 4096},
        "backend": {"device": "cuda"},
    }
    spec = resolve(file, "x")
    whole = memory(spec)
    parts = memory(spec, 24e9)
    assert whole.most > 240e9
    assert whole.rows_at_once == 512
    assert parts.most < 24e9
    assert 8 <= parts.rows_at_once < 64
    # All keys and values of that many rows, counted apart from the estimate: 28 layers of 8 heads
    # of 128, in bfloat16.
    caches = parts.rows_at_once * (512 + 4096) * 2 * 28 * 8 * 128 * 2
    assert caches < parts.rollout < caches + 2.5e9
    one_more = resolve(
        file | {"rollout": file["rollout"] | {"rows_at_once": parts.rows_at_once + 4}}, "x"
    )
    assert (
        parts.fixed + parts.rollout
        <= ROOM * 24e9
        < memory(one_more).fixed + memory(one_more).rollout
    )


def test_what_fits_is_drawn_at_once():
    spec = make_spec()
    assert memory(spec, 24e9).rows_at_once == spec.rollout_rows()
    assert memory(spec, 1.0).rows_at_once == 1
