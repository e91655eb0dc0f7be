"""A real language model that is killed goes on to the same bits. Only where RPG_MODELS names a data
folder that has it:

RPG_HOME=/somewhere rpg model smollm2-135m; RPG_MODELS=/somewhere python -m pytest
tests/local/test_real_model.py
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rpg.config.model import kept_under, located, models_folder
from rpg.config.run_spec import RunSpec
from rpg.store.checkpoints import model_digest
from tests.tiny import make_run, numbers

NAME = "smollm2-135m"
SPEC = {
    "task": {"type": "words", "train_problems": 60, "benchmark_problems": 4},
    "model": {"type": "pretrained", "path": NAME},
    "algorithm": "grpo",
    "training": {"steps": 3, "prompts_per_step": 2, "mini_batch_prompts": 1, "checkpoint_every": 1},
    "rollout": {"group_size": 2, "max_prompt_tokens": 160, "max_response_tokens": 20},
}

MODELS = Path(os.environ.get("RPG_MODELS", "/nowhere"))
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        located(NAME, MODELS) is None, reason=f"needs {NAME} in the data folder $RPG_MODELS"
    ),
]


def training(folder):
    with folder.log_path.open("ab") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "rpg.backends.local", str(folder.path)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def test_killed_in_its_steps_it_ends_with_the_same_bits(tmp_path):
    models_folder(tmp_path).mkdir(parents=True)
    kept_under(tmp_path, NAME).symlink_to(located(NAME, MODELS).resolve())
    spec = RunSpec.model_validate(SPEC)
    whole = make_run(tmp_path, "whole", spec)
    torn = make_run(tmp_path, "torn", spec)
    assert training(whole).wait() == 0, whole.log_path.read_text()
    for step in (1, 2):
        child = training(torn)
        while child.poll() is None and not torn.checkpoint(step).exists():
            time.sleep(0.05)
        time.sleep(1.0)  # into the next step
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert training(torn).wait() == 0, torn.log_path.read_text()
    assert len(torn.attempts()) > 1
    assert numbers(torn) == numbers(whole)
    assert model_digest(torn.checkpoint(3)) == model_digest(whole.checkpoint(3))
