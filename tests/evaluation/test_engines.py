"""The same tokens from every engine, the same samples in every rerun."""

import json
import os
import shutil
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file

from rpg.config.evaluation import EngineSpec
from rpg.evaluation.drawing import Drawing
from rpg.models.model_loading import ModelError
from rpg.models.truncated_sampling import WHOLE, Restriction, Sampling
from tests.evaluation.small_model import VLLM, WITHOUT_VLLM, requests_for


def start(kind, temperature, restriction=WHOLE, **settings):
    spec = TypeAdapter(EngineSpec).validate_python({"type": kind, **settings})
    return Drawing(spec, None, Sampling(temperature, 64, 32, restriction), 0, "cpu", False).start()


def complete(engine, requests):
    found = dict(pair for part in engine.complete(requests) for pair in part)
    assert sorted(found) == list(range(len(requests)))
    return [found[i] for i in range(len(requests))]


@pytest.mark.parametrize("kind", [VLLM])
def test_greedy_tokens_are_the_same_for_every_checkpoint_in_one_engine(kind, checkpoints, problems):
    """The second checkpoint goes into the engine that is running (vLLM: its weights are put into
    it)."""
    local = start("local", 0.0)
    other = start(kind, 0.0)
    seen = []
    for checkpoint in checkpoints:
        local.load(checkpoint)
        other.load(checkpoint)
        expected = complete(local, requests_for(problems, 1))
        assert complete(other, requests_for(problems, 1)) == expected
        seen.append(expected)
    assert seen[0] != seen[1], "the two checkpoints have to differ for this test to say anything"
    other.close()


@pytest.mark.parametrize(
    "restriction",
    [
        Restriction(top_k=3, top_p=0.9, min_tokens=4),
        Restriction(min_p=0.2, stop=("3", "#"), min_tokens=2),
    ],
)
@pytest.mark.parametrize("kind", [VLLM])
def test_what_can_be_drawn_and_what_ends_a_response_is_the_same(
    kind, restriction, checkpoints, problems
):
    temperature = 0.0 if kind == "vllm" else 1.0  # it draws from random numbers of its own
    local, other = (start(k, temperature, restriction) for k in ("local", kind))
    local.load(checkpoints[0])
    other.load(checkpoints[0])
    expected = complete(local, requests_for(problems, 2))
    assert complete(other, requests_for(problems, 2)) == expected
    assert min(len(one.ids) for one in expected) >= restriction.min_tokens
    if restriction.stop:
        ended = [one for one in expected if one.text.endswith(restriction.stop)]
        assert ended
        assert not any(one.truncated for one in ended)
    other.close()


def test_the_next_checkpoints_weights_go_into_the_model_that_is_there(
    checkpoints, problems, monkeypatch
):
    engine = start("local", 0.0)
    fresh = start("local", 0.0)
    module = sys.modules[type(engine).__module__]
    loads = []
    real = module.load_pretrained
    monkeypatch.setattr(module, "load_pretrained", lambda *a: loads.append(a) or real(*a))
    for checkpoint in (*checkpoints, checkpoints[0]):
        engine.load(checkpoint)
    assert len(loads) == 1
    fresh.load(checkpoints[0])
    assert complete(engine, requests_for(problems, 1)) == complete(fresh, requests_for(problems, 1))


@pytest.mark.parametrize("damage", ["cut", "names", "shape"])
def test_weights_that_do_not_fit_are_loaded_anew_or_refused(
    damage, checkpoints, problems, tmp_path
):
    """Half of them never get into the model that is there."""
    copy = tmp_path / "model"
    shutil.copytree(checkpoints[1], copy)
    file = copy / "model.safetensors"
    weights = load_file(file)
    file.unlink()
    last = sorted(weights)[-1]
    if damage == "names":
        weights["other"] = weights.pop(last)
    if damage == "shape":
        weights[last] = weights[last][:1].clone()
    save_file(weights, file, {"format": "pt"})
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    engine = start("local", 0.0)
    fresh = start("local", 0.0)
    engine.load(checkpoints[0])
    expected = complete(engine, requests_for(problems, 1))
    error = ""
    try:
        engine.load(copy)
    except ModelError as refused:
        error = str(refused)
    # transformers may make up what is missing, as it would for anyone
    assert (str(copy) in error and "\n" not in error) or (not error and damage != "cut")
    engine.load(checkpoints[0])
    assert complete(engine, requests_for(problems, 1)) == expected
    fresh.load(checkpoints[1])
    engine.load(checkpoints[1])
    assert complete(engine, requests_for(problems, 1)) == complete(fresh, requests_for(problems, 1))


