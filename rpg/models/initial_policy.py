"""The initial policy of a run; warm starts are made once and cached under
`<home>/cache/warm/<digest>/`."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from rpg.config.model import PretrainedModel, bfloat16, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import chat_of
from rpg.models.beside_base import load_model
from rpg.models.four_bit import halve_weights, pack_base
from rpg.models.lora import adapt
from rpg.models.model_cache import pretrained_folder
from rpg.models.model_loading import ModelError, build_tiny, load_pretrained, load_tokenizer
from rpg.models.policy import Policy
from rpg.models.positions import room_of
from rpg.models.special_tokens import encode, marked, notes, stop_tokens
from rpg.models.tokenizer import (
    BEGIN,
    build_tokenizer,
    changes_chat_template,
    check_prompts,
    rendered,
    set_chat_template,
)
from rpg.models.warm_start import supervised_start, warm_start
from rpg.models.warm_start_cache import (
    lengths_checked,
    local_files,
    older_model_digests,
    warm_folder,
)
from rpg.tasks import DataError, Problem, Splits, characters_of, demonstrations_of, load_problems
from rpg.tasks.preparation import data_files, once, prepare_data, read_problems, take_over
from rpg.tasks.problems import Given


def prepare_model(spec: RunSpec, home: Path, say: Callable[[str], None] = print) -> Path | None:
    """Make sure that a run's warm-started model is in the cache and return its folder; None if
    there is no warm start.

    Several processes may call this at once: one does the warm start, the others wait for it. Raises
    ModelError, DataError, StoreError.
    """
    if isinstance(spec.model, PretrainedModel) and spec.model.warm_start is None:
        pretrained_folder(spec.model.path, home, say)
        return None
    folder = warm_folder(spec, home)
    take_over(folder, older_model_digests(spec))
    with once(folder) as build:
        if build is not None:
            policy = _make(spec, home, say)
            policy.model.save_pretrained(build)
            policy.tokenizer.save_pretrained(build)
    return folder


def folder_with_chat_template(spec: RunSpec, home: Path, model: Path) -> Path:
    """A cached copy of a pretrained model with the chat template of the run's task; the model
    itself if it needs none. Raises ModelError, DataError, StoreError.
    """
    if not changes_chat_template(chat_of(spec.task)):
        return model
    settings = json.dumps(
        [str(model), local_files(model), chat_of(spec.task).model_dump(mode="json"), BEGIN]
    )
    folder = Path(home) / "cache" / "dressed" / hashlib.sha256(settings.encode()).hexdigest()[:16]
    with once(folder) as build:
        if build is not None:
            tokenizer = load_tokenizer(model)
            set_chat_template(tokenizer, chat_of(spec.task))
            tokenizer.save_pretrained(build)
            for path in model.iterdir():
                if path.is_file() and not (build / path.name).exists():
                    (build / path.name).symlink_to(path.resolve())
    return folder


def check_lengths(spec: RunSpec, splits: Splits, home: Path) -> str | None:
    """Which prompts of a run, in training or a benchmark, are longer than
    `rollout.max_prompt_tokens`, or than the model has positions beside a response; None if none
    are. Raises ModelError, OSError: the run's tokenizer is not on this machine; it is not
    downloaded for this check.
    """
    tokenizer = tokenizer_of(spec, home, splits, offline=True)
    positions = _positions(spec, home)
    problems = list(splits.train)
    for held_out in splits.benchmarks.values():
        problems += held_out
    limit = spec.rollout.max_prompt_tokens
    room = positions - spec.rollout.max_response_tokens
    too_long = check_prompts(tokenizer, [problem.given() for problem in problems], min(limit, room))
    if too_long and room < limit:
        return (
            f"rollout.max_response_tokens leaves {room} of the model's {positions} positions; "
            f"{too_long}"
        )
    return too_long


def require_lengths(spec: RunSpec, home: Path) -> None:
    """A training would come upon a prompt that is too long some day, and fail, or verl cut it.
    Raises DataError: a prompt is too long. Nothing is said of a model that is not here yet."""
    mark = lengths_checked(spec, home)
    if mark.exists():
        return
    files = data_files(spec, home)
    held_out = {name: read_problems(path) for name, path in files.benchmarks.items()}
    with contextlib.suppress(ModelError, OSError):  # loading the model says what is wrong
        too_long = check_lengths(spec, Splits(read_problems(files.train), held_out), home)
        if too_long:
            raise DataError(too_long)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _positions(spec: RunSpec, home: Path) -> int:
    """The longest sequence that the config of a run's model allows."""
    if not isinstance(spec.model, PretrainedModel):
        return spec.model.max_positions
    path = located(spec.model.path, home) or spec.model.path
    config = AutoConfig.from_pretrained(path, revision=spec.model.revision, local_files_only=True)
    return room_of(config)


def preview_prompts(spec: RunSpec, home: Path) -> list[tuple[Problem, str, int]]:
    """Every training problem with the text of its prompt, as the run's model will see it, and its
    length in tokens. Raises DataError, ModelError, StoreError.
    """
    problems = read_problems(prepare_data(spec, home).train)
    tokenizer = tokenizer_of(spec, home)
    texts = [rendered(tokenizer, problem.given()) for problem in problems]
    return list(zip(problems, texts, map(len, encode(tokenizer, texts)), strict=True))


