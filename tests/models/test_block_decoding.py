"""Decoding in blocks, as on a GPU, and some rows at a time: the same responses, and no look at a
tensor within a block."""

from collections import Counter
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, Qwen2Config

from rpg.models import block_decoding, decoding, generic_model, lean
from rpg.models.block_decoding import BlockEngine
from rpg.models.lean_decoding import LeanEngine
from rpg.models.seeds import uniforms
from rpg.models.tokenizer import Stopper
from rpg.models.truncated_sampling import Restriction
from tests.models.expected import gpt2, sampled
from tests.models.test_decoding import PROMPTS, assert_alike, random_numbers, sample
from tests.models.test_lean import model

MODELS = {
    "qwen3": model,
    "llama": partial(model, family=LlamaConfig),
    "qwen2": partial(model, family=Qwen2Config),
}
LOOKS = {
    "_local_scalar_dense",
    "is_nonzero",
    "equal",
    "nonzero",
    "_unique2",
    "masked_select",
    "isin",
}
"""Operations whose result, or the size of it, the host needs."""


def in_blocks(engine, size):
    engine.block = size
    return engine


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("size", [1 + 1, 7, 32])
@pytest.mark.parametrize("greedy", [False, True])
def test_blocks_change_no_response(kind, size, greedy, monkeypatch):
    monkeypatch.setattr(block_decoding, "_ROOM", 3)  # the cache grows several times
    lm = MODELS[kind]()
    u = None if greedy else random_numbers(limit=40)
    drawn = sample(in_blocks(BlockEngine(lm), size), u, limit=40)
    assert_alike(drawn, sample(LeanEngine(lm), u, limit=40))
    assert len(set(drawn.batch.lengths.tolist())) > (1 if greedy else 2)


@pytest.mark.parametrize(
    "build", [lambda lm: BlockEngine(lm), lambda lm: generic_model.CacheEngine(lm)]
)
@pytest.mark.parametrize(
    "restriction",
    [Restriction(top_k=5), Restriction(top_p=0.8, min_tokens=3), Restriction(min_tokens=4)],
)
def test_restrictions_hold_in_blocks(build, restriction):
    lm = model()
    u = random_numbers()
    how = {"restriction": restriction, "uniforms": u, "stop": (2, 11), "limit": 10, "group_size": 8}
    engines = in_blocks(build(lm), 4), LeanEngine(lm)
    drawn, expected = (sampled(engine, PROMPTS, **how) for engine in engines)
    assert_alike(drawn, expected)
    if restriction.truncates:
        ours, theirs = (each.batch.support.lists(expected.batch.mask) for each in (drawn, expected))
        assert all(a.equal(b) for a, b in zip(ours, theirs, strict=True))


def test_a_stop_string_ends_a_response_within_a_block(policy):
    stopper = Stopper(policy.tokenizer, ["1", "+2"])
    lm = policy.model
    u = uniforms(12, 20, "stop")
    how = {"stopper": stopper, "uniforms": u, "stop": policy.stop, "limit": 20, "group_size": 4}
    prompts = [[1, 5, 6], [1, 7], [1, 9]]
    drawn, expected = (
        sampled(e, prompts, **how) for e in (in_blocks(BlockEngine(lm), 8), LeanEngine(lm))
    )
    assert_alike(drawn, expected)
    assert not drawn.truncated.all()


@pytest.mark.parametrize("build", [LeanEngine, BlockEngine, generic_model.CacheEngine])
def test_a_gpu_s_way_on_other_models_and_in_parts(build):
    """Chunks of 1, 3 and all rows draw the same responses; a chunk of a size repeats to the bit."""
    lm = model() if build is not generic_model.CacheEngine else gpt2()
    u = random_numbers()
    whole = sample(build(lm), u)
    how = {"stop": (2, 11), "temperature": 1.0, "uniforms": u}
    for rows in (1, 3, 13, 32):
        drawn, again = (
            sampled(build(lm), PROMPTS, 8, 10, rows_at_once=rows, **how) for _ in range(2)
        )
        assert_alike(drawn, whole)
        assert drawn.log_prob.equal(again.log_prob)
        assert drawn.batch.prompts == whole.batch.prompts
        assert drawn.batch.prompt_of.equal(whole.batch.prompt_of)


def test_parts_hold_no_more_rows_and_count_on():
    lm = model()
    rows = []
    told = []
    engine = LeanEngine(lm)
    step = engine.step
    engine.step = lambda tokens: rows.append(len(tokens)) or step(tokens)
    sampled(engine, PROMPTS, 8, 10, rows_at_once=5, tell=lambda *counts: told.append(counts))
    assert max(rows) <= 5
    assert [ended for ended, _ in told] == sorted(ended for ended, _ in told)
    assert told[-1][0] <= 32


