"""Sampling responses: one loop for every engine that can prefill, step and reorder its key-value
cache.

On a CPU, responses of a group that are identical so far share one row of the cache: their common
prefix (at first the prompt) is computed once, and the row is split where they sample different
tokens. A peaked policy thus costs little more than one response per prompt. On a GPU, where looking
at a token means waiting for the device, every response has a row of its own, and `Engine.block`
tokens are drawn before the host looks at which responses have ended.

Shapes: P prompts, G responses per prompt, N = P * G responses (response i answers prompt i // G), T
new tokens, R rows of the cache, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from rpg.models.tokenizer import Stopper
from rpg.models.truncated_sampling import LEAST, WHOLE, Lists, Restriction, Support, concatenated

BLOCK = 32
"""Tokens that a GPU draws before the host looks at them."""


class Engine(Protocol):
    """A model with its key-value cache. Logits are (R, V), rows in the order of the cache."""

    device: torch.device
    block: int
    """Tokens that are drawn before the host looks at them. With 1, equal responses share a row of
    the cache."""

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        """Fill the cache with one row per prompt; logits of each row's next token."""

    def select(self, index: Tensor) -> None:
        """Replace the rows by the rows `index`, which may contain a row several times or not at
        all."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (R,) to every row; logits of the next."""


@dataclass(frozen=True)
class Samples:
    """Sampled responses with their log-probabilities under the sampling policy (at its temperature,
    over the tokens that could be sampled).
    """

    batch: "Batch"
    log_prob: Tensor
    """(N, T) of the sampled tokens, zero after a row's last token."""
    entropy: Tensor
    """(N, T) of the distributions they were drawn from, nats; zero after a row's last token."""
    truncated: Tensor
    """(N,) bool: the length limit was reached before an end token or a stop string."""


def padded_left(prompts: Sequence[Sequence[int]], width: int) -> tuple[Tensor, Tensor]:
    """(P, width) each: token ids, zero on the padding, and bool, False there. All rows then append
    at the same place."""
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    seen = torch.zeros(ids.shape, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        seen[row, width - len(prompt) :] = True
    return ids, seen


def ignore_progress(finished: int, position: int) -> None:
    """The callback of callers that do not report the progress of a generation."""


@dataclass(frozen=True)
class SamplingPlan:
    """How responses are drawn.

    `uniforms` (N, max_new_tokens) in [0, 1) is the only source of randomness: token t of row i is
    the inverse distribution function at uniforms[i, t], so a response does not depend on the other
    rows. None means greedy decoding (log-probabilities are then those at `temperature`).
    """

    group_size: int
    """Responses to each prompt."""
    max_new_tokens: int
    uniforms: Tensor | None
    temperature: float = 1.0
    restriction: Restriction = WHOLE
    """Which tokens can be sampled."""
    tell: Callable[[int, int], None] = ignore_progress
    """Called at the end of every block of positions with the number of finished responses and the
    position."""
    rows_at_once: int | None = None
    """This number of responses is drawn before the next ones begin: the cache holds no more, and
    only rounding differs (products of other sizes). None: all."""


def generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    plan: SamplingPlan,
    *,
    stop: Sequence[int],
    stopper: Stopper | None = None,
) -> Samples:
    """Sample responses to each prompt. `stop` are the end tokens; `stopper` knows the stop strings
    of the plan's restriction. Raises ValueError: no prompts, or uniforms of the wrong shape.
    """
    group_size = plan.group_size
    rows = len(prompts) * group_size
    _check_plan(plan, len(prompts))
    parts = list[Samples]()
    at_once = plan.rows_at_once or rows
    prompt_ids = [list(prompt) for prompt in prompts]
    prompt_of = torch.arange(rows, device=engine.device) // group_size
    for start in range(0, rows, at_once):
        end = min(start + at_once, rows)
        first = start // group_size
        last = (end - 1) // group_size
        part = _Part(
            engine=engine,
            prompts=prompt_ids[first : last + 1],
            prompt_of=prompt_of[start:end] - first,
            plan=plan,
            stop=stop,
            stopper=stopper,
        )
        uniforms = None if plan.uniforms is None else plan.uniforms[start:end]
        parts.append(part.draw(uniforms, before=start))
    samples = joined(parts)
    return replace(samples, batch=replace(samples.batch, prompts=prompt_ids, prompt_of=prompt_of))


