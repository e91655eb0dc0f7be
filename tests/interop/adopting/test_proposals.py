"""What `rpg adopt` writes for data, scripts and commands of each kind, compared with kept files.

`python -m tests.interop.adopting.test_proposals` writes the kept files anew: read what changed.
"""

import json
import os
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rpg.cli import load

KEPT = Path(__file__).with_name("proposals")
TRL = """from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

def right(completions, answer, **kwargs):
    return [float(a in c) for c, a in zip(completions, answer)]

config = GRPOConfig({settings})
GRPOTrainer(model="org/m", reward_funcs=[right], args=config,
            train_dataset=load_dataset("json", data_files="rows.jsonl"))
"""
VERL = (
    "python3 -m verl.trainer.main_ppo data.train_files=rows.jsonl data.val_files=more.jsonl "
    "actor_rollout_ref.model.path=org/m data.train_batch_size=64 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.rollout.n=4 "
    "trainer.total_training_steps=20 "
)
SUM = {"prompt": "What is {n} + 6?", "answer": "{after}"}
ROWS = {
    "worked": {"question": "Add {n} and 6.", "answer": "{n} + 6 = {after}\n#### {after}"},
    "facts": {"Context": "A jar has {n} nuts.", "Question": "6 more?", "Answer": "{after}"},
    "latex": {"problem": "Simplify {n} over {after}.", "answer": "\\frac{{{n}}}{{{after}}}"},
    "talk": {
        "prompt": '[{{"role": "user", "content": "{n} + 6?"}}]',
        "reward_model": '{{"ground_truth": "{after}"}}',
    },
    "choices": {
        "question": "Which is {n} + 6?",
        "A": "{n}",
        "B": "{after}",
        "answer": "B",
        "hint": "It is more than {n} is.",
    },
}
"""Kind of data -> its row number n."""
SCRIPTS = {
    "trl_dapo": "loss_type='dapo', epsilon_high=0.28, max_steps=40",
    "trl_grpo_kl": "loss_type='grpo', beta=0.04, num_iterations=2, optim='adafactor'",
    "trl_gspo": "loss_type='grpo', importance_sampling_level='sequence', epsilon=3e-4",
    "trl_cispo": "loss_type='cispo', epsilon_high=5.0, scale_rewards=False",
    "trl_sapo": "loss_type='sapo', sapo_temperature_neg=1.2",
    "trl_vllm": "use_vllm=True, vllm_importance_sampling_mode='token_truncate'",
}
"""Name -> settings of GRPOConfig."""
COMMANDS = {
    "verl_grpo_kl": "algorithm.adv_estimator=grpo A.use_kl_loss=True A.kl_loss_coef=0.01",
    "verl_gspo": "algorithm.adv_estimator=grpo A.policy_loss.loss_mode=gspo A.clip_ratio_low=2e-4 "
    "A.clip_ratio_high=3e-4 A.loss_agg_mode=seq-mean-token-mean",
    "verl_reward_kl": "algorithm.adv_estimator=rloo algorithm.use_kl_in_reward=True "
    "algorithm.kl_ctrl.kl_coef=0.02 algorithm.rollout_correction.rollout_is=token",
    "verl_reinforce": "algorithm.adv_estimator=reinforce_plus_plus_baseline A.ppo_epochs=2 "
    "actor_rollout_ref.rollout.top_p=0.95 trainer.nnodes=2",
}
"""Name -> overrides of verl; A is the actor."""
NAMES = [*ROWS, *SCRIPTS, *COMMANDS]


def rows(kind, first, count):
    pattern = ROWS.get(kind, SUM)
    for n in range(first, first + count):
        yield {name: text.format(n=n, after=n + 6) for name, text in pattern.items()}


def write_rows(path, kind, first, count):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(kind, first, count)))


def source(name):
    """The file that is adopted, written into the working folder."""
    if name in ROWS:
        write_rows(Path("rows.jsonl"), name, 1, 30)
        return "rows.jsonl"
    write_rows(Path("rows.jsonl"), "sum", 1, 30)
    write_rows(Path("more.jsonl"), "sum", 50, 5)
    if name in SCRIPTS:
        Path("run.py").write_text(TRL.format(settings=SCRIPTS[name]))
        return "run.py"
    Path("run.sh").write_text(VERL + COMMANDS[name].replace("A.", "actor_rollout_ref.actor."))
    return "run.sh"


def proposal(name):
    """run.yaml, sweep.yaml and the first problem of what is proposed."""
    words = ["adopt", source(name), "--into", "lab", "--no-samples"]
    if name in ROWS:
        words += ["--model", "org/m"]
    CliRunner().invoke(load(), words, catch_exceptions=False)
    lab = Path("lab")
    first = (lab / "train.jsonl").read_text().partition("\n")[0]
    parts = [(lab / file).read_text() for file in ("run.yaml", "sweep.yaml")]
    return "\n---\n".join([*parts, first]) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_proposal_is_as_it_was_kept(name, tmp_path, monkeypatch):
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    assert proposal(name) == (KEPT / f"{name}.txt").read_text()


def main():
    KEPT.mkdir(exist_ok=True)
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            (KEPT / f"{name}.txt").write_text(proposal(name))


if __name__ == "__main__":
    main()
