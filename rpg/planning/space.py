"""Estimates, by arithmetic, of a run's disk space and of the embedded trainer's memory (measured:
docs/trainer.md).

Weights, gradients and moments are float32; a model in bfloat16 on a GPU also has rounded weights
(rpg.backends.local.optimizers). What a forward pass keeps for the backward pass is about what goes
into and comes out of its linear layers (the packed implementation, rpg.models.lean); with layers
computed again it is the inputs of layers, and one layer with its gradients.
"""

from dataclasses import dataclass

from rpg.config.backend import LocalBackend, VerlBackend
from rpg.config.evaluation import ThisMachine, VllmEngineSpec
from rpg.config.model import TinyModel, bfloat16, has_packed_base
from rpg.config.run_spec import RunSpec
from rpg.config.training import has_8bit_moments
from rpg.planning.model_shapes import Shape, shape_and_source, shape_of, tiny_shape
from rpg.store.token_records import FILE_BYTES as RECORD_BYTES
from rpg.store.token_records import TOKEN_BYTES as RECORDED_TOKEN_BYTES

FLOAT = 4
"""Bytes of a trained weight: both back ends keep updated weights and moments in float32, whatever
they compute in."""
HALF = 2  # bytes of a weight in a checkpoint of a training that computes in bfloat16
MOMENTS = 2
"""Numbers per weight that either optimizer keeps: two moments, or one and the schedule-free
iterate."""
BLOCK = 256
"""Moments of 8 bits share a float32 scale in blocks of so many."""
PACKED_BLOCK = 64
PACKED = 0.5 + FLOAT / PACKED_BLOCK
"""Bytes of a weight of 4 bits (model.lora.base nf4), with its part of a float32 scale; as in
rpg.models.four_bit."""
FILES_BYTES = 12_000
"""Per checkpoint: config, tokenizer, headers and digests; in later checkpoints most of them are
links."""
VERL_BYTES = 45_000
"""verl's state besides tensors, per worker: random states, the position of the data loader,
headers; for a tiny model."""
WAITING_BYTES = 1_500
WAITING_TOKEN_BYTES = 48
"""A prefetched response (rollout.staleness on verl), and each token of it and its prompt; measured
on tiny runs."""
PROVENANCE_BYTES = 5_700
"""The record of the training's code and environment; measured on the runs of the quickstart."""
STEP_BYTES = 1_050  # a line of metrics and one of the log
EVALUATION_BYTES = 2_700  # the Parquet file of an evaluation without samples
SAMPLE_BYTES = 4.0
TOKEN_BYTES = {"tiny": 0.3, "pretrained": 1.5}
"""A graded sample, compressed: names and grade, and per token of text one character in tiny models,
about four in others."""
RESPONSE_SHARE = 0.5  # mean length of a response, as a fraction of the limit


def moment_bytes(spec: RunSpec) -> float:
    """Of both numbers that the optimizer keeps of a weight."""
    if has_8bit_moments(spec.training.optimizer):
        return MOMENTS * (1 + FLOAT / BLOCK)
    return float(MOMENTS * FLOAT)


@dataclass(frozen=True)
class Disk:
    """Bytes of one run. `after`: when it is done; `if_last`: when it is done and its last
    checkpoint is its best; `most`: the peak during training; `newest`: a checkpoint from which the
    training can continue."""

    after: float
    if_last: float
    most: float
    newest: float


