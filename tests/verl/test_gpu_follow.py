"""What counts as progress, and how failures are told: slow steps go on, hangs end, ends read as
sentences."""

import importlib.util
import json

import pytest

from rpg.backends.training_process import TrainingFailed
from rpg.backends.verl import launch
from rpg.backends.verl.job_output import clean, reason, tail
from rpg.backends.verl.launch import _Run
from rpg.backends.verl.overrides import plan
from rpg.config.load import spec_of
from rpg.store.live_status import TRAINING
from tests.specs import load_run
from tests.tiny import make_run, make_spec
from tests.verl.test_gpu_resources import VLLM
from tests.verl.test_launch_overrides import CHAIN, PATHS


class Clock:
    """A driver and its time: at each poll a second is over and `each(second)` happens."""

    def __init__(self, each):
        self.now = 0.0
        self.each = each

    def poll(self):
        self.each(self.now)
        return None if self.now < 1000 else 1

    def monotonic(self):
        return self.now

    def sleep(self, _):
        self.now += 1


def follow(tmp_path, monkeypatch, each):
    """(how it ended, when) of a run that takes 1000 seconds and may hang for 60."""
    folder = make_run(tmp_path, "run", make_spec(backend={"type": "verl", "hang_minutes": 1.0}))
    (folder.path / "verl").mkdir(exist_ok=True)
    clock = Clock(lambda now: each(folder.path / TRAINING, now))
    monkeypatch.setattr(launch, "time", clock)
    log = folder.path / "verl" / "log-1.txt"
    log.write_text("\x1b[36m(Runner pid=7)\x1b[0m {'a': 1,\n'zero_indexed_step': True}\n")
    with pytest.raises(TrainingFailed) as error:
        _Run(folder, spec_of(folder), print).follow(clock)
    return str(error.value), clock.now


def says(path, **record):
    base = {"step": 1, "phase": "rollout", "of": 512, "what": "prompts", "time": 0}
    path.write_text(json.dumps({**base, **record}))


def test_a_step_longer_than_the_limit_goes_on_while_prompts_are_answered(tmp_path, monkeypatch):
    why, _ = follow(
        tmp_path, monkeypatch, lambda path, now: says(path, done=int(now) // 50, seconds=now)
    )
    assert "verl's driver ended with code 1" in why


def test_a_phase_counts_and_a_clock_does_not(tmp_path, monkeypatch):
    """A thread renews times beside a training that hangs; only what changes with the training
    counts."""

    def each(path, now):
        says(path, done=512, phase="rollout" if now < 50 else "update", seconds=now, time=now)

    why, when = follow(tmp_path, monkeypatch, each)
    assert 108 <= when <= 113
    where = "(backend.hang_minutes) in step 1: update, 512 of 512 prompts"
    assert why.startswith(f"no progress for 1 minutes {where}")


def test_before_the_first_word_nothing_moves(tmp_path, monkeypatch):
    why, when = follow(tmp_path, monkeypatch, lambda path, now: None)
    assert 60 <= when <= 63
    assert "\x1b" not in why
    assert "Runner pid" not in why


def test_the_root_error_comes_first_and_without_codes(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(
        b"\x1b[36m(Runner pid=1, ip=10.0.0.1)\x1b[0m ValueError: Free memory on device "
        b"cuda:0 is less than desired\n"
        b"Training Progress:  10%|#   | 1/10\rTraining Progress:  20%|##  | 2/10\r\n"
        b"\x1b[31m'zero_indexed_step': True}\x1b[0m\n"
    )
    lines = tail(log)
    assert lines[0] == "ValueError: Free memory on device cuda:0 is less than desired"
    assert lines[1] == "Training Progress:  20%|##  | 2/10"
    assert reason("verl's driver was killed by signal 9", lines) == (
        "ValueError: Free memory on device cuda:0 is less than desired (verl's driver was "
        "killed by signal 9)"
    )
    assert reason("", lines).startswith("the last error in its log is: ValueError")
    assert reason("", lines[1:]) == "the log's last line is: Training Progress:  20%|##  | 2/10"
    assert clean("a\x1b]0;title\x07b\x00c") == "abc"


def test_workers_wait_for_one_that_writes_as_long_as_a_run_may_stand_still():
    for minutes, seconds in ((1, 600), (90, 90 * 60)):
        launch = plan(load_run(CHAIN, {**VLLM, "backend.hang_minutes": minutes}), PATHS)
        assert launch.overrides["actor_rollout_ref.nccl_timeout"] == seconds


@pytest.mark.parametrize("there", [False, True])
def test_attention_is_the_one_that_is_installed(monkeypatch, there):
    pytest.importorskip("verl")
    from rpg.backends.verl.main import attention, compose

    found = importlib.util.find_spec
    find = lambda name: (there or None) if name == "flash_attn" else found(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", find)
    model = "actor_rollout_ref.model"
    eager = {"backend.verl": {f"{model}.override_config.attn_implementation": "eager"}}
    assert attention(compose(plan(load_run(CHAIN, VLLM | eager), PATHS).arguments())) == {}, (
        "it was chosen"
    )
    values = attention(compose(plan(load_run(CHAIN, VLLM), PATHS).arguments()))
    chosen = "flash_attention_2" if there else "sdpa"
    assert values[f"{model}.override_config.attn_implementation"] == chosen
    assert values.get(f"{model}.use_remove_padding", True) is there, (
        "verl packs for flash attention only"
    )
