"""In which order vLLM's weights and cache take and give back a GPU's memory."""

from types import SimpleNamespace

import pytest
import torch

from rpg.backends.local.vllm_rollout import VllmSampler


class Engine:
    """What VllmSampler tells vLLM to do, in order."""

    def __init__(self):
        self.calls = []

    def wake_up(self, tags=None):
        self.calls.append(f"wake {' '.join(tags)}")

    def sleep(self, level):
        self.calls.append(f"sleep {level}")

    def collective_rpc(self, name, kwargs):
        self.calls.append(name)


@pytest.fixture
def rollout(monkeypatch):
    made = object.__new__(VllmSampler)
    vars(made).update(llm=None, rank=0, adapters=None, _is_cpu=False)

    def start(policy, cuda):
        made.llm = Engine()

    monkeypatch.setattr(made, "_start", start, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return made


def policy():
    return SimpleNamespace(device=torch.device("cuda"), model=torch.nn.Linear(2, 2))


def test_weights_are_replaced_before_the_cache_takes_memory(rollout):
    for _ in range(2):
        with rollout.holding(policy()):
            rollout.llm.calls.append("draw")
    first = ["reload_weights", "draw", "sleep 2"]
    later = ["wake weights", "reload_weights", "wake kv_cache", "draw", "sleep 2"]
    assert rollout.llm.calls == [*first, *later]


def test_a_frozen_base_is_kept_while_vllm_sleeps(rollout, monkeypatch):
    rollout.rank = 8
    monkeypatch.setattr("rpg.backends.local.vllm_rollout.save_adapters", lambda *a: None)
    monkeypatch.setattr(
        rollout, "use_adapters", lambda folder: rollout.llm.calls.append("adapters")
    )
    for _ in range(2):
        with rollout.holding(policy()):
            pass
    later = ["wake weights", "adapters", "wake kv_cache", "sleep 1"]
    assert rollout.llm.calls == ["adapters", "sleep 1", *later]