def tokens_of_prompt(spec: RunSpec, prompt: Given, home: Path) -> list[str]:
    """A prompt as a run's model gets it, its special tokens marked, then what is done otherwise
    than the model's files say and what ends a response. Raises ModelError, OSError: the tokenizer
    is not on this machine; DataError."""
    tokenizer = tokenizer_of(spec, home, offline=True)
    ids = encode(tokenizer, [rendered(tokenizer, prompt)])[0]
    config = None
    if isinstance(spec.model, PretrainedModel):
        path = located(spec.model.path, home) or spec.model.path
        with contextlib.suppress(OSError):  # the model has none
            config = GenerationConfig.from_pretrained(
                path, revision=spec.model.revision, local_files_only=True
            )
    ends = tokenizer.convert_ids_to_tokens(stop_tokens(tokenizer, config))
    lines = [f"a prompt of {len(ids)} tokens: {marked(tokenizer, ids)}"]
    lines += [f"tokens: {note}" for note in notes(tokenizer, config)]
    if ends:
        lines.append(f"tokens: a response ends with {' or '.join(ends)}")
    return lines


def tokenizer_of(
    spec: RunSpec, home: Path, splits: Splits | None = None, offline: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer of a run's model, which is not built; a tiny model's from the problems
    `splits`, if they are given."""
    if isinstance(spec.model, PretrainedModel):
        path = located(spec.model.path, home) or spec.model.path
        tokenizer = load_tokenizer(path, spec.model.revision, offline)
    elif splits is None and warm_folder(spec, home).is_dir():
        return load_tokenizer(warm_folder(spec, home))
    else:
        tokenizer = build_tokenizer(characters_of(spec.task, splits or load_problems(spec.task)))
    set_chat_template(tokenizer, chat_of(spec.task))
    return tokenizer


def initial_policy(
    spec: RunSpec, home: Path, say: Callable[[str], None] = print, device: str | None = None
) -> Policy:
    """The policy that a run starts from, on its device (or on this one). Raises ModelError,
    DataError, StoreError."""
    device = device or spec.backend.device
    folder = prepare_model(spec, home, say)
    if folder is None:
        return _pretrained(spec, home, say, device)
    try:
        model, tokenizer = load_pretrained(folder)
    except ModelError as error:
        say(f"warning: the cached warm start is damaged and will be rebuilt: {error}")
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            folder.replace(folder.with_name(f".{folder.name}.{os.getpid()}.tmp"))
        prepare_model(spec, home, say)
        model, tokenizer = load_pretrained(folder)
    return Policy(model.to(device), tokenizer, bfloat16=bfloat16(spec.model))


def starting_policy(spec: RunSpec, home: Path, say: Callable[[str], None] = print) -> Policy:
    """:func:`initial_policy`, with adapters if the run trains adapters. Raises ModelError,
    DataError, StoreError."""
    lora = spec.model.lora
    # In float32 a frozen base may be larger than a GPU that has room for it as it is kept.
    policy = initial_policy(spec, home, say, device="cpu" if lora else None)
    for note in notes(policy.tokenizer, getattr(policy.model, "generation_config", None)):
        say(f"tokens: {note}")
    if lora:
        adapt(policy.model, lora, spec.seed)
        if lora.base == "nf4":
            pack_base(policy.model)
        if spec.half_weights():
            halve_weights(policy.model, only_frozen=True)
        policy.model.to(spec.backend.device)
    return policy


def _pretrained(spec: RunSpec, home: Path, say: Callable[[str], None], device: str) -> Policy:
    assert isinstance(spec.model, PretrainedModel)
    folder = pretrained_folder(spec.model.path, home, say)
    model, tokenizer = load_model(folder, spec.model.revision)
    set_chat_template(tokenizer, chat_of(spec.task))
    return Policy(model.to(device), tokenizer, bfloat16=bfloat16(spec.model))


def _make(spec: RunSpec, home: Path, say: Callable[[str], None]) -> Policy:
    splits = load_problems(spec.task)
    if isinstance(spec.model, PretrainedModel):
        start = spec.model.warm_start
        assert start is not None
        demos = demonstrations_of(spec.task, splits)
        policy = _pretrained(spec, home, say, spec.backend.device)
        say(
            f"warm start: {start.steps} steps of {start.batch_size} demonstrations (cached "
            "for later runs)"
        )
        supervised_start(policy, demos, start, say)
        return policy
    warm = spec.model.warm_start
    tokenizer = build_tokenizer(characters_of(spec.task, splits))
    set_chat_template(tokenizer, chat_of(spec.task))
    if warm is None:
        return Policy(build_tiny(spec.model, tokenizer, seed=0), tokenizer)
    assert warm.seed is not None, "a RunSpec has filled it in"
    demos = demonstrations_of(spec.task, splits)
    policy = Policy(build_tiny(spec.model, tokenizer, warm.seed), tokenizer)
    threads = torch.get_num_threads()
    say(f"warm start of seed {warm.seed}: begins (cached for later runs)")
    try:
        torch.set_num_threads(1)  # at this size more threads only wait for each other
        warm_start(policy, spec.task, demos, warm, say)
    finally:
        torch.set_num_threads(threads)
    return policy