def _check_plan(plan: SamplingPlan, prompts: int) -> None:
    rows = prompts * plan.group_size
    limit = plan.max_new_tokens
    if not rows or limit < 1:
        raise ValueError(
            f"nothing to generate: {prompts} prompts x {plan.group_size}, {limit} tokens"
        )
    if plan.uniforms is not None and tuple(plan.uniforms.shape) != (rows, limit):
        raise ValueError(f"uniforms: shape {tuple(plan.uniforms.shape)}, accepted: {(rows, limit)}")


@dataclass(frozen=True)
class _Block:
    """What was drawn at some positions in a row; (rows, positions) each."""

    tokens: Tensor
    log_prob: Tensor
    entropy: Tensor
    kept: list[Tensor]
    """The tokens that could be sampled at each position, if that is restricted."""


class _Results:
    """The responses of a part, filled block by block. To be made outside of inference mode, so that
    autograd can use them later."""

    def __init__(self, rows: int, limit: int, device: torch.device):
        self.limit = limit
        self.tokens = torch.zeros(rows, limit, dtype=torch.long, device=device)
        self.log_prob = torch.zeros(rows, limit, device=device)
        self.entropy = torch.zeros(rows, limit, device=device)
        self.lengths = torch.full((rows,), limit, device=device)
        self.truncated = torch.ones(rows, dtype=torch.bool, device=device)

    def add(self, active: Tensor, start: int, block: _Block, ended: Tensor) -> Tensor:
        """Take in what the rows `active` drew from position `start` on, each up to its first end;
        bool, which of them have ended. `ended` (rows, positions)."""
        positions = ended.shape[1]
        window = slice(start, start + positions)
        held = ended.cumsum(1) - ended.long() == 0  # up to the first end
        for result, part in (
            (self.tokens, block.tokens),
            (self.log_prob, block.log_prob),
            (self.entropy, block.entropy),
        ):
            result[active, window] = part * held
        over = ended.any(1)
        self.lengths[active] = torch.where(over, start + held.sum(1), self.limit)
        self.truncated[active] = ~over
        return over


