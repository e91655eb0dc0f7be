"""Adapters beside a base of 4 bits (bitsandbytes, which is optional): one policy trains, samples,
is exported and evaluated; it goes on to the bit; and its bytes are those of the forecast."""

import copy
import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from rpg.backends.local import training_loop
from rpg.backends.local.training_loop import train
from rpg.config.run_spec import RunSpec
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.engines.vllm import VllmEngine
from rpg.models.beside_base import load_model
from rpg.models.block_decoding import BlockEngine
from rpg.models.decoding import SamplingPlan, generate
from rpg.models.four_bit import four_bit_layers, halve_weights, pack_base, parameter_count
from rpg.models.initial_policy import initial_policy, starting_policy
from rpg.models.lean_decoding import LeanEngine
from rpg.models.lora import adapters, base_weights, merged
from rpg.models.model_cache import keep
from rpg.models.model_loading import ModelError, load_pretrained
from rpg.models.truncated_sampling import Sampling
from rpg.planning.space import disk, gradient_bytes, held_bytes, run_shape
from rpg.report.diagnostics import of_training
from rpg.store.checkpoints import damaged, model_digest
from rpg.store.gc import size
from tests.local.test_roundings import two_thousand_tokens
from tests.models.expected import expected_log_probs
from tests.models.test_lean import model as narrow_model
from tests.tiny import make_run, make_spec, numbers, whole_and_resumed

Linear4bit = pytest.importorskip("bitsandbytes").nn.Linear4bit


def spec_of(start, dtype="float32", **training):
    spec = make_spec(
        training={"steps": 3, "keep_checkpoints": "all", "optimizer": {"learning_rate": 3e-3}}
        | training,
        algorithm={"name": "grpo", "beta": 0.1},
    ).model_dump()
    lora = {"rank": 4, "alpha": 8, "base": "nf4"}
    spec["model"] = {"type": "pretrained", "path": str(start), "dtype": dtype, "lora": lora}
    return RunSpec.model_validate(spec)


@pytest.fixture(scope="module")
def start(home, tmp_path_factory):
    """A model of width 128, so that its rows are whole blocks, in weights that bfloat16 has."""
    folder = tmp_path_factory.mktemp("start")
    model = {"hidden_size": 128, "intermediate_size": 192, "warm_start": {"behaviour_steps": 30}}
    policy = initial_policy(make_spec(model=model), home)
    halve_weights(policy.model)
    policy.model.float().save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["float32", "autocast", "half weights"])
def trained(request, home, start):
    """(trainer at the end, its run's folder)."""
    name = request.param.replace(" ", "-")
    dtype = "float32" if request.param == "float32" else "bfloat16"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "half weights":
            patch.setattr(RunSpec, "half_weights", lambda spec: True)
        folder = make_run(home, f"four-bit-{name}", spec_of(start, dtype))
        kept = []
        begin = training_loop._begin
        patch.setattr(training_loop, "_begin", lambda *a: kept.append(begin(*a)) or kept[-1])
        train(folder, home, lambda line: None)
    return kept[0][0], folder


def in_four_bits(folder):
    """The base as transformers loads it in NF4. Where the processor multiplies bfloat16,
    bitsandbytes' layers would round their scales to it as soon as nothing is trained: other
    weights."""
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=how
    )
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return model


def test_a_checkpoint_is_the_adapters_and_the_name_of_their_base(trained, start):
    _, folder = trained
    checkpoint = folder.checkpoint(3)
    weights = [
        path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*.safetensors")
    ]
    assert sorted(weights) == [
        "adapters/adapter_model.safetensors",
        "training/optimizer.safetensors",
    ]
    base = json.loads((checkpoint / "adapters" / "base.json").read_text())
    assert base["model"] == str(start)
    assert base["quantized"] == "nf4"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= names
    assert damaged(checkpoint) is None
    assert model_digest(checkpoint) != model_digest(folder.checkpoint(2))


def test_exports_loaded_by_us_and_by_peft_have_the_log_probs_of_the_trained(trained, start):
    trainer, folder = trained
    checkpoint = folder.checkpoint(3)
    rows = two_thousand_tokens()
    plain, _ = load_pretrained(start)
    before = expected_log_probs(plain, rows, 1.0).detach()
    plain.load_state_dict(merged(trainer.policy.model, trainer.optimizer.weights()), strict=False)
    expected = expected_log_probs(plain, rows, 1.0).detach()
    assert (expected - before).abs().mean() > 0.01
    exports = {
        "merged": load_model(checkpoint)[0],
        "beside nf4": PeftModel.from_pretrained(in_four_bits(start), checkpoint / "adapters"),
    }
    for name, model in exports.items():
        found = expected_log_probs(model, rows, 1.0).detach()
        assert (found - expected).abs().max() < 1e-4, name


