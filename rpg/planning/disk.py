"""What runs will leave on disk, by arithmetic: what is kept (rpg.store.checkpoints), and the most while they train."""

from __future__ import annotations

from dataclasses import dataclass

from rpg.config.backend import VerlBackend
from rpg.config.model import TinyModel, bfloat16, lora_of
from rpg.config.run_spec import RunSpec
from rpg.planning.model_shapes import shape_of, tiny_shape

FLOAT = 4
"""Bytes of a weight while it is trained: both back ends keep what is updated, and moments, in float32, whatever they
compute in."""
HALF = 2
"""Of a weight of a checkpoint, where the training computes in bfloat16."""
MOMENTS = 2
"""Numbers per weight that either optimizer keeps: two moments, or one and the schedule-free iterate."""
FILES_BYTES = 12_000
"""Of a checkpoint: config, tokenizer, headers and digests, of which all but the first have mostly links."""
VERL_BYTES = 45_000
"""Of verl's own state beside tensors, per worker: random states, the data loader's place, headers; of a tiny model."""
WAITING_BYTES, WAITING_TOKEN_BYTES = 1_500, 48
"""Of a response drawn ahead (rollout.staleness on verl), and of each token of it and its prompt; measured on tiny runs."""
PROVENANCE_BYTES = 5_700
"""What a training was computed with; measured on the quickstart's runs."""
STEP_BYTES = 1_050
"""A line of metrics and one of the log."""
EVALUATION_BYTES = 2_700
"""Of an evaluation without any sample: the Parquet file's own."""
SAMPLE_BYTES = 4.0
TOKEN_BYTES = {"tiny": 0.3, "pretrained": 1.5}
"""Of a graded sample, compressed: its names and grade; its text has one character a token in tiny models, four in others."""
RESPONSE_SHARE = 0.5
"""Mean length of a response, as a part of the longest allowed."""


@dataclass(frozen=True)
class Disk:
    """Bytes of one run. `after`: what lies there when it is done; `if_last`: the same if its last checkpoint is its
    best; `most`: while it trains; `newest`: a checkpoint from which the training can go on."""

    after: float
    if_last: float
    most: float
    newest: float


def disk(spec: RunSpec, problems: int) -> Disk | None:
    """What a run takes whose benchmarks have so many problems in all; None where the model's size is not known."""
    parameters = parameters_of(spec)
    if parameters is None:
        return None
    half = bfloat16(spec.model)
    verl = isinstance(spec.backend, VerlBackend)
    workers = spec.backend.nodes * spec.backend.gpus_per_node if isinstance(spec.backend, VerlBackend) else 0
    weights = (HALF if half else FLOAT) * parameters + FILES_BYTES
    # What training goes on from holds the weights once more where they are not those of the checkpoint (verl's always),
    # and the earlier policies that are still to sample, or on verl what they have sampled.
    lora, shape = lora_of(spec.model), shape_of(spec.model)
    own = HALF / FLOAT if spec.half_weights() and not verl else 1  # of a weight that is computed with
    copies = MOMENTS + own * _reference(spec) + (half or verl) + (0 if verl else own * spec.rollout.staleness)
    trained = parameters
    if lora and verl:  # the weights once, and little else
        copies = 1
    elif lora and shape:  # the adapters themselves
        trained, copies = shape.adapter_parameters(lora), copies + (not half)
    training = FLOAT * trained * copies + VERL_BYTES * workers + _waiting(spec) * verl
    steps, evaluated = spec.eval_steps(), len(spec.eval_steps())
    names = len(spec.benchmarks())
    k = 1 if spec.evaluation.temperature == 0 else spec.evaluation.samples_per_problem
    sample = SAMPLE_BYTES + TOKEN_BYTES[spec.model.type] * RESPONSE_SHARE * spec.rollout.max_response_tokens
    rest = evaluated * (names * EVALUATION_BYTES + problems * k * sample) + spec.training.steps * STEP_BYTES
    rest += PROVENANCE_BYTES
    keep = spec.training.keep_checkpoints
    kept = (
        {"all": evaluated, "last": 1, "best": 2}[keep]
        if isinstance(keep, str)
        else len({*keep, steps[-1]} & set(steps))
    )
    after = kept * weights + training + rest
    alone = after - weights if keep == "best" and evaluated > 1 else after
    # The two newest can be gone on from; one is being written (by verl in float32), and one waits for its evaluation: all do
    # where the training has all GPUs.
    waiting = max(kept, evaluated) if spec.evaluator_gpus() else kept
    most = max(after, (waiting + 3) * weights + 3 * training + FLOAT * parameters * (half and verl) + rest)
    return Disk(after, alone, most, weights + training)


def _waiting(spec: RunSpec) -> float:
    """Responses that were drawn ahead."""
    tokens = spec.rollout.max_prompt_tokens + spec.rollout.max_response_tokens
    rows = spec.training.prompts_per_step * spec.rollout.group_size * spec.rollout.staleness
    rows *= 2 if spec.algorithm.dynamic_sampling else 1  # what is dropped waits too
    return rows * (WAITING_BYTES + RESPONSE_SHARE * WAITING_TOKEN_BYTES * tokens)


def parameters_of(spec: RunSpec) -> int | None:
    """Weights of a run's model; None where they are not known without asking the hub."""
    model = spec.model
    if isinstance(model, TinyModel):
        return tiny_shape(model).parameters
    shape = shape_of(model)
    return shape.parameters if shape else None


def _reference(spec: RunSpec) -> int:
    """1 where a checkpoint holds the weights of a reference of its own; that of the initial model is in the cache."""
    return int(spec.algorithm.needs_reference and spec.algorithm.reference.type in ("every_k", "kl_above"))