@dataclass(frozen=True)
class _Part:
    """Responses whose keys and values are in the cache at the same time; arguments as in
    :func:`generate`."""

    engine: Engine
    prompts: list[list[int]]
    prompt_of: Tensor
    """(N,) ascending: index into `prompts`, each of which has a response."""
    plan: SamplingPlan
    stop: Sequence[int]
    stopper: Stopper | None

    def draw(self, uniforms: Tensor | None, before: int) -> Samples:
        """`before` responses were drawn in earlier parts."""
        engine = self.engine
        limit = self.plan.max_new_tokens
        device = engine.device
        rows = len(self.prompt_of)
        shared = engine.block == 1
        results = _Results(rows, limit, device)
        ends = torch.tensor(list(self.stop), dtype=torch.long, device=device)
        lists = Lists(torch.zeros_like(results.tokens)) if self.plan.restriction.truncates else None
        if uniforms is not None:
            uniforms = uniforms.to(device)
        with torch.inference_mode():
            logits = engine.prefill(self.prompts, limit)
            active = torch.arange(rows, device=device)  # unfinished responses
            row_of = self.prompt_of  # their rows in the cache
            if not shared:
                engine.select(row_of)
                logits = logits[row_of]
                row_of = active
            for start in range(0, limit, engine.block):
                end = min(start + engine.block, limit)
                u = None if uniforms is None else uniforms[active, start:end]
                block = self._block(logits, u, range(start, end), ends, row_of if shared else None)
                ended = torch.isin(block.tokens, ends)
                if self.stopper is not None:
                    results.tokens[active, start:end] = block.tokens
                    ended |= self._stopped(results.tokens[active, :end], start, self.stopper)
                for position, kept in enumerate(block.kept, start):
                    assert lists is not None
                    lists.add(active, position, kept, row_of)
                over = results.add(active, start, block, ended)
                left = (~over).nonzero()[:, 0]  # here the host waits
                self.plan.tell(before + rows - len(left), end)
                if not len(left) or end == limit:
                    break
                last = block.tokens[left, -1]
                if shared:
                    logits, active, row_of = _step(engine, logits, active[left], row_of[left], last)
                    continue
                if len(left) < len(active):
                    engine.select(left)
                active = active[left]
                row_of = row_of[: len(left)]
                logits = engine.step(last)
        return self._samples(results, lists)

    def _samples(self, results: _Results, lists: Lists | None) -> Samples:
        """The samples, as wide as the longest response."""
        width = int(results.lengths.max())
        support = lists.support(width) if lists is not None else None
        least = self.plan.restriction.min_tokens
        if lists is None and least:
            support = Support(closed=least, ends=tuple(self.stop))
        batch = Batch(
            self.prompts, self.prompt_of, results.tokens[:, :width], results.lengths, support
        )
        log_prob = results.log_prob[:, :width]
        entropy = results.entropy[:, :width]
        return Samples(batch, log_prob, entropy, results.truncated)

    def _block(
        self,
        logits: Tensor,
        u: Tensor | None,
        positions: range,
        ends: Tensor,
        row_of: Tensor | None,
    ) -> _Block:
        """Draw the tokens of these positions, without a look at them."""
        restriction = self.plan.restriction
        truncates = restriction.truncates
        temperature = 1.0 if truncates else self.plan.temperature
        tokens = list[Tensor]()
        log_probs = list[Tensor]()
        entropies = list[Tensor]()
        kept = list[Tensor]()
        for column, position in enumerate(positions):
            if column:
                logits = self.engine.step(tokens[-1])
            if position < restriction.min_tokens:
                logits = logits.float().index_fill(1, ends, -torch.inf)
            if truncates:
                logits = logits.float() / self.plan.temperature
                kept.append(restriction.kept(logits))
                logits = logits.masked_fill_(~kept[-1], -torch.inf)
            numbers = None if u is None else u[:, column]
            token, log_prob, entropy = draw(logits, numbers, temperature, row_of)
            tokens.append(token)
            log_probs.append(log_prob)
            entropies.append(entropy)
        return _Block(
            torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(entropies, 1), kept
        )

    def _stopped(self, tokens: Tensor, start: int, stopper: Stopper) -> Tensor:
        """(rows, positions from `start` on) bool: the token completes a stop string; `tokens` are
        those of the rows from their first one on."""
        first = max(0, start + 1 - stopper.tail)  # what a stop string could reach back to
        before = start - first
        rows = tokens[:, first:].tolist()
        least = self.plan.restriction.min_tokens
        completed = torch.zeros(len(rows), tokens.shape[1] - start, dtype=torch.bool)
        for i in range(max(0, least - start - 1), completed.shape[1]):
            completed[:, i] = torch.tensor(stopper([ids[: before + i + 1] for ids in rows]))
        return completed.to(tokens.device)


def _step(
    engine: Engine, logits: Tensor, active: Tensor, row_of: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Split the cache's rows where responses drew different tokens, append these; (logits, active,
    row_of) afterwards."""
    vocabulary = logits.shape[1]
    branches, row_of = torch.unique(row_of * vocabulary + tokens, return_inverse=True)
    row_of, order = row_of.sort(stable=True)
    parents = branches // vocabulary
    if len(parents) != len(logits) or bool((parents[1:] == parents[:-1]).any()):
        engine.select(parents)
    return engine.step(branches % vocabulary), active[order], row_of


def draw(
    logits: Tensor, u: Tensor | None, temperature: float, row_of: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability, the distribution's entropy), each (rows,); greedy if `u` is
    None.

    With `row_of` there is one draw for each of its entries, from that row of `logits`; `u` has as
    many numbers.
    """
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    if u is None:
        token = log_p.argmax(-1)
        token = token if row_of is None else token[row_of]
    else:
        cumulative = p.cumsum(-1)
        total = cumulative[:, -1]
        # Strictly below the total even if u rounds up to it: a token of probability zero is never
        # drawn.
        below = torch.nextafter(total, torch.zeros_like(total))
        if row_of is not None:
            total = total[row_of]
            below = below[row_of]
            one_to_one = len(row_of) == len(cumulative) and bool((row_of[1:] > row_of[:-1]).all())
            cumulative = cumulative if one_to_one else cumulative[row_of]
        target = torch.minimum(u * total, below)
        token = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    log_prob = log_p.gather(1, token[:, None])[:, 0] if row_of is None else log_p[row_of, token]
    # Where p is zero its logarithm may be -inf, and zero times that is NaN.
    entropy = -p.mul_(log_p.clamp_(min=LEAST)).sum(-1)
    return token, log_prob, entropy if row_of is None else entropy[row_of]


