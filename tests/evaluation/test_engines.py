"""The same tokens from every engine, the same samples in every rerun."""

import os

import numpy as np
import pytest
from pydantic import TypeAdapter

from rpg.config.evaluation import EngineSpec
from rpg.evaluation.engines import EngineError, Request, Sampling, start_engine
from tests.evaluation.tiny import VLLM, WITHOUT_VLLM


def start(kind, temperature, **settings):
    if kind == "vllm":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        settings["enforce_eager"] = True
    spec = TypeAdapter(EngineSpec).validate_python({"type": kind, **settings})
    return start_engine(spec, Sampling(temperature, max_prompt_tokens=64, max_response_tokens=32))


def requests_for(problems, count):
    return [Request(p.prompt, (0, "evaluation", p.id, k)) for p in problems for k in range(count)]


def complete(engine, requests):
    found = dict(pair for part in engine.complete(requests) for pair in part)
    assert sorted(found) == list(range(len(requests)))
    return [found[i] for i in range(len(requests))]


@pytest.mark.parametrize("kind", ["huggingface", VLLM])
def test_greedy_tokens_are_the_same_for_every_checkpoint_in_one_engine(kind, checkpoints, problems):
    """The second checkpoint goes into the engine that is running (vLLM: its weights are put into it)."""
    local, other = start("local", 0.0), start(kind, 0.0)
    seen = []
    for checkpoint in checkpoints:
        local.load(checkpoint)
        other.load(checkpoint)
        expected = complete(local, requests_for(problems, 1))
        assert complete(other, requests_for(problems, 1)) == expected
        seen.append(expected)
    assert seen[0] != seen[1], "the two checkpoints have to differ for this test to say anything"
    other.close()


@pytest.mark.parametrize("kind", ["local", "huggingface", VLLM])
def test_a_rerun_gives_the_same_samples_whatever_is_beside_them(kind, checkpoints, problems):
    engine = start(kind, 1.0)
    engine.load(checkpoints[0])
    requests = requests_for(problems, 4)
    first = complete(engine, requests)
    some = list(range(0, len(requests), 3))[::-1]
    assert complete(engine, [requests[i] for i in some]) == [first[i] for i in some]
    assert len({c.ids for c in first[:4]}) > 1 or len({c.ids for c in first}) > len(problems)
    engine.close()


def test_hugging_face_and_the_local_decoder_draw_the_same_samples(checkpoints, problems):
    texts = []
    for kind, rows in (("local", 512), ("huggingface", 7)):
        engine = start(kind, 0.8, rows=rows)
        engine.load(checkpoints[0])
        texts.append(complete(engine, requests_for(problems, 3)))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", [VLLM])
def test_mean_at_k_agrees_within_sampling_error(kind, checkpoints, problems):
    """vLLM has random numbers of its own: paired over problems, the difference is within 3 standard errors."""
    means = []
    for name in ("local", kind):
        engine = start(name, 1.0)
        engine.load(checkpoints[0])
        samples = complete(engine, requests_for(problems, 16))
        right = [c.text.rpartition("#")[2] == problems[i // 16].answer for i, c in enumerate(samples)]
        means.append(np.reshape(right, (len(problems), 16)).mean(axis=1))
        engine.close()
    difference = means[0] - means[1]
    error = difference.std(ddof=1) / len(problems) ** 0.5
    assert 0.05 < means[0].mean() < 0.95
    assert abs(difference.mean()) < 3 * error


def test_a_models_own_sampling_settings_are_not_taken_over(checkpoints, problems, tmp_path):
    """Qwen's generation_config.json has a repetition penalty, which would change greedy tokens."""
    import json
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(checkpoints[0], copy, symlinks=False)
    config = copy / "generation_config.json"
    settings = json.loads(config.read_text()) if config.exists() else {}
    config.unlink(missing_ok=True)
    config.write_text(
        json.dumps({**settings, "repetition_penalty": 1.5, "top_k": 1, "do_sample": True, "top_p": 0.1})
    )
    engine = start("huggingface", 0.0)
    engine.load(checkpoints[0])
    expected = complete(engine, requests_for(problems, 1))
    engine.load(copy)
    assert complete(engine, requests_for(problems, 1)) == expected


@pytest.mark.skipif(not WITHOUT_VLLM, reason="vllm is installed")
def test_an_engine_that_is_not_installed_is_a_clear_error():
    with pytest.raises(EngineError, match=r"vllm cannot be imported.*rpg-lab\[vllm\].*huggingface"):
        start("vllm", 1.0)
