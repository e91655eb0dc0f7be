"""Training low-rank adapters: what is evaluated is merged, what is not adapted stays, and a kill
costs no bit."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.reference import Reference
from rpg.catalogue import algorithm
from rpg.config.model import Lora
from rpg.config.run_spec import RunSpec
from rpg.models.initial_policy import initial_policy
from rpg.models.lora import adapt, adapters
from rpg.models.model_loading import load_pretrained
from rpg.models.policy import Policy
from tests.tiny import make_spec, numbers, whole_and_resumed


@pytest.fixture(scope="module")
def start(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    policy = initial_policy(make_spec(), home)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def spec_of(start, dtype="float32", **algo):
    spec = make_spec(
        training={"steps": 3, "keep_checkpoints": "all", "optimizer": {"learning_rate": 3e-3}},
        algorithm={"name": "grpo", "beta": 0.1, **algo},
    ).model_dump()
    lora = {"rank": 4, "alpha": 8}
    spec["model"] = {"type": "pretrained", "path": str(start), "dtype": dtype, "lora": lora}
    return RunSpec.model_validate(spec)


HALF = {"dtype": "bfloat16"}
CASES = {"half": HALF, "masters": HALF, "every": {"reference": {"type": "every_k", "k": 3}}}


@pytest.mark.parametrize("name", CASES)
def test_killed_it_goes_on_to_the_same_bits_and_checkpoints_are_merged(
    home, start, name, monkeypatch
):
    masters = name == "masters"
    if masters:
        monkeypatch.setattr(RunSpec, "half_weights", lambda spec: True)
    spec = spec_of(start, **CASES[name])
    whole, _ = whole_and_resumed(home, f"lora-{name}", spec, 1, 2)
    divergences = [row["kl_policy_to_ref"] for row in numbers(whole)]
    assert 0 < divergences[0] < 0.05
    assert max(divergences) > divergences[0]

    # The folder is an ordinary model: the initial one plus the products of the trained matrices.
    last = whole.checkpoint(3)
    before, after = (load_file(place / "model.safetensors") for place in (start, last))
    trained = load_file(last / "training" / "adapters.safetensors")
    assert before.keys() == after.keys()
    assert (last / "config.json").exists()
    if masters:  # the weights that are not trained were rounded at the start
        before = {key: value.bfloat16().float() for key, value in before.items()}
    assert {value.dtype for value in after.values()} == {torch.float32}
    moved = {key for key, value in before.items() if not after[key].equal(value)}
    assert moved == {key for key in before if "_proj" in key}
    key = "model.layers.0.self_attn.q_proj"
    a, b = (trained[f"{key}.lora_{one}.default.weight"] for one in "AB")
    merged = before[f"{key}.weight"] + 2 * b @ a
    assert torch.allclose(after[f"{key}.weight"], merged, atol=1e-6)
    AutoModelForCausalLM.from_pretrained(last)


def test_only_adapters_have_moments_and_a_reference_shares_the_rest(start):
    model, tokenizer = load_pretrained(start)
    adapt(model, Lora(rank=4), 0)
    policy = Policy(model, tokenizer)
    spec = make_spec()
    names = Optimizer(model, spec.training.optimizer).names
    assert names
    assert set(names) == set(adapters(model))
    reference = Reference(algorithm("grpo"))
    reference.begin_rollout(0)
    reference.begin_updates(policy)
    own = dict(reference.policy.model.named_parameters())
    for name, parameter in policy.model.named_parameters():
        assert (own[name] is parameter) == (name not in names), name
