"""The initial model: warm start, its cache, models of other makers, tasks of one's own."""

import json
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from rpg.backends.local.training_loop import train
from rpg.config.run_spec import RunSpec
from rpg.models import warm_start
from rpg.models.decoding import SamplingPlan
from rpg.models.initial_policy import check_lengths, initial_policy, prepare_model
from rpg.models.model_loading import ModelError, load_pretrained
from rpg.models.policy import Policy
from rpg.models.tokenizer import build_tokenizer, encode_prompts
from rpg.models.warm_start_cache import model_digest
from rpg.tasks import DataError, Problem, Splits
from tests.models.test_lean import model
from tests.tiny import make_run, make_spec, numbers

quiet = lambda line: None  # noqa: E731


def test_a_tokenizer_of_characters_loses_nothing(tmp_path):
    text = "a B\n\tc  d é日#-"
    tokenizer = build_tokenizer(text)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == 4 + len(set(text))
    assert tokenizer.decode(tokenizer("az")["input_ids"], skip_special_tokens=True) == "a"
    assert encode_prompts(tokenizer, ["a"], 2) == [
        [tokenizer.bos_token_id, *tokenizer("a")["input_ids"]]
    ]
    with pytest.raises(
        DataError, match=r"rollout.max_prompt_tokens: 3, but a prompt has 5 tokens: 'a B"
    ):
        encode_prompts(tokenizer, ["a", "a Bc"], 3)


@pytest.mark.system
def test_stage_one_learns_and_stage_two_mostly_hides_it(tmp_path):
    """One operation only, so that it takes seconds; the default task is measured in
    docs/trainer.md."""
    lines = []
    rates = {"learning_rate": 5e-3, "behaviour_learning_rate": 1e-3, "batch_size": 16}
    start = rates | {"target_accuracy": 0.9, "consolidation_steps": 20, "behaviour_steps": 120}
    spec = make_spec(model={"hidden_size": 64, "warm_start": start})
    one = {"tiers": {"one": 1}, "train_problems": 100}
    spec = spec.model_copy(update={"task": spec.task.model_copy(update=one)})
    policy = initial_policy(spec, tmp_path, lines.append)
    said = [re.search(r"held-out accuracy ([\d.]+),", line) for line in lines]
    reached = [float(found[1]) for found in said if found]
    assert reached[-1] >= 0.9
    prompts = encode_prompts(policy.tokenizer, ["a3b+4="], 16)
    u = torch.rand(200, 12, generator=torch.Generator().manual_seed(0))
    samples = policy.sample(prompts, SamplingPlan(group_size=200, max_new_tokens=12, uniforms=u))
    bare = sum(text.startswith("#") for text in policy.text(samples.batch)) / 200
    assert 0.5 < bare < 0.98


def test_the_cache_is_used_and_shared_by_what_does_not_matter(home):
    spec = make_spec()
    folder = prepare_model(spec, home, quiet)
    lines = []
    other = make_spec(algorithm="dapo", rollout={"max_response_tokens": 5}, training={"steps": 9})
    assert prepare_model(other, home, lines.append) == folder
    assert lines == []
    assert model_digest(make_spec(model={"hidden_size": 64})) != model_digest(spec)
    follows = model_digest(make_spec(seed=1))
    assert (
        follows == model_digest(make_spec(model={"warm_start": {"seed": 1}})) != model_digest(spec)
    )
    fixed = make_spec(seed=1, model={"warm_start": {"seed": 0}})
    assert model_digest(fixed) == model_digest(spec), "fixed on purpose"


def test_a_damaged_cache_is_made_again(tmp_path):
    spec = make_spec(model={"warm_start": None})
    folder = prepare_model(spec, tmp_path, quiet)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:1000])
    lines = []
    initial_policy(spec, tmp_path, lines.append)
    assert "damaged" in lines[0]
    assert (folder / "model.safetensors").read_bytes() == whole
    assert [p.name for p in folder.parent.iterdir() if p.suffix == ".tmp"] == []


