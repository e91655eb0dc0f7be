"""rpg adopt: from a TRL script or a verl command to files that train, with the same gradient."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from rpg.config.code import kept_sources
from rpg.config.sweep_spec import load_file
from rpg.errors import UserError
from rpg.interop.adopting import read_source
from rpg.interop.adopting.taken_over import TABLES
from rpg.models.reward_models import scorer_of
from rpg.tasks import load_problems
from rpg.tasks.preparation import data_digest
from rpg.tasks.rewards.scoring import Answered
from tests.interop.adopting.folders import adopt, adopted, gsm8k

SCRIPT = """# Sums with GRPO
import os, re

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

open("executed", "w").close()
MODEL, NAME = "org/some-model", os.environ.get("NAME")
MODEL = "org/some-model"
SYSTEM = "Think.\\nThen write #### and the answer: no words  # after it"
PATTERN = re.compile(r"#### *(-?[0-9]+)"); open("executed", "w").close()


def last(text):  # the comment is kept
    match = PATTERN.search(text)
    return match and match.group(1)


def right(completions, answer, **kwargs):
    return [float(last(c[0]["content"]) == last(a)) for c, a in zip(completions, answer)]


def form(completions, **kwargs):
    return [0.5 * bool(last(c[0]["content"])) for c in completions]


def main():
    data = load_dataset("json", data_files="sums.jsonl", split="train").map(
        lambda row: {"prompt": [{"role": "system", "content": SYSTEM},
                                {"role": "user", "content": f"Q: {row['question']}"}]}
    )
    data = data.filter(lambda row: "\\n#: \\x07" not in row["question"])
    rate = 1e-3
    config = GRPOConfig(
        output_dir="out", learning_rate=rate, per_device_train_batch_size=16,
        gradient_accumulation_steps=2, num_generations=8, max_steps=6, beta=0.04, epsilon=0.3,
        loss_type="grpo", reward_weights=[1.0, 2.0], seed=int(NAME or 0), steps_per_generation=4,
        num_iterations=2, top_k=0, min_p=None, epsilon_high=None,
        lr_scheduler_type="constant_with_warmup",
    )
    judged = [right, form]
    GRPOTrainer(model=MODEL, reward_funcs=judged, args=config, train_dataset=data,
                peft_config=None).train()


