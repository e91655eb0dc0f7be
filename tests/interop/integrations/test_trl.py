"""Our losses inside TRL's trainer give the embedded trainer's gradient. TRL itself where it is
installed, else a stand-in for the parts of its trainer that ours builds on (`pip install
'.[peers]'` brings TRL)."""

import functools
import importlib
import sys
import types
from collections import defaultdict

import pytest
import torch

import rpg
from rpg.catalogue import AlgorithmError
from tests.docs.pages import ROOT, blocks
from tests.local.test_trainer import make

PROCESS = functools.partial(types.SimpleNamespace, pad_across_processes=lambda x, dim: x)


class StandIn:
    """As much of TRL's GRPOTrainer as ours calls."""

    def __init__(self, model, args=None, **kwargs):
        self.model, self.args = model, args

    def _calculate_rewards(self, rewards):
        return rewards

    def _generate_and_score_completions(self, inputs):
        raise NotImplementedError

    def _get_per_token_logps_and_entropies(
        self,
        model,
        input_ids,
        attention_mask,
        logits_to_keep,
        compute_entropy=False,
        compute_aux_loss=False,
    ):
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        logits = model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=positions
        ).logits
        log_prob = logits[:, -logits_to_keep - 1 : -1].float().log_softmax(-1)
        return log_prob.gather(-1, input_ids[:, -logits_to_keep:, None])[..., 0], None, None


@pytest.fixture
def integration(monkeypatch):
    if importlib.util.find_spec("trl") is None:
        names = dict.fromkeys(("GRPOTrainer", "GRPOConfig"), StandIn)
        monkeypatch.setitem(sys.modules, "trl", types.SimpleNamespace(**names))
    monkeypatch.delitem(sys.modules, "rpg.interop.integrations.trl", raising=False)
    return importlib.import_module("rpg.interop.integrations.trl")


def trainer_for(integration, policy, algorithm, size, rows, parts, folder):
    """Ours: TRL's own constructor makes it where TRL is; the stand-in has none."""
    if integration.GRPOTrainer is not StandIn:
        from datasets import Dataset
        from trl import GRPOConfig

        config = GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=rows // parts,
            gradient_accumulation_steps=parts,
            num_generations=size,
            max_completion_length=12,
            use_cpu=True,
            bf16=False,
            report_to=[],
        )
        made = integration.RPGTrainer(
            policy.model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)] * 2,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["a"] * rows}),
            processing_class=policy.tokenizer,
            algorithm=algorithm,
        )
    else:
        made = object.__new__(integration.RPGTrainer)
        made.algorithm, made.model, made._earned = algorithm, policy.model, None
        made.accelerator = PROCESS(num_processes=1, process_index=0, gather=lambda x: x)
        made.args = types.SimpleNamespace(steps_per_generation=parts)
        made.state = types.SimpleNamespace(global_step=0)
        made.num_generations = made.num_generations_eval = size
        made.max_completion_length = 12
        made._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    made.reward_weights = torch.tensor([1.0, 0.5])
    made.current_gradient_accumulation_steps = parts
    return made


def as_trl(batch, pad):
    """A batch of ours as TRL's trainer holds it: prompts padded on the left, completions on the
    right."""
    prompts = [batch.prompts[i] for i in batch.prompt_of.tolist()]
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    completions = {"completion_ids": batch.tokens, "completion_mask": batch.mask.int()}
    return {"prompt_ids": ids, "prompt_mask": mask, **completions}