def test_the_same_seed_warm_starts_to_the_same_bits(home, tmp_path):
    first = initial_policy(make_spec(), home, quiet).model.state_dict()
    again = initial_policy(make_spec(), tmp_path, quiet).model.state_dict()
    assert all(value.equal(again[name]) for name, value in first.items())


def test_a_target_out_of_reach_is_an_error_that_says_what_to_change(tmp_path):
    spec = make_spec(model={"warm_start": {"target_accuracy": 1.0, "max_steps": 30}})
    words = r"accuracy 0\.\d+ after max_steps=30 steps, the target_accuracy is 1\.0"
    with pytest.raises(ModelError, match=words):
        prepare_model(spec, tmp_path, quiet)
    assert not any((tmp_path / "cache" / "warm").glob("[!.]*"))


def test_a_model_too_short_for_its_demonstrations_is_said(tmp_path):
    spec = make_spec(
        model={"max_positions": 12}, rollout={"max_prompt_tokens": 8, "max_response_tokens": 4}
    )
    with pytest.raises(
        DataError, match=r"model.max_positions: 12, but a demonstration has 1[3-9] tokens"
    ):
        prepare_model(spec, tmp_path, quiet)


def own_task(tmp_path, rows=60):
    def line(i):
        answer = str(i * 7 % 100)
        shown = f"so\nAnswer: {answer}"
        return json.dumps({"prompt": f"{i} x 7 =", "answer": answer, "demonstration": shown})

    train_file = tmp_path / "train.jsonl"
    held = tmp_path / "held.jsonl"
    train_file.write_text("\n".join(line(i) for i in range(10, 10 + rows)))
    held.write_text("\n".join(line(i) for i in range(200, 206)))
    return {"type": "file", "train": str(train_file), "benchmarks": {"sevens": str(held)}}


def test_a_task_of_ones_own_is_warm_started_and_trained(tmp_path):
    spec = make_spec(rollout={"max_response_tokens": 16}).model_dump(mode="json")
    spec = RunSpec.model_validate({**spec, "task": own_task(tmp_path), "evaluation": {"every": 3}})
    folder = make_run(tmp_path, "own", spec)
    train(folder, tmp_path, quiet)
    rows = numbers(folder)
    assert len(rows) == 3
    assert all(0 <= row["accuracy"] <= 1 for row in rows)


def tiny_llama(folder):
    """A Llama with random weights in a folder, with a tokenizer of the chain task's characters."""
    tokenizer = build_tokenizer("0123456789+-*=#abcdefghijklm")
    path = folder / "llama"
    size = {"vocab_size": len(tokenizer), "num_hidden_layers": 1, "bos_token_id": 1}
    model(family=LlamaConfig, initializer_range=0.2, **size).save_pretrained(path)
    tokenizer.save_pretrained(path)
    # As of models that are published: transformers reads a temperature without do_sample, and would
    # not save it.
    (path / "generation_config.json").write_text('{"temperature": 0.6, "eos_token_id": [2, 5]}')
    return path


def test_any_causal_model_trains(tmp_path):
    path = tiny_llama(tmp_path)
    spec = make_spec().model_dump(mode="json")
    for dtype in ("float32", "bfloat16"):
        model = {"type": "pretrained", "path": str(path), "dtype": dtype}
        run = RunSpec.model_validate({**spec, "model": model})
        folder = make_run(tmp_path, f"llama-{dtype}", run)
        train(folder, tmp_path, quiet)
        assert len(numbers(folder)) == 3
        end = AutoModelForCausalLM.from_pretrained(folder.checkpoint(3), dtype=torch.float32)
        assert type(end) is LlamaForCausalLM
        assert end.generation_config.eos_token_id == [2, 5]