def same_policy(model, other):
    """Whether two models have the same packed base and the same adapters."""
    base = dict(four_bit_layers(model))
    other_base = dict(four_bit_layers(other))
    assert base.keys() == other_base.keys(), "the adapters themselves stay as they are"
    for name, layer in base.items():
        same_codes = layer.codes.equal(other_base[name].codes)
        same_scales = layer.scales.equal(other_base[name].scales)
        if not (same_codes and same_scales):
            return False
    own = adapters(model)
    of_other = adapters(other)
    assert own.keys() == of_other.keys()
    return all(value.equal(of_other[name]) for name, value in own.items())


def test_evaluation_has_base_and_adapters_of_the_training(trained):
    """Also where the adapters of another checkpoint are there already."""
    trainer, folder = trained
    engine = LocalEngine(Sampling(1.0, 32, 32), bfloat16=trainer.policy.bfloat16)
    engine.load(folder.checkpoint(2))
    first = engine.policy.model
    expected = copy.deepcopy(trainer.policy.model)
    masters = trainer.optimizer.weights()
    for name, parameter in expected.named_parameters():
        if name in masters:
            parameter.data = masters[name]
    assert not same_policy(expected, first)
    engine.load(folder.checkpoint(3))
    assert engine.policy.model is first
    assert same_policy(expected, first)


def test_another_base_is_refused_by_name_and_so_is_none(trained, start, tmp_path):
    _, folder = trained
    checkpoint = tmp_path / "step-000003"
    shutil.copytree(folder.checkpoint(3), checkpoint)
    record = checkpoint / "adapters" / "base.json"
    other = tmp_path / "other"
    shutil.copytree(start, other)
    weights = load_file(other / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][0, 0] *= 100
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    record.write_text(json.dumps(json.loads(record.read_text()) | {"model": str(other)}))
    with pytest.raises(ModelError, match=f"base.json: {other} has other weights than when"):
        load_model(checkpoint)
    shutil.rmtree(other)
    with pytest.raises(ModelError, match=f"base.json: model: '{other}' is neither a local folder"):
        load_model(checkpoint)


def test_it_is_merged_on_request_and_a_run_starts_from_it(trained, home, start):
    """As an ordinary folder by `rpg model`, and in memory where it is another run's model."""
    trainer, folder = trained
    checkpoint = folder.checkpoint(3)

    kept = keep(str(checkpoint), home, name=f"merged-{folder.name}", say=lambda line: None)
    model = AutoModelForCausalLM.from_pretrained(kept, dtype=torch.float32)
    weights = model.state_dict()
    expected = merged(trainer.policy.model, trainer.optimizer.weights())
    for name, value in expected.items():
        assert weights[name].equal(value.float()), name

    settings = spec_of(start).model_dump()
    settings["model"]["path"] = str(checkpoint)
    settings["model"]["lora"] = None
    begun = initial_policy(RunSpec.model_validate(settings), home, lambda line: None)
    begun_weights = begun.model.state_dict()
    for name, value in weights.items():
        assert begun_weights[name].equal(value), name


class StandInForVllm(VllmEngine):
    """Keeps what vLLM would be given."""

    def __init__(self, dtype):
        self.dtype = self.own_dtype = dtype
        self.llm = self.adapters = self._beside = None
        self.begun = []
        self.used = []

    def begin(self, path, revision=None, **settings):
        self.llm = True
        self.begun.append((load_file(f"{path}/model.safetensors"), settings))

    def use_adapters(self, folder):
        self.used.append(folder)


UP = "model.layers.0.mlp.up_proj.weight"


def test_vllm_gets_the_base_once_and_the_adapters_of_each_checkpoint(trained):
    trainer, folder = trained
    engine = StandInForVllm("bfloat16")
    engine.load(folder.checkpoint(2))
    engine.load(folder.checkpoint(3))
    [(weights, settings)] = engine.begun
    assert weights[UP].equal(base_weights(trainer.policy.model)[UP].float())
    assert settings == {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}
    assert engine.used == [folder.checkpoint(step) / "adapters" for step in (2, 3)]