def scored(integration, monkeypatch, trainer, batch, rewards):
    """The batch with our advantages, where TRL's trainer gave the responses of all processes these
    rewards."""
    monkeypatch.setattr(integration.GRPOTrainer, "_calculate_rewards", lambda self, found: found)
    monkeypatch.setattr(
        integration.GRPOTrainer,
        "_generate_and_score_completions",
        lambda self, inputs: (
            self._calculate_rewards(inputs) is not None and {**batch, "advantages": None}
        ),
    )
    return trainer._generate_and_score_completions(rewards)


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    "name", ["rpg-reinforce-urkl", "rpg-ufkl", "dapo", "dr-grpo", "reinforce-pp-baseline", "gspo"]
)
def test_the_gradient_is_the_embedded_trainers(
    home, integration, monkeypatch, tmp_path, name, parts
):
    algorithm = rpg.algorithm(name, dynamic_sampling=False, overlong=None)
    if algorithm.kl.type == "reward" or algorithm.needs_reference:
        algorithm = rpg.algorithm(name, beta=0.0)
    settings = {"name": name, **algorithm.settings()}
    ours = make(home, lean=False, algorithm=settings, training={"mini_batch_prompts": 8})
    rollout = ours.roller.roll(ours.policy, 1)
    monkeypatch.setattr(ours.roller, "roll", lambda policy, step: rollout)
    expected = []
    step = lambda *_: expected.append(gradient(ours.policy.model).clone()) or (1.0, 0.0)  # noqa: E731
    monkeypatch.setattr(ours.optimizer, "step", step)
    ours.step(1)

    model, batch = ours.policy.model, rollout.kept.samples.batch
    model.zero_grad()
    model.training = True  # what TRL's trainer asks its model; dropout there is none
    trainer = trainer_for(
        integration, ours.policy, algorithm, 8, len(rollout.kept), parts, tmp_path
    )
    whole = as_trl(batch, ours.policy.tokenizer.pad_token_id)
    rewards = torch.stack(
        [rollout.kept.rewards, torch.full_like(rollout.kept.rewards, torch.nan)], 1
    )
    output = scored(integration, monkeypatch, trainer, whole, rewards)
    output["num_items_in_batch"] = whole["completion_mask"].sum()
    for rows in torch.arange(len(rewards)).chunk(parts):
        inputs = {k: v[rows] if v.dim() else v for k, v in output.items()}
        trainer._compute_loss(model, inputs).backward()
    model.training = False
    assert (gradient(model) - expected[0]).abs().max() < 2e-6 * max(
        1.0, float(expected[0].abs().max())
    )
    assert len(trainer._metrics["train"]["rpg/loss"]) == parts
    assert len(trainer._metrics["train"]["rpg/ratio_max"]) == 1  # TRL logs the mean of this list


def test_trl_loads_the_reference_that_is_needed_and_the_arguments_stay_as_they_were(
    integration, monkeypatch
):
    keep = lambda self, _model, _rewards, args: setattr(self, "args", args)  # noqa: E731
    monkeypatch.setattr(integration.GRPOTrainer, "__init__", keep)
    monkeypatch.setattr(integration, "GRPOConfig", types.SimpleNamespace)
    given, algorithm = types.SimpleNamespace(beta=0.5), rpg.algorithm("grpo")
    for args in (given, None):
        assert (
            integration.RPGTrainer("model", [], args, algorithm=algorithm).args.beta
            == algorithm.beta
        )
    assert given.beta == 0.5


def test_a_group_on_two_processes_has_one_baseline_and_a_response_that_nobody_scored_no_part_in_it(
    integration, monkeypatch
):
    trainer = object.__new__(integration.RPGTrainer)
    trainer.algorithm, trainer.model = (
        rpg.algorithm("dr-grpo"),
        types.SimpleNamespace(training=True),
    )
    trainer.num_generations, trainer.reward_weights = 4, torch.ones(2)
    trainer.accelerator = PROCESS(process_index=1, gather=lambda x: torch.cat([x, x]))
    batch = {"completion_mask": torch.tensor([[1, 1], [1, 0]])}
    rewards = torch.tensor([[1.0, torch.nan], [0.0, torch.nan], [torch.nan, torch.nan], [2.0, 3.0]])
    output = scored(integration, monkeypatch, trainer, batch, rewards)
    assert output["advantages"].tolist() == [[0, 0], [5 - 2, 0]]


@pytest.mark.parametrize(
    ("algorithm", "config", "words"),
    [
        (
            rpg.algorithm("ppo", advantage="gae"),
            {},
            "advantage: 'gae' needs a critic, and GRPOTrainer has none",
        ),
        (
            rpg.algorithm("rpg-urkl", reference={"type": "every_k"}),
            {},
            "reference: 'every_k' is not available in",
        ),
        (rpg.algorithm("reinforce-pp", beta=0.1), {}, "kl: 'reward' has no place in GRPOTrainer"),
        (
            rpg.algorithm("grpo", rollout_correction={"type": "mask"}),
            {},
            "rollout_correction: 'mask'",
        ),
        (rpg.algorithm("dapo"), {"entropy_coef": 0.1}, "entropy_coef: 0.1 is of TRL's own loss"),
    ],
)
def test_what_trl_cannot_give_is_refused(integration, algorithm, config, words):
    with pytest.raises(AlgorithmError) as error:
        integration._check(algorithm, types.SimpleNamespace(**config))
    assert words in str(error.value)


def test_the_scripts_of_the_documentation_are_short_and_trls_runs(tmp_path, monkeypatch):
    scripts = [
        block for block in blocks(ROOT / "docs" / "library.md") if block.language == "python"
    ]
    assert len(scripts) == 5 and all(len(block.text.splitlines()) <= 30 for block in scripts)
    pytest.importorskip("trl", reason="TRL is not installed; pip install '.[peers]' brings it")
    monkeypatch.chdir(tmp_path)
    (script,) = [block for block in scripts if "RPGTrainer" in block.text]
    exec(compile(script.text, script.where, "exec"), {"__name__": "__main__"})