main()
"""


def test_a_trl_script_becomes_a_sweep_without_being_executed(home):
    gsm8k(home / "sums.jsonl")
    (home / "grpo.py").write_text(SCRIPT, "utf-8")
    said = adopt("grpo.py", "--no-samples").output
    assert not (home / "executed").exists() and "map(last" not in said
    spec = adopted(home / "grpo")
    algorithm, training = spec.algorithm, spec.training
    assert (spec.model.path, algorithm.beta, algorithm.reference.type) == (
        "org/some-model",
        0.04,
        "fixed",
    )
    assert algorithm.kl.weighted, "as in TRL 1.16, use_bias_correction_kl"
    assert load_file(home / "grpo/run.yaml", {}, data_digest).runs[0].spec.algorithm == algorithm
    assert (training.steps, training.prompts_per_step, training.optimizer.learning_rate) == (
        2,
        8,
        1e-3,
    )
    assert (training.mini_batch_prompts, training.epochs) == (4, 2), (
        "a rollout is four of TRL's steps"
    )
    assert (spec.rollout.group_size, spec.rollout.max_response_tokens, algorithm.clip.high) == (
        8,
        512,
        0.3,
    )
    assert (training.optimizer.schedule, training.optimizer.weight_decay) == ("constant", 0.0), (
        "as in TRL"
    )
    problem = load_problems(spec.task).train[0]
    assert [m["role"] for m in problem.messages] == ["system", "user"]
    assert problem.prompt.startswith("Q: Ann has")
    code = (home / "grpo/adopted_rewards.py").read_text()
    assert "# the comment is kept" in code and "trl" not in code and "executed" not in code
    with scorer_of(spec, kept_sources(spec)) as scorer:
        answered = [
            Answered(response, 1, False, problem.answer, problem.asked(), problem.columns)
            for response in (f"so #### {problem.answer}", "#### 0", problem.answer)
        ]
        assert [scored.reward for scored in scorer.score(answered)] == [2.0, 1.0, 0.0]
    for words in (
        "output_dir",
        "one device",
        "seed is not taken over",
        "not executed: ...",
        "peft_config",
        "adopted_rewards.py: right, form and what they name",
    ):
        assert words in said


def test_a_verl_command_becomes_a_sweep(home):
    for name in ("train", "test"):
        message = {"role": "user", "content": f"{name} 1+1? Answer after ####"}
        row = {"prompt": [message], "reward_model": {"ground_truth": "2"}}
        (home / f"{name}.jsonl").write_text(json.dumps(row))
    (home / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=rloo "
        "data.train_files=train.jsonl \\\n"
        " data.val_files=test.jsonl data.train_batch_size=16 actor_rollout_ref.rollout.n=4 "
        "trainer.nnodes=2 \\\n"
        " actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.model.path=org/m "
        "data.shuffle=$SHUFFLE \\\n"
        " actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum "
        "actor_rollout_ref.actor.ppo_epochs=2\n"
    )
    said = adopt("run.sh", "--no-samples", "--model", "org/other").output
    spec = adopted(home / "run")
    algorithm, training = spec.algorithm, spec.training
    assert (algorithm.name, algorithm.beta, algorithm.loss_agg_mode) == (
        "rloo",
        0.0,
        "seq-mean-token-sum",
    )
    assert (training.prompts_per_step, training.mini_batch_prompts, training.epochs) == (16, 8, 2)
    assert (training.optimizer.learning_rate, training.optimizer.weight_decay) == (1e-6, 0.01), (
        "as in verl"
    )
    assert "proposed, not read from verl: training.steps" in said
    assert (spec.task.verifier.marker, spec.model.path, spec.rollout.group_size) == (
        "####",
        "org/other",
        4,
    )
    assert "trainer.nnodes" in said and "data.shuffle is not taken over" in said


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (
            "algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False",
            "advantage.std",
            False,
        ),
        ("algorithm.adv_estimator=reinforce_plus_plus_baseline", "name", "reinforce-pp-baseline"),
        (
            "algorithm.adv_estimator=rloo algorithm.use_kl_in_reward=True "
            "algorithm.kl_ctrl.kl_coef=0.02",
            "kl",
            {"type": "reward", "estimator": "k1"},
        ),
        ("algorithm.adv_estimator=grpo A.policy_loss.loss_mode=gspo", "ratio", "sequence"),
        (
            "algorithm.adv_estimator=grpo algorithm.rollout_correction.rollout_is=sequence",
            "rollout_correction",
            {"type": "truncate", "level": "sequence", "cap": 2.0},
        ),
        (
            "algorithm.adv_estimator=grpo A.use_kl_loss=True A.kl_loss_type=mse",
            "kl",
            {"type": "loss", "estimator": "k2"},
        ),
        (
            "algorithm.adv_estimator=grpo A.use_kl_loss=True A.kl_loss_type=low_var_kl+",
            "kl",
            {"type": "loss", "estimator": "k2"},
        ),
        (
            'GRPOTrainer(model="m", reward_funcs=[], train_dataset=load_dataset("org/data"))',
            "kl.weighted",
            True,
        ),
    ],
)
def test_losses_are_taken_over(tmp_path, words, field, value):
    command = "python3 -m verl.trainer.main_ppo data.train_files=a.parquet "
    script = tmp_path / ("quick.py" if "GRPO" in words else "run.sh")
    script.write_text(
        words if "GRPO" in words else command + words.replace("A.", "actor_rollout_ref.actor.")
    )
    source = read_source(str(script))
    assert source.settings[f"algorithm.{field}"] == value


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("A.policy_loss.loss_mode=clip_cov", "policy_loss.loss_mode=clip_cov"),
        (
            "algorithm.use_kl_in_reward=True algorithm.kl_ctrl.type=adaptive",
            "kl_ctrl.type=adaptive",
        ),
        ("algorithm.rollout_correction.rollout_rs=token_k1", "rollout_rs=token_k1"),
        ("A.use_kl_loss=True algorithm.use_kl_in_reward=True", "a KL in the loss and one in the"),
        ("A.kl_loss_coef=$KL", "actor.kl_loss_coef"),
        ("actor_rollout_ref.rollout.multi_turn.enable=True", "multi_turn.enable=True"),
        ("actor_rollout_ref.rollout.repetition_penalty=1.1", "repetition_penalty=1.1"),
        ("reward_model.enable=True", "reward_model.enable=True"),
        ("+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True", "overlong_buffer_cfg"),
        ("data.custom_cls.path=mine.py", "data.custom_cls.path=mine.py"),
        ("reward_model.enable=$JUDGED", "reward_model.enable"),
        ("A.use_kl_loss=True A.kl_loss_type=abs", "kl_loss_type=abs"),
        ("algorithm.adv_estimator=gae", "adv_estimator=gae"),
        ("algorithm.adv_estimator=remax", "adv_estimator=remax"),
        ("", "adv_estimator=gae (its default)"),
    ],
)
def test_a_loss_without_a_counterpart_is_refused_as_a_whole(tmp_path, words, named):
    command = "python3 -m verl.trainer.main_ppo data.train_files=a.parquet "
    if words and "adv_estimator" not in words:
        command += "algorithm.adv_estimator=grpo "
    script = tmp_path / "run.sh"
    script.write_text(command + words.replace("A.", "actor_rollout_ref.actor."))

    with pytest.raises(
        UserError, match="decides the loss or the data, and has no counterpart"
    ) as refused:
        read_source(str(script))

    assert named in str(refused.value)


VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a.parquet "


READING = SimpleNamespace(source="trl", subject=None)


QUICK = """from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

