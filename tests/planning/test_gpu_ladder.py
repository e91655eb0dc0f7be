"""What fits which GPU: the shipped ladder, `rpg show --gpu`, and sizes of models by hub id."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from rpg.config.errors import ConfigError
from rpg.config.load import resolve
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_spec import load_file
from rpg.planning.gpu_estimate import hours, machine_named, nearest_change
from rpg.planning.model_shapes import KNOWN, TABLE, shape_and_source
from rpg.planning.space import evaluators_least, evaluators_share, held_bytes, memory

LADDER = sorted((Path(__file__).resolve().parents[2] / "configs" / "gpu").glob("*.yaml"))
PUBLISHED = {  # billions of parameters, as the models' cards say
    "Qwen/Qwen3-0.6B": 0.6,
    "Qwen/Qwen3-1.7B": 1.7,
    "Qwen/Qwen3-4B": 4.0,
    "Qwen/Qwen3-8B": 8.2,
    "Qwen/Qwen3-14B": 14.8,
    "Qwen/Qwen3-32B": 32.8,
    "Qwen/Qwen2.5-0.5B": 0.49,
    "Qwen/Qwen2.5-1.5B": 1.54,
    "Qwen/Qwen2.5-3B": 3.09,
    "Qwen/Qwen2.5-7B": 7.61,
    "Qwen/Qwen2.5-14B": 14.7,
    "Qwen/Qwen2.5-32B": 32.5,
    "meta-llama/Llama-3.2-1B": 1.23,
    "meta-llama/Llama-3.2-3B": 3.21,
    "meta-llama/Meta-Llama-3.1-8B": 8.03,
    "HuggingFaceTB/SmolLM2-135M": 0.135,
    "HuggingFaceTB/SmolLM2-360M": 0.362,
    "HuggingFaceTB/SmolLM2-1.7B": 1.71,
    "mistralai/Mistral-7B-v0.3": 7.25,
}


def config_of(shape, kind):
    return AutoConfig.for_model(
        kind,
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        tie_word_embeddings=shape.tied,
    )


@pytest.mark.parametrize("file", LADDER, ids=lambda path: path.stem)
def test_each_rung_fits_its_gpu(file):
    (run,) = load_file(file, {}, lambda spec: "").runs
    room = float(file.stem.partition("gb")[0]) * 1e9
    need = memory(run.spec, room)
    assert need.most < room
    assert need.rows_at_once >= 8
    assert f"show gpu/{file.stem} --gpu " in file.read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("name", "billions", "adapters"),
    [
        ("24gb-full", 1.7, False),
        ("24gb-4bit", 8.2, True),
        ("80gb-full", 4.0, False),
        ("80gb-4bit", 32.8, True),
    ],
)
def test_24_and_80_gb_take_the_models_that_other_trainers_put_there(name, billions, adapters):
    (run,) = load_file(LADDER[0].with_name(f"{name}.yaml"), {}, lambda spec: "").runs
    assert KNOWN[run.spec.model.path].parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert (run.spec.model.lora is not None) == adapters


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B"])
def test_the_bytes_of_a_packed_base_are_those_of_its_layers_on_the_meta_device(name):
    """Half a byte a weight and four bytes per 64; what is no layer of a block has two bytes."""
    shape = KNOWN[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(shape, "qwen3"))
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    packed = sum(layer.weight.numel() for layer in layers if layer is not model.lm_head)
    wide = sum(weight.numel() for weight in model.parameters()) - packed
    counted = packed * (0.5 + 4 / 64) + 2 * wide
    lora = {"rank": 32, "base": "nf4"}
    spec = resolve(
        {
            "model": {"type": "pretrained", "path": name, "dtype": "bfloat16", "lora": lora},
            "algorithm": "rpg-reinforce-urkl",  # without a reference of its own
            "backend": {"device": "cuda"},
        },
        "x",
    )
    of_adapters = shape.adapter_parameters(spec.model.lora) * (4 + 8 + 2)
    assert held_bytes(spec, shape) - of_adapters == pytest.approx(counted, rel=1e-3)


def test_show_says_what_fits_and_the_nearest_change_that_would(command_line, tmp_path):
    def show(*words):
        code, out, errors = command_line("show", *words, "--home", tmp_path)
        return code, f"{' '.join(out.split())} {errors}"

    small, large = (LADDER[0].with_name(name) for name in ("16gb.yaml", "24gb.yaml"))
    code, text = show(large, "--gpu", "rtx-4090")
    assert code == 0
    assert "fits into rtx-4090; about" in text
    assert "does not fit" not in text
    assert f"sizes of Qwen/Qwen3-1.7B from {TABLE}" in text
    options = ("--gpu", "12GB", "--set", "backend.gradient_checkpointing=false")
    code, text = show(small, *options)
    assert code == 0
    assert "! does not fit into a GPU with 12 GB; fits with --set " in text
    change = re.findall(r"--set \S+", text.split("fits with ")[1])
    code, text = show(small, *options[:2], *" ".join(change).split())
    assert code == 0
    assert "does not fit" not in text
    assert "fits into a GPU with 12 GB" in text
    code, text = show(small, "--gpu", "rtx-9999")
    assert code == 2
    assert "rtx-9999" in text
    assert "rtx-4090" in text
    assert "Traceback" not in text


def test_evaluators_take_turns_with_a_training_or_have_a_share_that_is_counted(
    command_line, tmp_path
):
    """An evaluator holds the 1.72 billion weights of Qwen3-1.7B in float32."""
    file = LADDER[0].with_name("24gb.yaml")

    def spec_with(place):
        (run,) = load_file(file, {"evaluation.place": place}, lambda spec: "").runs
        return run.spec

    alone = spec_with({"type": "here"})
    assert evaluators_share(alone, 24e9) == evaluators_least(alone) == 0
    half = spec_with({"type": "here", "gpu_memory": 0.5})
    assert evaluators_share(half, 24e9) == 12e9
    assert 4 * 1.72e9 < evaluators_least(half) < 12e9
    assert memory(half, 24e9).rows_at_once < memory(alone, 24e9).rows_at_once
    assert evaluators_share(spec_with({"type": "ray"}), 24e9) == 0

    def show(*changes):
        _, out, _ = command_line("show", file, "--gpu", "rtx-4090", *changes, "--home", tmp_path)
        return " ".join(out.split())

    assert "evaluators take turns with trainings on the GPU" in show()
    counted = show("--set", "evaluation.place.gpu_memory=0.5")
    assert "evaluators on the same GPU have 12.9 GB of it" in counted
    assert "does not fit" not in counted
    little = show("--set", "evaluation.place.gpu_memory=0.2")
    assert "! evaluation.place.gpu_memory: evaluators need at least 9." in little


def test_hours_and_memory_are_those_of_critic_teacher_and_vllm():
    def needed(algorithm=None, engine="local"):
        model = {"type": "pretrained", "path": "Qwen/Qwen3-0.6B", "dtype": "bfloat16"}
        run = {"model": model, "backend": {"device": "cuda"}, "rollout": {"engine": engine}}
        return resolve({**run, "algorithm": {"name": "grpo", "beta": 0.1} | (algorithm or {})}, "x")

    teacher = {"reference": {"type": "model", "path": "Qwen/Qwen3-4B"}}
    changes = {}, {"beta": 0}, {"advantage": {"type": "gae"}}, teacher
    fixed, bare, critic, taught = (
        hours(needed(change), machine_named("h100")) for change in changes
    )
    assert (critic - fixed) / (fixed - bare) == pytest.approx(1 + 3), (
        "scored and updated, as the policy is"
    )
    assert 5 < (taught - bare) / (fixed - bare) < 8
    assert "gpu_memory_utilization=0.4" in nearest_change(
        needed(engine="vllm"), machine_named("24GB")
    )


def test_a_larger_share_for_vllm_draws_more_at_a_time_and_takes_fewer_hours():
    """Qwen3-0.6B in bfloat16 takes 1.2 GB; a token of its cache 114,688 bytes. A response of 2,048
    tokens has half of them, and its prompt half of 256."""
    at_once = []
    taken = []
    for share in (0.15, 0.4):
        engine = {"type": "vllm", "gpu_memory_utilization": share}
        (run,) = load_file(LADDER[0].with_name("80gb.yaml"), {}, lambda spec: "").runs
        data = run.spec.model_dump()
        data["model"] |= {"path": "Qwen/Qwen3-0.6B", "lora": None}
        data["rollout"] |= {"engine": engine, "max_response_tokens": 2048}
        spec = RunSpec.model_validate(data)
        card = machine_named("rtx-4090")
        at_once.append(memory(spec, card.memory).rows_at_once)
        taken.append(hours(spec, card))
    weights = 2 * KNOWN["Qwen/Qwen3-0.6B"].parameters
    room = 0.15 * card.memory - weights
    assert at_once[0] == int(room // ((1024 + 128) * 114_688)) < at_once[1]
    assert taken[0] > 1.05 * taken[1]


def test_where_nothing_else_helps_a_smaller_model_is_named():
    (run,) = load_file(LADDER[0].with_name("80gb.yaml"), {}, lambda spec: "").runs
    assert "--set model.path=Qwen/" in nearest_change(run.spec, machine_named("8GB"))
    assert nearest_change(run.spec, machine_named("1GB")) is None


@pytest.mark.parametrize(
    "setting", [{"rollout": {"sampler": {"dtype": "int8"}}}, {"algorithm": {"advantage": "gae"}}]
)
def test_a_change_that_is_refused_is_not_named(setting):
    """A base of 4 bits beside another sampler, and adapters beside a critic."""
    (run,) = load_file(LADDER[0].with_name("80gb-full.yaml"), {}, lambda spec: "").runs
    data = run.spec.model_dump()
    for section, fields in setting.items():
        data[section] |= fields
    spec = RunSpec.model_validate(data)
    for card in ("24GB", "16GB", "8GB"):
        assert "nf4" not in (nearest_change(spec, machine_named(card)) or "")


def test_a_size_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"accepted are a size such as 24GB, and .*h100"):
        machine_named("0GB")


def test_sizes_in_the_table_are_those_of_the_models():
    assert len(KNOWN) >= 30
    assert PUBLISHED.keys() <= KNOWN.keys()
    for name, billions in PUBLISHED.items():
        assert KNOWN[name].parameters / 1e9 == pytest.approx(billions, rel=0.02), name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("qwen3", "Qwen/Qwen3-0.6B"),
        ("qwen2", "Qwen/Qwen2.5-7B-Instruct"),
        ("llama", "meta-llama/Llama-3.2-1B"),
    ],
)
def test_the_count_is_that_of_transformers_in_the_table_and_in_a_folder(tmp_path, kind, name):
    """A model of these sizes on the meta device has exactly as many parameters."""
    shape = KNOWN[name]
    config = config_of(shape, kind)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    assert sum(p.numel() for p in model.parameters()) == shape.parameters
    config.save_pretrained(tmp_path)
    assert shape_and_source(str(tmp_path))[0] == shape
    (tmp_path / "config.json").write_text("{}")
    assert shape_and_source(str(tmp_path))[0] is None


def test_sizes_are_read_from_a_folder_or_the_hub_s_cache_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "intermediate_size": 96,
    }
    for folder in (tmp_path / "model", tmp_path / "hub/models--some--model/snapshots/0123"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        name = str(folder) if folder.name == "model" else "some/model"
        shape, source = shape_and_source(name)
        assert (shape.layers, shape.qk_norm) == (2, True)
        assert source == str(folder / "config.json")
    assert shape_and_source("nobody/knows") == (None, "")
