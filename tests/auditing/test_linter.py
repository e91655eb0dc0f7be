"""`rpg audit --config`: what it says of configurations whose gradients are known, and what it
refuses."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rpg.auditing.foreign_settings import read_settings
from rpg.auditing.linter import lint
from rpg.errors import UserError

GRPO = """
#!/bin/bash
kl=low_var_kl
steps=${STEPS:-4}
MAX=$((1024 * SCALE))
# data.train_batch_size=7 \\
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo data.train_batch_size=$((NODES * 8)) \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.kl_loss_type="${kl}" +actor_rollout_ref.actor.kl_loss_coef=1e-3 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_epochs=$steps \\
    data.max_response_length=$MAX actor_rollout_ref.actor.kl_los_coef=3 \\
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean $@
"""
BYPASS = (
    "algorithm.rollout_correction.bypass_mode=True algorithm.rollout_correction.loss_type=reinforce"
)


def said(tmp_path, text, name="run.sh"):
    pytest.importorskip("verl", reason="verl is not installed")
    (tmp_path / name).write_text(text)
    return lint(tmp_path / name)


def hit(sentences, pattern):
    return [s for s in sentences if re.search(pattern, s)]


def test_a_variable_may_hold_several_overrides(tmp_path):
    text = "MORE='data.train_batch_size=128 trainer.nonsense=1'\n" + GRPO.replace("$@", "$MORE")
    sentences = said(tmp_path, text.replace("data.train_batch_size=$((NODES * 8))", ""))
    assert hit(sentences, r"There are 8 optimizer steps")
    assert hit(sentences, r"no such keys: .*trainer\.nonsense")


def test_settings_that_a_script_leaves_open_are_called_unknown(tmp_path):
    more = "$MORE $(cat more.txt) actor_rollout_ref.actor.ppo_epochs=2 a.b=${KL:-3}"
    branch = "KL=1\nif [ $LARGE = 1 ]; then KL=2; fi\n"
    (tmp_path / "run.sh").write_text(branch + GRPO.replace("$@", more))
    settings = read_settings(tmp_path / "run.sh")
    assert hit(settings.remarks, r"the arguments in \$MORE are not known")
    assert hit(settings.remarks, r"the arguments in \$\(cat more.txt\) are not known")
    assert "set to both" in settings.unresolved["actor_rollout_ref.actor.ppo_epochs"]
    assert "a.b" in settings.unresolved
    assert "a.b" not in settings.values


def test_verls_grpo_follows_the_forward_kl(tmp_path):
    """verl's k3 without a ratio follows the forward KL (verl #2953); per-response means favour
    short answers."""
    sentences = said(tmp_path, GRPO)
    assert hit(sentences, r"RKL was asked for; on-policy it follows FKL")
    assert hit(
        sentences, r"1/length of its response, which favours short right answers.* 25\.6% off"
    )
    assert hit(sentences, r"weight 0\.001\); it is measured with weight 0\.3"), "1e-3 is a number"
    assert hit(sentences, r"group mean and std .* 6\.9% off the gradient")
    assert hit(sentences, r"data\.train_batch_size could not be resolved .*default, 1024")
    assert hit(sentences, r"There are 64 optimizer steps per rollout"), "1024 / 64 x 4"
    assert hit(sentences, r"does not enter the loss: data\.max_response_length")
    assert hit(sentences, r"no such keys: actor_rollout_ref\.actor\.kl_los_coef")
    assert hit(sentences, r"the arguments in \$@ are not known")


@pytest.mark.parametrize(
    ("old", "new", "follows"),
    [
        ("low_var_kl", "k2", "1 of the reward's gradient − 0.3 of RKL's; nothing left"),
        ("low_var_kl", "k1", "It contains no KL"),
        ("use_kl_loss=True", "use_kl_loss=False", "There is no KL"),
        (
            "actor_rollout_ref.actor.use_kl_loss=True",
            "algorithm.use_kl_in_reward=True",
            r"0.3 of RKL's \(over whole responses\); nothing left over",
        ),
        ("$@", "actor_rollout_ref.actor.policy_loss.loss_mode=gspo", "policy loss gspo"),
        ("seq-mean-token-mean", "token-mean", "every token of a batch counts the same"),
        (
            "$@",
            "algorithm.rollout_correction.rollout_is=token",
            r"rollout_is \(token\) is not part of this",
        ),
        ("kl_loss=True", f"kl_loss=False {BYPASS}", "weight w = π/old is missing from every token"),
        (  # verl's SAPO does not read loss_agg_mode
            "seq-mean-token-mean $@",
            "token-mean actor_rollout_ref.actor.policy_loss.loss_mode=sapo",
            "counts by 1/length",
        ),
    ],
)
def test_each_setting_of_verl_changes_what_is_followed(tmp_path, old, new, follows):
    assert old in GRPO
    assert hit(said(tmp_path, GRPO.replace(old, new)), follows)


@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        ("use_policy_gradient: false", "On-policy: − 0.3 of FKL's; nothing left over"),
        (
            "use_policy_gradient: true",
            "On- and off-policy: 0.3 of FKL's − 0.3 of RKL's; nothing left over",
        ),
        (
            "use_policy_gradient: true, loss_mode: k1",
            "On- and off-policy: − 0.3 of RKL's; nothing left over",
        ),
        (
            "loss_mode: forward_kl_topk",
            "distillation by forward_kl_topk.* is not part of this measurement",
        ),
    ],
)
def test_verls_distillation_loss_follows_the_kl_that_is_said(tmp_path, settings, follows):
    """verl #7856: k3, which its page calls the reverse KL, follows the forward one, or the
    difference of both."""
    loss = f"distillation_loss: {{use_task_rewards: false, {settings}}}"
    text = f"actor_rollout_ref: {{}}\ndistillation: {{enabled: true, {loss}}}\n"
    sentences = said(tmp_path, text, "distil.yaml")
    assert hit(sentences, follows)
    assert not hit(sentences, "Lengths: tokens count neither")


def test_yaml_files_of_verl_and_trl_are_read_and_unknown_keys_named(tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed")
    text = (
        "defaults: [ppo_trainer]\nactor_rollout_ref: {actor: {use_kl_loss: true, kl_loss_coef: "
        "1e-4, kl_loss_type: k3}}\n"
    )
    sentences = said(tmp_path, text + "algorithm: {adv_estimator: '${mine}'}\n", "hydra.yaml")
    assert hit(sentences, "on-policy it follows FKL")
    assert hit(sentences, "defaults list were not read")
    assert hit(sentences, r"algorithm\.adv_estimator could not be resolved \(an interpolation")
    sentences = said(tmp_path, "beta: 0.04\nloss_type: grpo\nnum_iteration: 2\n", "grpo.yaml")
    assert hit(sentences, r"0.3 of RKL's; nothing left")
    assert hit(sentences, r"no such keys: num_iteration\b")
    uncorrected = {
        "beta": 0.04,
        "use_bias_correction_kl": False,
        "scale_rewards": False,
        "num_iterations": 2,
    }
    sentences = said(tmp_path, json.dumps(uncorrected), "grpo.json")
    assert hit(sentences, "on-policy it follows FKL")
    assert hit(sentences, "Dr. GRPO.*exact up to a scale")
    assert hit(sentences, "There are 2 optimizer steps per rollout")


def test_script_and_command_of_trl_are_not_executed(tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed")
    marker = tmp_path / "executed"
    script = (
        f"open({str(marker)!r}, 'w')\nfrom trl import GRPOConfig\n"
        "args = GRPOConfig(output_dir=name(), loss_type='cispo', beta=0.0)\n"
    )
    sentences = said(tmp_path, script, "train.py")
    assert hit(sentences, "epsilon_high is not set: cispo takes epsilon, 0.2")
    assert hit(sentences, "does not enter the loss: output_dir")
    assert not marker.exists()
    command = "trl grpo --loss_type dr_grpo --beta 0.1 --epsilon=0.3 --use_vllm --model $X"
    (tmp_path / "run.sh").write_text(f"X=$(touch {marker})\n{command}\n")
    settings = read_settings(tmp_path / "run.sh")
    assert settings.values == {
        "loss_type": "dr_grpo",
        "beta": 0.1,
        "epsilon": 0.3,
        "use_vllm": True,
    }
    assert list(settings.unresolved) == ["model"]
    assert not marker.exists()


PRIME = """
max_steps = 20
[orchestrator.algo]
type = "grpo"
[orchestrator.algo.length_penalty]
num_turns_weight = 0.5
[trainer.loss]
type = "default"
kl_tau = 0.0
kl_tua = 1.0
[[orchestrator.train.source]]
name = "math"
algo = {bonus = 1}
"""


def test_prime_rls_settings_are_audited(tmp_path):
    sentences = said(tmp_path, PRIME, "rl.toml")
    assert hit(sentences, "^prime-rl at [0-9a-f]{8}: algorithm grpo, loss default")
    assert hit(sentences, "On- and off-policy: 1 of the reward's gradient; nothing left over")
    assert hit(
        sentences, r"length_penalty\.num_turns_weight \(0\.5\) is not part of this measurement"
    )
    assert hit(sentences, r"no such keys: trainer\.loss\.kl_tua")
    assert hit(sentences, "source 'math' is not part")
    sentences = said(tmp_path, PRIME.replace('"grpo"', '"opd"'), "rl.toml")
    assert hit(sentences, "On- and off-policy: − 0.3 of RKL's; nothing left over")
    assert hit(
        sentences, r"4\.5% off the gradient of token −βRKL with its clip or mask, 0\.0% without"
    )
    assert hit(said(tmp_path, PRIME.replace('"default"', '"ipo"'), "rl.toml"), "loss ipo")
    with pytest.raises(UserError, match="cross-entropy"):
        said(tmp_path, PRIME.replace('"grpo"', '"sft"'), "rl.toml")


OPEN = """
python mason.py --cluster x --beta 9 -- source setup.sh \\&\\& python open_instruct/grpo_fast.py \\
    --exp_name run --beta 0.05 --num_learners_per_node 8 8 --masked_mean_axis 1 \\
    --gradient_checkpointing