def disk(spec: RunSpec, problems: int) -> Disk | None:
    """The disk space of a run whose benchmarks have `problems` in total; None if the size of the
    model is unknown."""
    shape = run_shape(spec)
    if shape is None:
        return None
    parameters = shape.parameters
    half = bfloat16(spec.model)
    backend = spec.backend
    workers = backend.nodes * backend.gpus_per_node if isinstance(backend, VerlBackend) else 0
    verl = workers > 0
    rounds = half and not spec.model.lora  # adapters are merged in float32, and there by themselves
    weights = (HALF if rounds else FLOAT) * parameters + FILES_BYTES
    if has_packed_base(spec.model):  # the adapters alone
        weights = FILES_BYTES
    if spec.model.lora and not isinstance(spec.model, TinyModel):
        weights += FLOAT * shape.adapter_parameters(spec.model.lora)
    # The training state holds the weights again if they differ from those of the checkpoint (on
    # verl always), and the earlier policies that have yet to sample (on verl: their samples). An
    # initial model as reference is in the cache.
    lora = spec.model.lora
    algorithm = spec.algorithm
    share = (
        HALF / FLOAT if spec.half_weights() and not verl else 1
    )  # of a trained weight, in computations
    copied = algorithm.needs_reference and algorithm.reference.type in (
        "every_k",
        "kl_above",
        "ema",
    )
    copies = (
        moment_bytes(spec) / FLOAT
        + (half or verl)
        + share * (copied + (0 if verl else spec.rollout.staleness))
    )
    copies += (1 + MOMENTS) * (algorithm.advantage.type == "gae")  # a critic
    trained = parameters
    if lora and verl:  # only the weights
        copies = 1
    elif lora and not isinstance(spec.model, TinyModel):  # the adapters themselves
        trained = shape.adapter_parameters(lora)
        copies = copies + (not half)
        if has_packed_base(spec.model):  # which are the checkpoint itself
            copies -= 1
    training = FLOAT * trained * copies + VERL_BYTES * workers + _waiting(spec) * verl
    steps = spec.eval_steps()
    evaluated = len(spec.eval_steps())
    names = len(spec.benchmarks())
    sample = (
        SAMPLE_BYTES
        + TOKEN_BYTES[spec.model.type] * RESPONSE_SHARE * spec.rollout.max_response_tokens
    )
    graded = problems * spec.evaluation.samples * sample
    rest = evaluated * (names * EVALUATION_BYTES + graded) + spec.training.steps * STEP_BYTES
    rest += PROVENANCE_BYTES + token_records(spec)
    keep = spec.training.keep_checkpoints
    counts = {"all": evaluated, "last": 1, "best": 2}
    kept = counts[keep] if isinstance(keep, str) else len({*keep, steps[-1]} & set(steps))
    after = kept * weights + training + rest
    alone = after - weights if keep == "best" and evaluated > 1 else after
    # Training can continue from the two newest; one is being written (by verl in float32) and one
    # waits for its evaluation, or all do if the training uses all GPUs.
    waiting = max(kept, evaluated) if spec.evaluator_gpus() else kept
    most = max(
        after, (waiting + 3) * weights + 3 * training + FLOAT * parameters * (half and verl) + rest
    )
    return Disk(after, alone, most, weights + training)


def token_records(spec: RunSpec) -> float:
    """Bytes of a run's records of tokens (training.token_records), at most: with responses as long
    as they may be."""
    records = spec.training.token_records
    if not records.every:
        return 0.0
    longest = records.groups * spec.rollout.group_size * spec.rollout.max_response_tokens
    each = RECORD_BYTES + RECORDED_TOKEN_BYTES * min(longest, records.most_tokens)
    return spec.training.steps // records.every * each


def _waiting(spec: RunSpec) -> float:
    """Bytes of prefetched responses."""
    tokens = spec.rollout.max_prompt_tokens + spec.rollout.max_response_tokens
    rows = spec.training.prompts_per_step * spec.rollout.group_size * spec.rollout.staleness
    rows *= 2 if spec.algorithm.dynamic_sampling else 1  # includes groups that will be dropped
    return rows * (WAITING_BYTES + RESPONSE_SHARE * WAITING_TOKEN_BYTES * tokens)


def teacher_shape(spec: RunSpec) -> Shape | None:
    """Of the model that is the reference; None: there is none, or its size is unknown."""
    path = spec.algorithm.teacher_path
    return None if path is None else shape_and_source(path)[0]


PROCESS = 0.5e9
"""A process that has imported PyTorch, transformers and what tasks need, and has read a task."""
CONTEXT = 0.8e9
"""On a GPU: the context of CUDA, with workspaces and recorded graphs. docs/trainer.md compares the
whole."""
ROOM = 0.9
"""Share of the memory that a run plans with when it chooses how many responses it draws at a time.
"""
DRAWING = 5  # copies of the logits in float32 while a token is drawn
PROMPT_TOKENS = 0.5  # mean length of a prompt, as a fraction of the limit
AT_ONCE = 1.2e9
"""Upper bound for log-probabilities over a large vocabulary, which are computed in parts
(docs/trainer.md)."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one training."""

    fixed: float
    """The process, weights, moments, and policies other than the trained one."""
    rollout: float
    """Keys and values of the responses drawn at a time, if all have the maximum length; copied
    weights; logits."""
    update: float
    """Gradients, which a rollout does not have, and activations kept for the backward pass."""
    rows_at_once: int

    @property
    def most(self) -> float:
        return self.fixed + max(self.rollout, self.update)


def run_shape(spec: RunSpec) -> Shape | None:
    """Of the run's model; None if its size is unknown."""
    return tiny_shape(spec.model) if isinstance(spec.model, TinyModel) else shape_of(spec.model)


