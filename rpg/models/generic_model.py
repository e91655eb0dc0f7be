"""Any Hugging Face causal language model: cached decoding, and log-probabilities with a gradient.

Shapes: P prompts, N responses (rows), T response tokens, L prompt and response together, V
vocabulary.
"""

import re
from collections.abc import Sequence
from inspect import signature

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from rpg.models.chunked_log_prob import Closed, entropy_of
from rpg.models.decoding import BLOCK, Batch, Scored, padded_left
from rpg.models.model_loading import ModelError
from rpg.models.positions import positions_of
from rpg.models.truncated_sampling import among
from rpg.system.private_parts import private_part


class CacheEngine:
    """Decoding with a model's own forward pass and a DynamicCache (see decoding.Engine)."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.device: torch.device = next(model.parameters()).device
        self.block = BLOCK if self.device.type == "cuda" else 1
        layers = DynamicCache(config=model.config).layers
        has_state = private_part("LinearAttentionCacheLayerMixin")
        self.recurrent = any(isinstance(layer, has_state) for layer in layers)
        """Whether a layer keeps a state (of linear attention, of Mamba), which goes on by single
        tokens only."""
        self.only_states = bool(layers) and not any(
            hasattr(layer, "get_seq_length") for layer in layers
        )

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        """Raises ModelError: the model goes on from a cache of another kind."""
        own = not self.model._supports_default_dynamic_cache() or hasattr(
            self.model, "_setup_cache"
        )
        if own or "past_key_values" not in signature(self.model.forward).parameters:
            raise ModelError(f"model.path: {type(self.model).__name__} has no cache to sample with")
        if self.only_states:
            raise ModelError(
                f"model.path: {type(self.model).__name__} with linear attention in every layer "
                "cannot be sampled from: transformers has no cache that counts its tokens"
            )
        longest = max(map(len, prompts))
        places = _learned_positions(self.model)
        if places is not None and longest + max_new_tokens > places:
            raise ModelError(
                f"model.path: {type(self.model).__name__} has {places} positions, too few for a "
                f"prompt of {longest} tokens and {max_new_tokens} of a response; lower "
                "rollout.max_prompt_tokens or max_response_tokens"
            )
        ids, seen = padded_left(prompts, longest)
        attend = seen.long().to(self.device)
        self.cache = DynamicCache(config=self.model.config)
        given = {"attention_mask": attend, "position_ids": (attend.cumsum(-1) - 1).clamp(min=0)}
        how = {"past_key_values": self.cache, "use_cache": True, "logits_to_keep": 1}
        logits: Tensor = self.model(ids.to(self.device), **given, **how).logits
        self.attend = attend
        return logits[:, -1]

    def step(self, tokens: Tensor) -> Tensor:
        return self.read(tokens[:, None])[:, -1]

    def read(self, tokens: Tensor) -> Tensor:
        """Append tokens (R, T) to the rows; logits (R, T, V) of the token after each."""
        filled = self.attend.sum(-1, keepdim=True)
        self.attend = torch.cat([self.attend, self.attend.new_ones(tokens.shape)], 1)
        places = filled + torch.arange(tokens.shape[1], device=self.device)
        given = {"attention_mask": self.attend, "position_ids": places}
        logits: Tensor = self.model(
            tokens, **given, past_key_values=self.cache, use_cache=True
        ).logits
        return logits

    def select(self, index: Tensor) -> None:
        (self.cache.reorder_cache if self.recurrent else self.cache.batch_select_indices)(index)
        self.attend = self.attend[index]


def _learned_positions(model: PreTrainedModel) -> int | None:
    """The length of a model's table of positions; None where positions are computed."""
    tables = [
        module.num_embeddings
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and _POSITIONS.search(name)
    ]
    if not tables:
        return None
    room = positions_of(model.config)
    return min(tables if room is None else [room, *tables])


_POSITIONS = re.compile(r"\b(?:wpe|\w*position\w*)$")


def scored(
    model: PreTrainedModel,
    batch: Batch,
    temperature: float,
    *,
    entropy: bool = False,
    states: bool = False,
) -> Scored:
    """Log-probabilities of the response tokens, differentiable; with `entropy` also the entropies
    of the distributions, with `states` their logits.

    A prompt with several responses is computed once: all of them continue from its keys and values.
    """
    engine = CacheEngine(model)
    if len(batch.prompts) == len(batch) or engine.recurrent:
        logits, at = _padded(model, batch)
        return _of_logits(batch, logits, at, temperature, entropy, states)
    first = engine.prefill(batch.prompts, batch.tokens.shape[1])
    logits = first[batch.prompt_of, None]
    if batch.tokens.shape[1] > 1:
        engine.select(batch.prompt_of)
        logits = torch.cat([logits, engine.read(batch.tokens[:, :-1])], 1)
    return _of_logits(batch, logits, None, temperature, entropy, states)


def _of_logits(
    batch: Batch, logits: Tensor, at: Tensor | None, temperature: float, entropy: bool, states: bool
) -> Scored:
    """`logits` (N, positions, V); `at` (N, T): which position of its row predicts each token, None
    if they are in order."""
    mask = batch.mask
    support = batch.support
    tokens = batch.tokens[batch.mask]
    row = torch.arange(len(batch), device=logits.device)[:, None].expand(mask.shape)
    if support is None and not entropy and not states:  # avoids a copy of the logits
        targets = batch.tokens
        if at is not None:
            targets = targets.new_zeros(logits.shape[:2])
            targets[row[mask], at[mask]] = tokens
        logits = logits.float() if temperature == 1.0 else logits.float() / temperature
        losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
        values = -losses.view(targets.shape)
        if at is not None:
            values = values.gather(1, at.clamp(max=values.shape[1] - 1))
        return Scored(torch.where(mask, values, 0.0))
    logits = logits[mask] if at is None else logits[row[mask], at[mask]]  # (C, V)

    of_tokens = logits if states else None
    logits = logits.float() / temperature
    if support is not None and support.index is None:
        logits = Closed(support.early(mask), torch.tensor(support.ends, device=logits.device)).shut(
            logits
        )
    log_p = logits.log_softmax(-1)
    if support is not None and support.index is not None:
        place, token = support.lists(mask)
        chosen, spread = among(place, token, log_p[place, token], tokens, entropy=entropy)
    else:
        chosen = log_p.gather(1, tokens[:, None])[:, 0]
        spread = entropy_of(log_p) if entropy else None
    return Scored(batch.placed(chosen), None if spread is None else batch.placed(spread), of_tokens)


def _padded(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """(logits, (N, T) the position that predicts each token), prompt and response as one sequence.

    Rows are padded on the right, where causal attention never sees the padding: no attention mask
    is needed.
    """
    rows, width = batch.tokens.shape
    device = batch.tokens.device
    sizes = torch.tensor([len(p) for p in batch.prompts], device=device)
    starts = sizes[batch.prompt_of]
    first = int(sizes.min()) - 1  # the earliest position that predicts a response token
    longest = int((starts + batch.lengths).max())
    ids = torch.zeros(rows, longest, dtype=torch.long, device=device)
    for row, number in enumerate(batch.prompt_of.tolist()):
        prompt = batch.prompts[number]
        ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
    mask = batch.within
    columns = torch.arange(width, device=device) + starts[:, None]
    row_of = torch.arange(rows, device=device)[:, None].expand_as(columns)
    ids[row_of[mask], columns[mask]] = batch.tokens[mask]
    inputs = ids[:, :-1]
    keep = torch.arange(first, inputs.shape[1], device=device)
    logits = model(inputs, use_cache=False, logits_to_keep=keep).logits
    return logits, columns - 1 - first