"""


@pytest.mark.parametrize(
    ("more", "follows"),
    [
        ("", "RKL was asked for; on-policy it follows FKL"),
        (
            "--kl_estimator 3",
            "On-policy: 1 of the reward's gradient − 0.3 of RKL's; nothing left over",
        ),
        (
            "--kl_estimator 3 --num_mini_batches 4",
            "On- and off-policy: 1 .* − 0.3 of RKL's; nothing left",
        ),
        ("--kl_estimator 0", "It contains no KL"),
        ("--num_mini_batches 4 --loss_fn cispo", "There are 4 optimizer steps per rollout"),
        ("--num_epochs 2", "^use_rho_correction is not part of this measurement"),
        ("--use_vllm_logprobs true", "NOT use_rho_correction|one optimizer step per rollout"),
        (
            "--rho_mask_sequence_level true",
            r"rho_mask_sequence_level \(True\) is not part of this measurement",
        ),
        ("--beta $B", "beta could not be resolved .*default, 0.05"),
        ("--loss_fn mine --num_mini_batches 2", "REFUSED"),
    ],
)
def test_open_instructs_settings_are_audited(tmp_path, more, follows):
    text = OPEN.replace("--exp_name run", f"--exp_name run {more}")
    if "--beta" in more:
        text = text.replace("--beta 0.05", "")
    if follows == "REFUSED":
        with pytest.raises(UserError, match="loss_fn 'mine'; accepted: dapo, cispo"):
            said(tmp_path, text)
    else:
        assert bool(hit(said(tmp_path, text), follows.removeprefix("NOT "))) == (
            follows[:3] != "NOT"
        )


def test_the_losses_released_with_the_paper(tmp_path):
    """Their REINFORCE style has no KL term, whatever is asked for (docs/audit.md)."""
    text = GRPO.replace("=grpo", "=rpg").replace("low_var_kl", "rpg_rf_rkl_clip_ppo")
    sentences = said(tmp_path, text.replace("verl.trainer.main_ppo", "recipe.rpg.src.main_rpg"))
    assert hit(sentences, "here rpg-reinforce-rkl with preset released")
    assert hit(sentences, "On- and off-policy: 1 of the reward's gradient; nothing left over")
    assert hit(sentences, "starts recipe.rpg.src.main_rpg")
    clip = "actor_rollout_ref.actor.clip_ratio_low=0.1 actor_rollout_ref.actor.clip_ratio_high=0.1"
    tighter = said(tmp_path, text.replace("$@", clip))
    assert (
        hit(sentences, "drift 0.4.* with its clip")
        != hit(tighter, "drift 0.4.* with its clip")
        != []
    )


@pytest.mark.parametrize(
    "mistake", yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))
)
def test_a_file_that_is_not_understood_is_refused_by_name(tmp_path, mistake):
    name, text, complaint = mistake.values()
    if name == "run.yaml":
        pytest.importorskip("trl", reason="TRL is not installed")
    with pytest.raises(UserError, match=re.compile(complaint, re.DOTALL)):
        said(tmp_path, text, name)


def test_the_command_reports_on_a_file_of_another_trainer(tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed")
    from rpg.cli import load

    (tmp_path / "run.yaml").write_text("loss_type: grpo\n")
    result = CliRunner().invoke(load(), ["audit", "--config", str(tmp_path / "run.yaml"), "--json"])
    assert result.exit_code == 0, result.output
    assert hit(json.loads(result.stdout), "On- and off-policy: 1 of the reward's gradient")


def test_settings_of_megatron_are_known(tmp_path):
    actor = "actor_rollout_ref.actor."
    sentences = said(
        tmp_path,
        "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml "
        f"algorithm.adv_estimator=grpo {actor}megatron.expert_model_parallel_size=4 "
        f"actor_rollout_ref.ref.megatron.param_offload=True {actor}megatron.no_such_size=2 "
        f"{actor}megatron.override_transformer_config.moe_aux_loss_coeff=0.1",
    )

    [unknown] = [line for line in sentences if "has no such keys" in line]
    assert "no_such_size" in unknown
    assert "expert_model_parallel_size" not in unknown
    assert "param_offload" not in unknown


def test_a_command_of_verl_before_its_switch_of_the_kl_is_refused(tmp_path):
    command = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae "
        "critic.model.fsdp_config.grad_offload=True algorithm.kl_ctrl.kl_coef=0.003"
    )

    with pytest.raises(UserError, match=r"verl before 0\.3, whose defaults were others"):
        said(tmp_path, command)


def test_a_coefficient_without_its_switch_stands_at_the_top(tmp_path):
    command = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
        "algorithm.kl_ctrl.kl_coef=0.003"
    )

    assert "use_kl_in_reward could not be resolved" in said(tmp_path, command)[1]
