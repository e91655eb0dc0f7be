"""Memory and time of a forward and a backward pass, with layers kept and with layers computed
again.

    python -m benchmarks.activations [--layers 12] [--hidden 64] [--intermediate 1024]
        [--responses 384] [--length 16]

A random Qwen3, by the lean implementation and by transformers' own. Memory is the most bytes of
tensors that live at one time; weights and their gradients are not counted. Time is processor
seconds on one thread. The last column says whether all gradients are equal to the bit.
"""

from __future__ import annotations

import argparse
import time
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import Qwen3Config, Qwen3ForCausalLM

from rpg.models.decoding import Batch
from rpg.models.policy import Policy


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that are made while it is on: those that live now, and the
    most that ever did."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._count, made)
        return made

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            key, size = storage._cdata, storage.nbytes()
            self._seen[key] = weakref.ref(storage, lambda _: self._gone(key, size))
            self.now += size
            self.most = max(self.most, self.now)

    def _gone(self, key: int, size: int) -> None:
        del self._seen[key]
        self.now -= size


class Tokenizer:
    """All that a policy asks of one here."""

    eos_token_id = 2
    pad_token_id = 0
    chat_template = None


def peak(policy: Policy, rows: Batch, recompute: bool) -> int:
    """The most bytes that live at one time during a forward and a backward pass."""
    for parameter in policy.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    policy.recompute = recompute
    with LiveBytes() as bytes_:
        log_prob = policy.log_probs(rows, 1.0)
        log_prob.backward(torch.ones_like(log_prob))
    return bytes_.most


def seconds(policy: Policy, rows: Batch, recompute: bool) -> tuple[float, list[torch.Tensor]]:
    """Processor seconds of both passes, the least of three times, and the gradients."""
    times, policy.recompute = [], recompute
    for _ in range(3):
        policy.model.zero_grad()
        began = time.process_time()
        log_prob = policy.log_probs(rows, 1.0)
        log_prob.backward(log_prob.detach().sin())
        times.append(time.process_time() - began)
    return min(times), [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("layers", 12),
        ("hidden", 64),
        ("intermediate", 1024),
        ("responses", 384),
        ("length", 16),
        ("vocabulary", 64),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    shape = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=shape.hidden // 4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    lm = Qwen3ForCausalLM(config).eval()
    lengths = torch.randint(1, shape.length + 1, (shape.responses,))
    tokens = torch.randint(3, shape.vocabulary, (shape.responses, shape.length))
    tokens = tokens * (torch.arange(shape.length) < lengths[:, None])
    groups = (shape.responses + 15) // 16
    prompts = [[int(t) for t in torch.randint(3, shape.vocabulary, (8,))] for _ in range(groups)]
    rows = Batch(prompts, torch.arange(shape.responses) // 16, tokens, lengths)
    print(
        f"{int(lengths.sum()):,} response tokens of {shape.responses} responses, {groups} prompts"
    )
    for name, lean in (("lean", True), ("transformers", False)):
        policy = Policy(lm, Tokenizer(), lean=lean)
        kept, again = (
            (peak(policy, rows, r) / 1e6, *seconds(policy, rows, r)) for r in (False, True)
        )
        same = all(a.equal(b) for a, b in zip(kept[2], again[2], strict=True))
        print(
            f"{name}: kept {kept[0]:,.0f} MB, {kept[1]:.2f} s; computed again "
            f"{again[0]:,.0f} MB, {again[1]:.2f} s; "
            f"{'the same bits' if same else 'OTHER BITS'}"
        )


if __name__ == "__main__":
    main()