def _rollout(spec: RunSpec, shape: Shape, rows: int) -> float:
    """Bytes for drawing `rows` responses at a time; docs/trainer.md compares them with a run."""
    r = spec.rollout
    cuda = spec.backend.device == "cuda"
    number = HALF if bfloat16(spec.model) else FLOAT
    # On a GPU every response has a copy of its prompt; on a CPU a group shares one, unless the
    # model is small.
    slots = r.max_response_tokens + (
        r.max_prompt_tokens if cuda else r.max_prompt_tokens / r.group_size
    )
    cache = rows * slots * shape.cache_bytes_per_token * number / HALF
    copied: float
    if cuda:
        copied = (
            shape.layers
            * shape.hidden
            * (shape.attention_width + 2 * shape.kv_heads * shape.head_dim)
        )
        copied += shape.layers * 2 * shape.hidden * shape.intermediate
    else:
        copied = shape.block_parameters + shape.vocabulary * shape.hidden
        # The rotation of a CPU's decoding holds the norms of queries and keys of every layer.
        tables = shape.layers if shape.qk_norm else 1
        positions = r.max_prompt_tokens + r.max_response_tokens
        copied += 2 * tables * positions * (shape.heads + shape.kv_heads) * shape.head_dim
    if spec.model.lora and not bfloat16(spec.model):
        copied = 0  # counted with the merged copy
    elif has_packed_base(spec.model):
        copied *= PACKED / number if cuda else 1 + FLOAT / number  # there they are taken out first
    return cache + copied * number + rows * shape.vocabulary * FLOAT * DRAWING