@dataclass(frozen=True)
class Batch:
    """Rows refer to their prompt by index, so that work on a prompt is done once for its whole
    group."""

    prompts: list[list[int]]
    """P non-empty lists of token ids."""
    prompt_of: Tensor
    """(N,) int64: index into `prompts`."""
    tokens: Tensor
    """(N, T) int64 response tokens, including the end token; zero after a row's last token."""
    lengths: Tensor
    """(N,) int64, at least 1 and at most T."""
    support: Support | None = None
    """The tokens that could be sampled, if not the whole vocabulary: log-probabilities are
    normalised over these."""
    heard: Tensor | None = None
    """(N, T) bool: response tokens that an environment wrote, which are context and nothing else;
    None: there are none."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def within(self) -> Tensor:
        """(N, T) bool: True on response tokens, whoever wrote them."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    @property
    def mask(self) -> Tensor:
        """(N, T) bool: True on the response tokens that the policy wrote: what losses and
        log-probabilities see."""
        return self.within if self.heard is None else self.within & ~self.heard

    @property
    def written(self) -> Tensor:
        """(N,) number of response tokens that the policy wrote."""
        return self.lengths if self.heard is None else self.mask.sum(-1)

    def placed(self, values: Tensor) -> Tensor:
        """Values of the tokens in `mask`, row by row, as (N, T); zero elsewhere."""
        return torch.zeros(self.tokens.shape, device=values.device).masked_scatter(
            self.mask, values
        )

    def total_lengths(self) -> Tensor:
        """(N,) number of tokens of prompt plus response."""
        sizes = torch.tensor([len(p) for p in self.prompts], device=self.tokens.device)
        return sizes[self.prompt_of] + self.lengths

    def rows(self, index: Tensor) -> "Batch":
        """The rows `index` (int64) with the prompts they need, as wide as their longest
        response."""
        lengths = self.lengths[index]
        used, prompt_of = torch.unique(self.prompt_of[index], return_inverse=True)
        width = int(lengths.max()) if len(lengths) else 0
        prompts = [self.prompts[i] for i in used.tolist()]
        support = None if self.support is None else self.support.rows(index, width)
        heard = None if self.heard is None else self.heard[index, :width]
        return Batch(prompts, prompt_of, self.tokens[index, :width], lengths, support, heard)


def joined(parts: Sequence[Samples]) -> Samples:
    """The samples of all parts in order, padded to the widest; a prompt of several parts is there
    several times."""
    batches = [part.batch for part in parts]
    width = max(batch.tokens.shape[1] for batch in batches)
    prompts = [prompt for batch in batches for prompt in batch.prompts]
    offsets = accumulate((len(batch.prompts) for batch in batches[:-1]), initial=0)

    def widened(tensors: list[Tensor]) -> Tensor:
        return torch.cat([F.pad(t, (0, width - t.shape[1])) for t in tensors])

    prompt_of = [b.prompt_of + offset for b, offset in zip(batches, offsets, strict=True)]
    heard = None
    if batches[0].heard is not None:
        heard = widened([b.within & ~b.mask for b in batches])
    batch = Batch(
        prompts=prompts,
        prompt_of=torch.cat(prompt_of),
        tokens=widened([b.tokens for b in batches]),
        lengths=torch.cat([b.lengths for b in batches]),
        support=concatenated([b.support for b in batches], width),
        heard=heard,
    )
    return Samples(
        batch=batch,
        log_prob=widened([part.log_prob for part in parts]),
        entropy=widened([part.entropy for part in parts]),
        truncated=torch.cat([part.truncated for part in parts]),
    )


@dataclass(frozen=True)
class Scored:
    """What one forward pass says about a batch; C response tokens, row by row."""

    log_prob: Tensor
    """(N, T) of the response tokens, zero after a row's last token."""
    entropy: Tensor | None = None
    """(N, T) of their distributions, nats."""
    states: Tensor | None = None
    """(C, E): what the distributions of the response tokens follow from,"""
    weight: Tensor | None = None
    """(V, E), by a product with this; None: the states are logits."""

    @property
    def vocabulary(self) -> int:
        """Entries of the output layer."""
        assert self.states is not None
        return self.states.shape[-1] if self.weight is None else len(self.weight)

    def logits(self, rows: slice, entries: int | None = None) -> Tensor:
        """(rows, V) float32; the first `entries` of the vocabulary only."""
        assert self.states is not None
        if self.weight is None:
            return self.states[rows, :entries].float()
        return F.linear(self.states[rows], self.weight[:entries]).float()