def right(completions, answer, **kwargs):
    return [float(a in c) for c, a in zip(completions, answer)]

config = GRPOConfig({settings})
GRPOTrainer(model="m", reward_funcs=[right{rewards}], args=config,
            train_dataset=load_dataset("json", data_files="sums.jsonl"){more})
"""


def quick(folder, settings="", rewards="", more=""):
    script = folder / "quick.py"
    script.write_text(QUICK.format(settings=settings, rewards=rewards, more=more))
    return script


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ("importance_sampling_level='sequence', loss_type='grpo'", "surrogate", "gspo_joint"),
        ("importance_sampling_level='sequence', loss_type='grpo'", "ratio", "sequence"),
        ("loss_type='luspo', importance_sampling_level='sequence'", "ratio", "sequence"),
        (
            "loss_type='cispo', epsilon_high=5.0",
            "clip",
            {"low": 1.0, "high": 4.0, "c": None},
        ),
        ("delta=3.0", "clip", {"low": 0.2, "high": 0.2, "c": 3.0}),
        (
            "loss_type='sapo', sapo_temperature_neg=2.0",
            "gate",
            {"type": "sigmoid", "positive": 1.0, "negative": 2.0},
        ),
        ("loss_type='vespo'", "ratio", "sequence"),
        ("scale_rewards=False", "advantage.std", False),
        (
            "use_vllm=True",
            "rollout_correction",
            {"type": "mask", "level": "sequence", "low": 0.0, "high": 3.0},
        ),
        (
            "use_vllm=True, vllm_importance_sampling_mode='token_truncate'",
            "rollout_correction",
            {"type": "truncate", "level": "token", "cap": 3.0},
        ),
    ],
)
def test_losses_of_trl_are_taken_over(tmp_path, settings, field, value):
    source = read_source(str(quick(tmp_path, settings)))

    assert source.settings[f"algorithm.{field}"] == value


@pytest.mark.parametrize(
    "settings",
    [
        "loss_type='grpo'",
        "loss_type='dapo', beta=0.1",
        "loss_type='dr_grpo', beta=0.1, use_bias_correction_kl=False",
        "loss_type='grpo', importance_sampling_level='sequence', epsilon=0.01, epsilon_high=0.02",
        "loss_type='luspo', importance_sampling_level='sequence'",
        "loss_type='cispo', epsilon_high=2.0",
        "loss_type='sapo'",
        "loss_type='vespo'",
        "loss_type='bnpo', delta=1.5",
    ],
)
def test_the_gradient_of_what_is_proposed_is_that_of_trl(home, settings):
    pytest.importorskip("trl", reason="TRL is not installed")
    gsm8k(home / "sums.jsonl")

    said = adopt(str(quick(home, settings)), "--no-samples").output

    assert "checked: the gradient equals that of trl" in said


@pytest.mark.parametrize(
    "words",
    [
        "A.use_kl_loss=True A.kl_loss_coef=0.02",
        "A.policy_loss.loss_mode=gspo A.clip_ratio_low=0.01 A.clip_ratio_high=0.02",
        "algorithm.use_kl_in_reward=True algorithm.kl_ctrl.kl_coef=0.02",
        "A.use_kl_loss=True A.kl_loss_type=k3+ A.loss_agg_mode=seq-mean-token-sum",
    ],
)
def test_the_gradient_of_what_is_proposed_is_that_of_verl(home, words):
    pytest.importorskip("verl", reason="verl is not installed")
    gsm8k(home / "sums.jsonl")
    (home / "more.jsonl").write_text('{"question": "2?", "answer": "so #### 2"}')
    command = VERL.replace("a.parquet", "sums.jsonl data.val_files=more.jsonl")
    (home / "run.sh").write_text(command + words.replace("A.", "actor_rollout_ref.actor."))

    said = adopt("run.sh", "--no-samples").output

    assert "checked: the gradient equals that of verl" in said
    assert "at drifts 0, 0.1, 0.4, clip included" in said


def test_without_their_trainer_it_is_said_that_nothing_was_checked(home, monkeypatch):
    def missing(_file, _given):
        raise UserError("run.py is for trl, which is not installed")

    monkeypatch.setattr("rpg.interop.adopting.loss_check.read_loss", missing)
    gsm8k(home / "sums.jsonl")

    said = adopt(str(quick(home, "loss_type='grpo'")), "--no-samples").output

    assert "the loss was not checked: run.py is for trl, which is not installed" in said


def test_a_proposal_with_another_gradient_leaves_nothing(home, monkeypatch):
    def differs(*_):
        raise ValueError("the gradient of grpo as proposed is 0.1 off that of trl")

    monkeypatch.setattr("rpg.interop.adopting.loss_check.read_loss", lambda *_: READING)
    monkeypatch.setattr("rpg.interop.adopting.loss_check.checked", differs)
    gsm8k(home / "sums.jsonl")

    with pytest.raises(UserError, match="off that of trl; nothing was proposed"):
        adopt(str(quick(home, "loss_type='grpo'")), "--no-samples")

    assert not (home / "quick").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("top_entropy_quantile=0.2", "top_entropy_quantile=0.2"),
        ("sync_ref_model=True, beta=0.1", "sync_ref_model=True"),
        ("scale_rewards='batch'", "scale_rewards=batch"),
        ("mask_truncated_completions=True", "mask_truncated_completions=True"),
        ("multi_objective_aggregation='normalize_then_sum'", "multi_objective_aggregation"),
        ("repetition_penalty=1.1", "repetition_penalty=1.1"),
        ("loss_type='mine'", "loss_type=mine"),
        ("importance_sampling_level='sequence', loss_type='cispo'", "importance_sampling_level"),
        ("beta=float(1)", "beta (not a literal"),
        ("chat_template_kwargs={'enable_thinking': False}", "chat_template_kwargs"),
    ],
)
def test_settings_of_trl_without_a_counterpart_refuse_the_whole(tmp_path, settings, named):
    with pytest.raises(UserError, match="decides the loss or the data") as refused:
        read_source(str(quick(tmp_path, settings)))

    assert named in str(refused.value)


def test_a_script_for_an_older_version_of_trl_is_refused_with_what_it_has_to_say(tmp_path):
    script = quick(tmp_path, "max_prompt_length=300, epsilon=0.1")

    with pytest.raises(UserError, match=r"defaults were others.*beta, loss_type"):
        read_source(str(script))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("algorithm.kl_ctrl.kl_coef=0.02", "use_kl_in_reward (algorithm.kl_ctrl.kl_coef is set"),
        ("A.fsdp_config.grad_offload=False", "verl before 0.3, whose defaults were others"),
    ],
)
def test_a_command_for_an_older_version_of_verl_is_refused(tmp_path, words, named):
    script = tmp_path / "run.sh"
    script.write_text(VERL + words.replace("A.", "actor_rollout_ref.actor."))

    with pytest.raises(UserError) as refused:
        read_source(str(script))

    assert named in str(refused.value)


def test_what_verl_draws_from_is_taken_over(tmp_path):
    rollout = "actor_rollout_ref.rollout."
    script = tmp_path / "run.sh"
    script.write_text(
        f"{VERL} {rollout}top_p=0.9 {rollout}top_k=-1 {rollout}multi_turn.enable=False"
    )

    source = read_source(str(script))

    assert source.settings["rollout.top_p"] == 0.9
    assert "rollout.top_k" not in source.settings


def test_a_command_of_any_version_is_read_where_it_says_where_its_kl_is(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(
        f"{VERL} algorithm.kl_ctrl.kl_coef=0.02 actor_rollout_ref.actor.use_kl_loss=True "
        "actor_rollout_ref.actor.fsdp_config.grad_offload=True"
    )

    assert read_source(str(script)).settings["algorithm.kl"]["type"] == "loss"


@pytest.mark.parametrize("more", ["tools=[right]", "environment_factory=E", "rollout_func=right"])
def test_responses_from_elsewhere_refuse_the_whole(tmp_path, more):
    with pytest.raises(UserError, match=f"the trainer's {more.partition('=')[0]}"):
        read_source(str(quick(tmp_path, more=f", {more}")))


def test_a_reward_model_is_taken_over_with_its_weight(home):
    gsm8k(home / "sums.jsonl")

    adopt(str(quick(home, "reward_weights=[1.0, 0.5]", ", 'org/judge'")), "--no-samples")

    reward = adopted(home / "quick").reward
    assert [part.type for part in reward] == ["python", "model"]
    assert (reward[1].path, reward[1].weight) == ("org/judge", 0.5)


def test_a_reward_that_is_made_elsewhere_refuses_the_whole(tmp_path):
    with pytest.raises(UserError, match="the reward make_reward\\(2\\), which is not a function"):
        read_source(str(quick(tmp_path, rewards=", make_reward(2)")))


def test_settings_that_decide_the_training_are_named_before_the_others(tmp_path):
    settings = "optim='adafactor', kl_target=3, logging_steps=1, adam_beta2=0.95"

    source = read_source(str(quick(tmp_path, settings)))

    said = " | ".join(source.remarks)
    assert "decides the training, and is not taken over: optim=adafactor" in said
    assert "named like settings of a loss: kl_target" in said
    assert said.index("optim") < said.index("kl_target") < said.index("logging_steps")
    assert source.settings["training.optimizer.betas"] == [0.9, 0.95]


def test_every_setting_of_trl_is_of_one_kind():
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    kinds = [TABLES["trl"], *(TABLES[name]["trl"] for name in ("read", "only", "training", "fast"))]

    for field in dataclasses.fields(trl.GRPOConfig):
        assert sum(field.name in kind for kind in kinds) == 1, field.name


def test_home_and_tilde_are_folders(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    (home / "data").mkdir()
    gsm8k(home / "data/sums.jsonl")
    (home / "data/test.jsonl").write_text('{"question": "2?", "answer": "so #### 2"}')
    command = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
    files = "data.train_files=$HOME/data/sums.jsonl data.val_files=~/data/test.jsonl"
    (home / "run.sh").write_text(f"{command} {files}\n")

    result = adopt("run.sh", "--no-samples")

    assert "problems to train on" in result.output