@pytest.mark.parametrize("kind", ["local", VLLM])
def test_a_rerun_gives_the_same_samples_whatever_is_beside_them_or_was_left(
    kind, checkpoints, problems
):
    engine = start(kind, 1.0)
    engine.load(checkpoints[0])
    requests = requests_for(problems, 4)
    first = complete(engine, requests)
    left = engine.complete(requests[::-1])
    next(left)
    left.close()
    some = list(range(0, len(requests), 3))[::-1]
    assert complete(engine, [requests[i] for i in some]) == [first[i] for i in some]
    assert len({c.ids for c in first[:4]}) > 1 or len({c.ids for c in first}) > len(problems)
    engine.close()


@pytest.mark.parametrize("kind", [VLLM])
def test_mean_at_k_agrees_within_sampling_error(kind, checkpoints, problems):
    """vLLM has random numbers of its own: paired over problems, the difference is within 3 standard
    errors."""
    means = []
    for name in ("local", kind):
        engine = start(name, 1.0)
        engine.load(checkpoints[0])
        samples = complete(engine, requests_for(problems, 16))
        right = [
            c.text.rpartition("#")[2] == problems[i // 16].answer for i, c in enumerate(samples)
        ]
        means.append(np.reshape(right, (len(problems), 16)).mean(axis=1))
        engine.close()
    difference = means[0] - means[1]
    error = difference.std(ddof=1) / len(problems) ** 0.5
    assert 0.05 < means[0].mean() < 0.95
    assert abs(difference.mean()) < 3 * error


def test_a_models_own_sampling_settings_are_not_taken_over(checkpoints, problems, tmp_path):
    """Qwen's generation_config.json has a repetition penalty, which would change greedy tokens."""
    copy = tmp_path / "model"
    shutil.copytree(checkpoints[0], copy, symlinks=False)
    config = copy / "generation_config.json"
    settings = json.loads(config.read_text()) if config.exists() else {}
    config.unlink(missing_ok=True)
    own = {"repetition_penalty": 1.5, "top_k": 1, "do_sample": True, "top_p": 0.1}
    config.write_text(json.dumps({**settings, **own}))
    engine = start("local", 0.0)
    engine.load(checkpoints[0])
    expected = complete(engine, requests_for(problems, 1))
    engine.load(copy)
    assert complete(engine, requests_for(problems, 1)) == expected


@pytest.mark.skipif(not WITHOUT_VLLM, reason="vllm is installed")
def test_an_engine_that_is_not_installed_is_a_clear_error():
    with pytest.raises(ModelError, match=r"vllm cannot be imported.*\[vllm\].*local"):
        start("vllm", 1.0)


@pytest.mark.parametrize("cpu", [True, False])
def test_on_a_cpu_vllm_takes_no_share_of_the_memory_compiles_nothing_and_splits_no_prompt(
    monkeypatch, cpu
):
    """By itself it wants 85 % of the machine's memory free, compiles for minutes, and ends at a
    prompt that it split: more prompts than fit into a batch, as all of AIME are, could not be
    evaluated with a seed for each sample."""
    given = {}
    vllm = ModuleType("vllm")
    platforms = ModuleType("vllm.platforms")
    vllm.LLM, vllm.platforms = (lambda **settings: given.update(settings)), platforms
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: cpu)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    start("vllm", 1.0).begin("model")
    assert given["enforce_eager"] is cpu
    batches = given.get("enable_chunked_prefill"), given.get("max_num_batched_tokens")
    assert batches == ((False, 4096) if cpu else (None, None))
    assert os.environ["VLLM_CPU_KVCACHE_SPACE"] == "1"
