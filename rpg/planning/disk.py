"""Estimates of the disk space of runs, by arithmetic: during training, and what they leave (rpg.store.checkpoints)."""

from __future__ import annotations

from dataclasses import dataclass

from rpg.config.backend import VerlBackend
from rpg.config.model import TinyModel, bfloat16, lora_of
from rpg.config.run_spec import RunSpec
from rpg.planning.model_shapes import shape_of, tiny_shape

FLOAT = 4
"""Bytes of a trained weight: both back ends keep updated weights and moments in float32, whatever they compute in."""
HALF = 2
"""Bytes of a weight in a checkpoint of a training that computes in bfloat16."""
MOMENTS = 2
"""Numbers per weight that either optimizer keeps: two moments, or one and the schedule-free iterate."""
FILES_BYTES = 12_000
"""Per checkpoint: config, tokenizer, headers and digests; in later checkpoints most of them are links."""
VERL_BYTES = 45_000
"""verl's state besides tensors, per worker: random states, the position of the data loader, headers; for a tiny model."""
WAITING_BYTES, WAITING_TOKEN_BYTES = 1_500, 48
"""A prefetched response (rollout.staleness on verl), and each token of it and its prompt; measured on tiny runs."""
PROVENANCE_BYTES = 5_700
"""The record of the training's code and environment; measured on the runs of the quickstart."""
STEP_BYTES = 1_050
"""A line of metrics and one of the log."""
EVALUATION_BYTES = 2_700
"""The Parquet file of an evaluation without samples."""
SAMPLE_BYTES = 4.0
TOKEN_BYTES = {"tiny": 0.3, "pretrained": 1.5}
"""A graded sample, compressed: names and grade, and per token of text one character in tiny models, about four in others."""
RESPONSE_SHARE = 0.5
"""Mean length of a response, as a fraction of the limit."""


@dataclass(frozen=True)
class Disk:
    """Bytes of one run. `after`: when it is done; `if_last`: when it is done and its last checkpoint is its best; `most`:
    the peak during training; `newest`: a checkpoint from which the training can continue."""

    after: float
    if_last: float
    most: float
    newest: float


def disk(spec: RunSpec, problems: int) -> Disk | None:
    """The disk space of a run whose benchmarks have `problems` in total; None if the size of the model is unknown."""
    parameters = parameters_of(spec)
    if parameters is None:
        return None
    half = bfloat16(spec.model)
    verl = isinstance(spec.backend, VerlBackend)
    workers = spec.backend.nodes * spec.backend.gpus_per_node if isinstance(spec.backend, VerlBackend) else 0
    weights = (HALF if half else FLOAT) * parameters + FILES_BYTES
    # The training state holds the weights again if they differ from those of the checkpoint (on verl always), and the
    # earlier policies that have yet to sample (on verl: their samples).
    lora, shape = lora_of(spec.model), shape_of(spec.model)
    weight_share = (
        HALF / FLOAT if spec.half_weights() and not verl else 1
    )  # share of a weight in computations
    copies = (
        MOMENTS
        + weight_share * _reference(spec)
        + (half or verl)
        + (0 if verl else weight_share * spec.rollout.staleness)
    )
    trained = parameters
    if lora and verl:  # only the weights
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
    # Training can continue from the two newest; one is being written (by verl in float32) and one waits for its evaluation,
    # or all do if the training uses all GPUs.
    waiting = max(kept, evaluated) if spec.evaluator_gpus() else kept
    most = max(after, (waiting + 3) * weights + 3 * training + FLOAT * parameters * (half and verl) + rest)
    return Disk(after, alone, most, weights + training)


def _waiting(spec: RunSpec) -> float:
    """Bytes of prefetched responses."""
    tokens = spec.rollout.max_prompt_tokens + spec.rollout.max_response_tokens
    rows = spec.training.prompts_per_step * spec.rollout.group_size * spec.rollout.staleness
    rows *= 2 if spec.algorithm.dynamic_sampling else 1  # includes groups that will be dropped
    return rows * (WAITING_BYTES + RESPONSE_SHARE * WAITING_TOKEN_BYTES * tokens)


def parameters_of(spec: RunSpec) -> int | None:
    """The number of weights of a run's model; None if only the hub knows it."""
    model = spec.model
    if isinstance(model, TinyModel):
        return tiny_shape(model).parameters
    shape = shape_of(model)
    return shape.parameters if shape else None


def _reference(spec: RunSpec) -> int:
    """1 if checkpoints hold the weights of a reference policy; an initial model as reference is in the cache."""
    return int(spec.algorithm.needs_reference and spec.algorithm.reference.type in ("every_k", "kl_above"))