def test_vllm_gets_merged_weights_for_float32(trained):
    """It has kernels for adapters in half precision only."""
    trainer, folder = trained
    engine = StandInForVllm("float32")
    engine.load(folder.checkpoint(3))
    [(weights, settings)] = engine.begun
    assert weights[UP].equal(merged(trainer.policy.model, trainer.optimizer.weights())[UP])
    assert settings == {}
    assert engine.used == []


def test_its_checkpoints_take_the_disk_that_the_forecast_counts(trained, start):
    trainer, folder = trained
    foretold = disk(trainer.spec, problems=0)
    lies = size(folder.checkpoint(3))
    assert lies == pytest.approx(foretold.newest, rel=0.15)


def test_the_gap_to_the_base_in_full_precision_is_measured_and_named(trained):
    trainer, folder = trained
    rows = numbers(folder)
    assert all(0 < row["kl_trained_to_wide_base"] < 1 for row in rows)
    assert all("kl_trained_to_exported" not in row for row in rows), "the same bits"
    assert all(("kl_trained_to_evaluated" in row) == trainer.policy.bfloat16 for row in rows)
    if trainer.policy.bfloat16:
        often = [{**row, "step": step} for step, row in enumerate(rows * 3, 1)]
        rules = {finding.rule for finding in of_training(often)}
        assert "apart: kl_trained_to_wide_base" in rules


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_killed_it_goes_on_to_the_same_bits(home, start, dtype):
    whole_and_resumed(home, f"four-bit-killed-{dtype}", spec_of(start, dtype), 1, 2)


def test_the_decoder_of_a_gpu_draws_what_the_other_one_draws(home, start):
    """On a CPU, in bfloat16: both take the same weights out of 4 bits."""
    policy = starting_policy(spec_of(start, "bfloat16"), home, lambda line: None)
    uniforms = torch.rand(16, 12, generator=torch.Generator().manual_seed(0))
    plan = SamplingPlan(group_size=8, max_new_tokens=12, uniforms=uniforms)
    prompts = [[1, 5, 6], [1, 7]]
    with policy.arithmetic(), torch.no_grad():
        of_gpu = generate(BlockEngine(policy.model), prompts, plan, stop=(0,))
        of_cpu = generate(LeanEngine(policy.model, 16), prompts, plan, stop=(0,))

    # Later tokens follow from a first one that rounding may have changed.
    first_token = of_gpu.batch.tokens[:, 0]
    assert first_token.equal(of_cpu.batch.tokens[:, 0])
    gap = of_gpu.log_prob[:, 0] - of_cpu.log_prob[:, 0]
    assert gap.abs().max() < 0.05


def test_gradients_are_those_of_the_base_taken_out(start):
    policy = starting_policy(spec_of(start), start, lambda line: None)
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (name, layer), *_ = four_bit_layers(policy.model)
    assert name.endswith("base_layer")
    weight = torch.randn(5, layer.out_features, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad((layer(x) * weight).sum(), x)
    assert torch.allclose(found, weight @ layer.weight, atol=1e-5)


def test_its_weights_take_the_bytes_that_the_forecast_counts(home, start):
    spec = spec_of(start)
    policy = starting_policy(spec, home, lambda line: None)
    model = policy.model
    counted = sum(weight.nbytes for weight in model.parameters())
    counted += sum(layer.codes.nbytes + layer.scales.nbytes for _, layer in four_bit_layers(model))
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    counted += 4 * 4 * trained  # gradient, both moments, and the adapters of the reference
    shape = run_shape(spec)
    foretold = held_bytes(spec, shape) + gradient_bytes(spec, shape)
    assert counted == pytest.approx(foretold, rel=0.02)
    wide = sum(value.numel() for value in base_weights(model).values())
    assert parameter_count(model) - trained == pytest.approx(wide, rel=0.1)


def test_layers_whose_rows_are_no_whole_blocks_stay_and_a_model_of_these_is_refused(home):
    """Blocks have 64 weights: of 32 and 64 inputs, `down_proj` has 64; of 32 and 48 none has."""
    with pytest.raises(ModelError, match="a multiple of 64 inputs, and Qwen3ForCausalLM has none"):
        pack_base(narrow_model().requires_grad_(False))
    model = initial_policy(make_spec(), home).model.requires_grad_(False)
    pack_base(model)
    assert {name.rpartition(".")[2] for name, _ in four_bit_layers(model)} == {"down_proj"}