def block_of(lm, device, row_of=None):
    """One block of 10 positions, while the cache grows, with everything that may restrict a
    draw."""
    engine = BlockEngine(lm)
    restriction = Restriction(top_k=5, top_p=0.9, min_p=0.01, min_tokens=3)
    rows = torch.arange(32, device=device)
    ends = torch.tensor([2, 11], device=device)
    drawn = torch.rand(32, 10, device=device)
    plan = decoding.SamplingPlan(8, 10, drawn, temperature=0.7, restriction=restriction)
    part = decoding._Part(engine, PROMPTS, rows // 8, plan, stop=(2, 11), stopper=None)
    with torch.inference_mode():
        logits = engine.prefill(PROMPTS, 10)
        engine.select(part.prompt_of)
        with Operations() as operations:
            block = part._block(logits[part.prompt_of], drawn, range(10), ends, row_of)
    assert block.tokens.shape == (32, 10)
    assert len(block.kept) == 10
    assert block.tokens.device.type == device
    return operations.counts


def test_nothing_is_looked_at_within_a_block(monkeypatch):
    monkeypatch.setattr(block_decoding, "_ROOM", 4)
    counts = block_of(model(), "cpu")
    assert (
        counts["scaled_dot_product_attention"]
        + counts["_scaled_dot_product_flash_attention_for_cpu"]
    )
    assert not LOOKS & counts.keys()
    with torch.device("meta"):
        lm = model().bfloat16()
    block_of(lm, "meta")  # without values: whoever looks at one fails
    with pytest.raises(
        (RuntimeError, NotImplementedError)
    ):  # rows that responses share are looked at
        block_of(lm, "meta", torch.arange(32, device="meta"))


def test_attention_may_lay_out_its_result_as_it_likes(monkeypatch):
    """CUDA's memory-efficient kernel puts the heads of a position side by side."""
    lm = model()
    u = random_numbers()
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = sample(BlockEngine(lm), u)

    def transposed(*args, **how):
        return attend(*args, **how).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", transposed)
    assert_alike(sample(BlockEngine(lm), u), expected)


def test_autocast_rounds_no_weight_at_a_token(monkeypatch):
    """float32 weights in bfloat16 arithmetic, as an evaluation's: they are rounded once, and never
    meet float32 norms. So twice the rows fit into a GPU's memory."""
    lm = model()
    for name, bytes_ in (
        ("memory_reserved", 0),
        ("memory_allocated", 0),
        ("mem_get_info", (10**9, 10**9)),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, bytes_=bytes_: bytes_)
    fits = BlockEngine(lm).rows_that_fit(1000)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        engine = BlockEngine(lm)
        assert engine.rows_that_fit(1000) // 2 == fits
        engine.prefill(PROMPTS, 10)
        with Operations() as operations:
            logits = engine.step(torch.ones(len(PROMPTS), dtype=torch.long))
    assert logits.dtype == torch.bfloat16
    assert not {"to", "_to_copy"} & operations.counts.keys()


def test_operations_per_token(monkeypatch):
    """28 layers like Qwen3-0.6B's, the implementation of large models: docs/trainer.md has the
    figures."""
    monkeypatch.setattr(lean, "_SMALL", 0)
    lm = model(num_hidden_layers=28)
    per_token = {}
    how = {"stop": (18,), "restriction": Restriction(min_tokens=64)}
    for build, lengths in ((LeanEngine, (17, 25)), (BlockEngine, (33, 65))):
        counts = []
        for tokens in lengths:
            with Operations() as operations:
                sampled(build(lm), [[1, 5], [1, 7]], 4, tokens, **how)
            looks = sum(operations.counts[name] for name in LOOKS)
            counts.append((operations.counts.total(), looks))
        more = lengths[1] - lengths[0]
        per_token[build] = [(long - short) / more for short, long in zip(*counts, strict=True)]
    operations, looks = per_token[BlockEngine]
    before, looks_before = per_token[LeanEngine]
    print(
        f"operations of a token: {operations:.0f}, looks {looks:.2f}; with shared rows "
        f"{before:.0f}, {looks_before:.1f}"
    )
    assert operations <= before / 4
    assert looks <= 2 / decoding.BLOCK < 2 <= looks_before


def test_a_gpu_s_attention_is_a_cpu_s(monkeypatch):
    """Keys and values are copied for grouped heads where no kernel takes both a bias and groups."""
    q, k, v = (torch.randn(2, heads, 5, 8) for heads in (6, 2, 2))
    bias = torch.zeros(2, 1, 5, 5).masked_fill_(~torch.ones(5, 5).tril().bool(), -1e9)
    grouped = lean.attention(q, k, v, bias)
    monkeypatch.setattr(lean, "GROUPED", ())
    assert torch.allclose(lean.attention(q, k, v, bias), grouped, atol=1e-6)


def test_steps_in_bfloat16_and_under_autocast_agree():
    lm = model()
    u = random_numbers()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = sample(in_blocks(BlockEngine(lm), 4), u)
    half = sample(in_blocks(BlockEngine(model().bfloat16()), 4), u)
    exact = sample(LeanEngine(lm), u)
    for rounded in (mixed, half):
        same = rounded.batch.tokens[:, 0] == exact.batch.tokens[:, 0]
        assert same.float().mean() > 0.9
        assert torch.allclose(rounded.log_prob[same, 0], exact.log_prob[same, 0], atol=0.1)