def memory(spec: RunSpec, room: float | None = None) -> Memory | None:
    """The memory of a run; None without the embedded trainer or if the size of the model is
    unknown. Where `rollout.rows_at_once` leaves it open, the run draws all responses at a time, or
    equal parts that fit into `room` bytes.
    """
    backend = spec.backend
    shape = run_shape(spec)
    if not isinstance(backend, LocalBackend) or shape is None:
        return None
    t = spec.training
    r = spec.rollout
    weight_bytes = _weight_bytes(spec)
    held = held_bytes(spec, shape)
    if spec.model.lora:
        # While float32 samples, also a copy with the adapters merged; and a rounded one.
        copies = (not bfloat16(spec.model)) + (r.sampler.dtype != "same")
        held += shape.parameters * weight_bytes * copies
    share = 1.0 if backend.device == "cuda" else RESPONSE_SHARE  # a GPU's memory has no swap
    response = share * r.max_response_tokens
    prompt = PROMPT_TOKENS * r.max_prompt_tokens
    at_once = min(t.micro_batch_rows, t.mini_batch_prompts * r.group_size)
    tokens = at_once * response + -(-at_once // r.group_size) * prompt
    passes = t.micro_batch_tokens or tokens_per_pass(shape, backend.device, weight_bytes)
    fixed = (CONTEXT if backend.device == "cuda" else PROCESS) + held
    rows = min(r.rows_at_once or spec.rollout_rows(), spec.rollout_rows())
    if room and r.rows_at_once is None:
        room_for_rows = ROOM * room - evaluators_share(spec, room)
        none = _rollout(spec, shape, 0)
        one = _rollout(spec, shape, 1)
        most = max(1, min(rows, int((room_for_rows - fixed - none) // (one - none))))
        rows = -(-rows // -(-rows // most))
    update = gradient_bytes(spec, shape)
    update += pass_bytes(shape, min(tokens, passes), backend, weight_bytes)
    if has_packed_base(spec.model):
        update += weight_bytes * shape.hidden * shape.intermediate  # the largest layer, taken out
    if isinstance(r.engine, VllmEngineSpec) and backend.device == "cuda":
        share_of_room = r.engine.gpu_memory_utilization * (room or 0)
        rows = _rows_in_vllm(spec, shape, share_of_room) if room else spec.rollout_rows()
        return Memory(fixed, share_of_room, update, rows)  # while the policy updates, vLLM sleeps
    return Memory(fixed, _rollout(spec, shape, rows), update, rows)


def _weight_bytes(spec: RunSpec) -> int:
    """Of a weight in computations."""
    return HALF if spec.half_weights() else FLOAT


def held_bytes(spec: RunSpec, shape: Shape) -> float:
    """Bytes that the embedded trainer holds all the time: weights, moments, and policies other than
    the trained one."""
    weight_bytes = _weight_bytes(spec)
    teacher = teacher_shape(spec)
    others = (spec.algorithm.needs_reference and teacher is None) + spec.rollout.staleness
    trained = moment_bytes(spec) + weight_bytes
    trained += FLOAT * spec.half_weights()  # the master
    if spec.algorithm.advantage.type == "gae":  # a critic, with its gradient
        trained += trained + FLOAT
    trained += weight_bytes * others
    of_teacher = weight_bytes * teacher.parameters if teacher else 0
    lora = spec.model.lora
    if lora is None:
        rounded = weight_bytes * (spec.rollout.sampler.dtype != "same")
        return shape.parameters * (trained + rounded) + of_teacher
    return _base_bytes(spec, shape) + shape.adapter_parameters(lora) * trained + of_teacher


def _base_bytes(spec: RunSpec, shape: Shape) -> float:
    """Of the frozen weights under adapters."""
    weight_bytes = _weight_bytes(spec)
    base: float = shape.parameters * weight_bytes
    if has_packed_base(spec.model):
        base -= shape.packable(PACKED_BLOCK) * (weight_bytes - PACKED)
    return base


def evaluators_share(spec: RunSpec, room: float) -> float:
    """Bytes of a GPU with `room` bytes that are the evaluators', by `evaluation.place.gpu_memory`;
    0 where it does not say, and where no evaluator is on the GPU of a training."""
    place = spec.evaluation.place
    if not isinstance(place, ThisMachine) or not _evaluators_beside(spec):
        return 0.0
    return place.processes * (place.gpu_memory or 0.0) * room


def evaluators_least(spec: RunSpec) -> float:
    """Bytes that evaluators take at least on the GPU of a training: the process, the weights and
    one response at a time (they draw as many as memory is free); 0 where none is there, or the size
    of the model is unknown."""
    place = spec.evaluation.place
    shape = run_shape(spec)
    if not isinstance(place, ThisMachine) or not _evaluators_beside(spec) or shape is None:
        return 0.0
    weights: float = FLOAT * shape.parameters  # rpg.evaluation.engines.local
    if has_packed_base(spec.model) and spec.model.lora:
        adapters = shape.adapter_parameters(spec.model.lora)
        weights = _base_bytes(spec, shape) + _weight_bytes(spec) * adapters
    return place.processes * (CONTEXT + weights + _rollout(spec, shape, 1))


def _evaluators_beside(spec: RunSpec) -> bool:
    """Whether evaluators on this machine use the GPU of a training while it trains."""
    return spec.backend.device == "cuda" and not spec.evaluator_gpus()


def gradient_bytes(spec: RunSpec, shape: Shape) -> float:
    """Of the trained weights, from the first backward pass of an update to its end."""
    lora = spec.model.lora
    return FLOAT * (shape.adapter_parameters(lora) if lora else shape.parameters)


def _rows_in_vllm(spec: RunSpec, shape: Shape, room: float) -> int:
    """How many responses vLLM draws at a time: as many as its cache holds beside its weights, in
    pages, so that a response takes what it has written."""
    r = spec.rollout
    number = HALF if bfloat16(spec.model) else FLOAT
    cache = room - number * shape.parameters
    tokens = PROMPT_TOKENS * r.max_prompt_tokens + RESPONSE_SHARE * r.max_response_tokens
    each = tokens * shape.cache_bytes_per_token * number / HALF
    return max(1, min(spec.rollout_rows(), int(cache // each)))


def with_backend(spec: RunSpec, **changes: object) -> RunSpec:
    """The same run with other settings of its back end."""
    return spec.model_copy(update={"backend": spec.backend.model_copy(update=changes)})


def tokens_per_pass(shape: Shape, device: str, number: int = FLOAT) -> int:
    """The default number of tokens per pass of the trainer (rpg.models.policy)."""
    room = 2**31 if device == "cpu" else 2**33
    return max(1, min(8192, room // (number * shape.layers * _widths(shape, device))))


def pass_bytes(shape: Shape, tokens: float, backend: LocalBackend, number: int = FLOAT) -> float:
    """Peak memory of a forward and backward pass over `tokens` tokens, without weights and
    gradients.

    `number`: bytes of a number in computations.
    """
    layer = number * _widths(shape, backend.device)
    kept = shape.layers * layer
    if backend.gradient_checkpointing:
        kept = shape.layers * number * shape.hidden + layer
    if backend.offload:
        kept = layer
    logits = min(AT_ONCE, 3 * FLOAT * shape.vocabulary * tokens)
    return tokens * (kept + layer / 2) + logits


def _widths(shape: Shape, device: str) -> int:
    """Numbers per token that go into and come out of the linear layers of a block; and on a GPU,
    keys and values once more, copied for each query head (lean.attention).
    """
    kv = shape.kv_heads * shape.head_dim
    attention = 2 * (shape.hidden + shape.attention_width) + 2 * (shape.hidden + kv)
    attention += 2 * shape.attention_width if device == "cuda" else 0
    return attention + 3 * (shape.hidden + shape.intermediate)
