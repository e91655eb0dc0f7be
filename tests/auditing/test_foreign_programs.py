"""Whose settings a file has is said with evidence, or the file is refused with what it looks
like."""

import pytest

from rpg.auditing.foreign_settings import read_settings
from rpg.errors import UserError

VERL = "actor_rollout_ref.actor.kl_loss_coef=0.01 algorithm.adv_estimator=grpo"


def read(tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_settings(path)


@pytest.mark.parametrize(
    ("name", "text", "trainer", "evidence"),
    [
        (
            "a.sh",
            f"python3 -m verl.trainer.main_ppo {VERL}",
            "verl",
            "starts verl.trainer.main_ppo",
        ),
        ("a.sh", f"python verl/trainer/main_ppo.py {VERL}", "verl", "verl/trainer/main_ppo.py"),
        ("a.sh", f"python -m recipe.dapo.main_dapo {VERL}", "verl", "recipe.dapo.main_dapo"),
        ("a.sh", f"launch {VERL}", "verl", "overrides of actor_rollout_ref"),
        ("a.sh", f"run.py {VERL} ray_init.num_cpus=4 +reward.x=1", "verl", "overrides of actor"),
        ("a.yaml", "actor_rollout_ref: {actor: {ppo_epochs: 2}}", "verl", "actor_rollout_ref"),
        (
            "a.sh",
            f"python -m recipe.mine.data_process --n 4\npython -m verl.trainer.main_ppo {VERL}",
            "verl",
            "starts verl.trainer.main_ppo",
        ),
        ("a.sh", "trl grpo --beta 0.1", "trl", "starts `trl grpo`"),
        ("a.sh", "accelerate launch trl/scripts/grpo.py --beta 0.1", "trl", "trl/scripts/grpo.py"),
        ("a.sh", "python my_grpo.py --num_generations 4", "trl", "GRPOConfig's num_generations"),
        ("a.yaml", "loss_type: dr_grpo", "trl", "loss_type dr_grpo"),
        ("a.yaml", "{epsilon: 0.1, learning_rate: 1e-6}", "trl", "GRPOConfig's epsilon"),
        (
            "a.yaml",
            "num_generations: 4\noptim_args: a\nmodel_kwargs: {a: 1}\nfsdp_config: {b: 2}",
            "trl",
            "GRPOConfig's num_generations",
        ),
        ("a.py", "from trl import GRPOTrainer\nGRPOTrainer('m')", "trl", "calls GRPOTrainer"),
        ("a.toml", "[orchestrator]\ngroup_size = 4", "prime-rl", "orchestrator"),
        ("a.sh", "python open_instruct/grpo_fast.py --beta 0.1", "open-instruct", "grpo_fast.py"),
    ],
)
def test_the_program_is_recognised_with_its_evidence(tmp_path, name, text, trainer, evidence):
    settings = read(tmp_path, name, text)

    assert settings.trainer == trainer
    assert evidence in settings.evidence


@pytest.mark.parametrize(
    ("name", "text", "looks_like"),
    [
        ("a.sh", f"python -m verl.trainer.fsdp_sft_trainer {VERL}", "supervised fine-tuning"),
        ("a.sh", f"python -m verl.trainer.main_generation {VERL}", "generation"),
        ("a.sh", f"python -m recipe.spin.main_spin {VERL}", "an algorithm of its own"),
        ("a.sh", f"python -m verl.experimental.fully_async_policy.main {VERL}", "asynchronous"),
        ("a.sh", f"python -m verl.trainer.main_ppo --config-name mine {VERL}", "mine is not there"),
        ("a.sh", "python -m openrlhf.cli.train_ppo_ray --algo.kl.init_coef 0.01", "OpenRLHF"),
        ("a.sh", "python -m verl.trainer.main_ppo --config-name $WHICH", "($WHICH) depends on"),
        (
            "a.sh",
            "read -d '' C <<EOF\nopenrlhf.cli.train_kto --lr 1\nEOF\ndeepspeed --module $C",
            "openrlhf.cli.train_kto: OpenRLHF",
        ),
        (
            "a.toml",
            "[[orchestrator.train.source]]\nname = 's'\nalgo.type = 'opd'\n[orchestrator.algo]",
            "several losses: grpo, and opd for the source s",
        ),
        ("a.sh", f"python -m main_gkd {VERL}", "a script of another training"),
        (
            "a.sh",
            f"python my_train.py --config-name my_distillation {VERL}",
            "my_distillation is of another training",
        ),
        (
            "a.sh",
            f"case $V in\na) M=one.main ;;\nb) M=two.main ;;\nesac\npython -m $M {VERL}",
            "which program it starts ($M) depends on a branch",
        ),
        ("a.sh", f"python train.py rllm/backend=verl {VERL}", "rLLM, which computes advantages"),
        ("a.sh", "python train.py rllm.trainer.epochs=3 model.name=m", "rLLM, which computes"),
        ("a.sh", f"python train.py ++rllm.trainer.a=1 {VERL}", "rLLM, which computes advantages"),
        ("a.sh", "python -m verl.model_merger merge --backend fsdp", "no training"),
        ("a.sh", "python -m recipe.mine.preprocess --n 4", "no training"),
        (
            "a.sh",
            "A=(--advantage-estimator gspo --lr 1)\nray job submit -- python train.py ${A[@]}",
            "slime (--advantage-estimator)",
        ),
        ("a.sh", "python examples/start_vlm_pipeline.py --config_name x", "ROLL"),
        ("a.yaml", "sft_train: {training_args: {lr: 1}}\nhydra: {run: {dir: d}}", "ROLL"),
        ("a.yaml", "trial_name: t\ncluster: {n_nodes: 1}\nactor: {lr: 1}", "AReaL"),
        ("a.sh", "swift rlhf --rlhf_type grpo --beta 0.01", "ms-swift"),
        ("a.sh", "megatron rlhf --rlhf_type grpo", "ms-swift on Megatron"),
        ("a.sh", "trl rloo --beta 0.01", "another trainer of TRL"),
        ("a.sh", "python train_rloo.py --beta 0.01", "a script of another training"),
        ("a.sh", "python my_grpo.py --config x.yaml", "nothing says for which trainer"),
        ("a.sh", "uv run python examples/run_grpo.py --config x.yaml", "NeMo-RL"),
        (
            "a.sh",
            "trl grpo --beta 1; python open_instruct/grpo_fast.py --beta 1",
            "several programs",
        ),
        ("a.yaml", "grpo: {num_generations: 4}\nloss_fn: {ratio_clip_min: 0.1}", "NeMo-RL"),
        ("a.yaml", "defaults: base.yaml\npolicy: {train_global_batch_size: 4}", "NeMo-RL"),
        ("a.yaml", "rlhf_type: grpo\nbeta: 0.1", "ms-swift"),
        ("a.yaml", "num_generations: 4\nrloo_k: 2", "TRL's RLOO"),
        ("rloo/a.yaml", "num_generations: 4", "TRL's RLOO"),
        ("a.yaml", "packing: true\nmax_length: 100", "supervised fine-tuning"),
        ("a.yaml", "beta: 0.1\nlearning_rate: 1.0e-6", "nothing says for which trainer"),
        ("a.yaml", "trainer: {algorithm: {name: x}}", "nothing says for which trainer"),
        ("a.toml", "[model]\nname = 'm'\n[data]\nname = 'd'", "prime-rl's supervised fine-tuning"),
        ("a.toml", "[model]\nname = 'm'\n[optim]\nlr = 1e-6", "a part of prime-rl's settings"),
        (
            "a.py",
            "from trl.experimental.async_grpo import AsyncGRPOTrainer as T\nT(1)",
            "no trainer",
        ),
        ("a.py", "from other import GRPOTrainer\nGRPOTrainer('m')", "GRPOTrainer is that of other"),
        ("a.py", "from trl import GRPOConfig, TrlParser\nTrlParser((GRPOConfig,))", "command line"),
        ("a.py", "import tinker\ntinker.ServiceClient()", "tinker-cookbook"),
        (
            "a.py",
            "from trl import GRPOTrainer\nclass T(GRPOTrainer):\n  def _compute_loss(self): ...\n",
            "has a loss of its own",
        ),
        (
            "a.py",
            "import unsloth\nfrom trl import GRPOConfig, GRPOTrainer\nGRPOTrainer('m')",
            "unsloth, which puts a loss and defaults into TRL",
        ),
        (
            "a.py",
            "from trl import CPOTrainer, TrlParser\nTrlParser(1)\nCPOTrainer('m')",
            "it calls CPOTrainer",
        ),
        (
            "a.yaml",
            "actor_rollout_ref: {actor: {ppo_epochs: 1}}\nhidden_async: {lag: 2}\nrollout: {n: 4}",
            "main_ppo has no sections hidden_async, rollout",
        ),
        ("a.yaml", "actor_rollout_ref: {actor: {a: 1}}\nes_manager: {train: {n: 2}}", "RAGEN"),
        (
            "a.sh",
            f"python run.py agent_proxy.reward_normalization.method=mean {VERL}",
            "RAGEN, which computes advantages",
        ),
        ("a.sh", f"python run.py +mine.bonus=1 {VERL}", "main_ppo has no sections mine"),
        ("a.sh", "python -m skyrl.train.entrypoints.main trainer.epochs=2", "SkyRL"),
        ("a.sh", "python -m mine.main generator.n_samples=2 trainer.epochs=2", "SkyRL"),
        ("a.yaml", "off_by_n: 1\npolicy: {sampling: {n: 4}}\ntrainer: {lr: 1}", "torchforge"),
        ("a.yaml", "policy: {n: 4}\nlearner: {lr: 1}", "nothing says for which trainer"),
        ("a.sh", "uv run update_once.py --config a.yaml x.y=1", "what its update_once.py trains"),
        ("a.sh", "torchrun -m ${what}", "what its ${what} trains"),
        ("a.toml", "steps = 4\n[env]\nid = 'a'", "nothing says for which trainer"),
    ],
)
def test_other_programs_are_refused_with_what_they_look_like(tmp_path, name, text, looks_like):
    with pytest.raises(UserError, match="is not read") as refused:
        read(tmp_path, name, text)

    assert looks_like in str(refused.value)


@pytest.mark.parametrize("root", ["$ROOT", "$(pwd)", "."])
def test_a_configuration_beside_the_script_is_read_under_the_command(tmp_path, root):
    folder = tmp_path / "examples" / "config"
    folder.mkdir(parents=True)
    text = "actor_rollout_ref: {actor: {use_kl_loss: true, kl_loss_coef: 0.5}}"
    (folder / "mine.yaml").write_text(text)
    flags = f"--config-path={root}/examples/config --config-name=mine"

    settings = read(tmp_path, "a.sh", f"python -m verl.trainer.main_ppo {flags} {VERL}")

    assert settings.values["actor_rollout_ref.actor.use_kl_loss"] is True
    assert settings.values["actor_rollout_ref.actor.kl_loss_coef"] == 0.01
    assert "mine.yaml was read under the command" in settings.remarks[-1]


def test_overrides_behind_the_end_of_the_command_are_named(tmp_path):
    text = f"python -m verl.trainer.main_ppo {VERL}\n  actor_rollout_ref.actor.use_kl_loss=True\n"

    settings = read(tmp_path, "a.sh", text)

    assert "actor_rollout_ref.actor.use_kl_loss" not in settings.values
    assert "do not reach the command" in settings.warnings[-1]


@pytest.mark.parametrize(
    ("script", "program"),
    [("my_main.py", "my_main.py"), ("-m mine.train", "mine.train")],
)
def test_a_script_with_overrides_of_verl_is_named(tmp_path, script, program):
    settings = read(tmp_path, "a.sh", f"python3 {script} {VERL}")

    assert settings.trainer == "verl"
    assert settings.program == program


def test_a_source_with_the_same_algorithm_is_read_and_named(tmp_path):
    text = "[[orchestrator.train.source]]\nname = 's'\nalgo = {type = 'grpo', x = 1}\n"

    settings = read(tmp_path, "a.toml", text)

    assert settings.warnings == ["the algo of the source 's' is not part of this measurement"]