def test_a_prompt_and_a_response_have_to_fit_the_model_s_positions(tmp_path):
    spec = make_spec(rollout={"max_prompt_tokens": 48, "max_response_tokens": 32}).model_dump(
        mode="json"
    )
    spec = RunSpec.model_validate(
        spec | {"model": {"type": "pretrained", "path": str(tiny_llama(tmp_path))}}
    )
    problems = [Problem("0", "", "a" * size, "b", "") for size in (3, 31, 32)]  # and a begin token
    said = (
        "rollout.max_response_tokens leaves 32 of the model's 64 positions; "
        "rollout.max_prompt_tokens: 32, but a"
    )
    assert check_lengths(spec, Splits(problems[:2], {}), tmp_path) is None
    assert said in check_lengths(spec, Splits(problems, {}), tmp_path)


def supervised(steps=60, **settings):
    return {"steps": steps, "learning_rate": 3e-3, "batch_size": 16, **settings}


def test_a_pretrained_model_is_fine_tuned_on_demonstrations_once_and_remembers(tmp_path):
    path = tiny_llama(tmp_path)
    run = make_spec(algorithm="grpo").model_dump(mode="json")
    run |= {"model": {"type": "pretrained", "path": str(path), "warm_start": supervised()}}
    spec = RunSpec.model_validate(run)
    lines = []
    policy = initial_policy(spec, tmp_path, lines.append)
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines if "loss" in line]
    prompts = encode_prompts(policy.tokenizer, ["a3b+4="], 16)
    shown = policy.sample(prompts, SamplingPlan(group_size=1, max_new_tokens=12, uniforms=None))
    assert losses[-1] < 2 and policy.text(shown.batch)[0][0] == "b", (
        "as all demonstrations of chains do"
    )
    again: list[str] = []
    other = RunSpec.model_validate(run | {"algorithm": "dapo"})
    assert prepare_model(other, tmp_path, again.append) == prepare_model(
        spec, tmp_path, again.append
    )
    assert again == []
    settings = run["model"] | {"warm_start": supervised(seed=1)}
    assert model_digest(RunSpec.model_validate(run | {"model": settings})) != model_digest(spec)


def test_the_loss_of_the_supervised_start_counts_the_tokens_of_responses_only(tmp_path):
    """Against transformers' own loss with the prompts' labels masked out; also in micro-batches."""
    model, tokenizer = load_pretrained(tiny_llama(tmp_path))
    policy = Policy(model, tokenizer)
    pairs = [("a3b+4=", "b+47#7"), ("a1b+2c-3=", "b+23c-30#0"), ("a9=", "#9")]
    ids = [
        (
            encode_prompts(tokenizer, [p], 32)[0],
            [*tokenizer(r)["input_ids"], tokenizer.eos_token_id],
        )
        for p, r in pairs
    ]
    sums = [
        model(torch.tensor([p + r]), labels=torch.tensor([[-100] * len(p) + r])).loss.item()
        * len(r)
        for p, r in ids
    ]
    wanted = sum(sums) / sum(len(r) for _, r in ids)
    for most in (10_000, 20, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warm_start, "_MICRO_TOKENS", most)
            optimizer = torch.optim.SGD(policy.model.parameters(), 0.0)
            got = warm_start._update(
                policy, optimizer, warm_start.demonstration_batch(policy, pairs), 0.0
            )
        assert got == pytest.approx(wanted, abs=1e-5)


def incomplete(path):
    config = tiny_llama(path.parent).rename(path) / "config.json"
    config.write_text(
        config.read_text().replace('"num_hidden_layers": 1', '"num_hidden_layers": 2')
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "is not a Hugging Face model: config.json is missing"),
        (lambda p: (p.mkdir(), (p / "config.json").write_text("{}")), "cannot be loaded"),
        (
            incomplete,
            r"cannot be loaded \(9 of its weights are missing, e.g. model.layers.1.input_layernorm",
        ),
        (lambda p: None, "is neither a local folder nor a model on the hub"),
    ],
)
def test_a_wrong_path_is_one_clear_line(tmp_path, make, message):
    path = tmp_path / "model"
    make(path)
    with pytest.raises(ModelError, match=message) as caught:
        load_pretrained(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
