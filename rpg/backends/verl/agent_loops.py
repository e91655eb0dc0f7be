"""verl's agent loops with the randomness of every response, so that what is sampled follows from the run's seed alone.

Prompts have names instead of verl's random ones: step, round and place, `s3r0p00012`.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from rpg.backends.prompts import LARGEST_REFILL
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.overrides import HUGGINGFACE
from rpg.models import seeds

_NAME = re.compile(r"s(\d+)r(\d+)p(\d+)")


def prompt_name(step: int, round_: int, place: int) -> str:
    """The uid of a prompt. No underscore: verl's keys are `<uid>_<response>_<turn>`."""
    return f"s{step}r{round_}p{place:05d}"


class SeededWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):
    """Adds to the sampling parameters what verl's settings have no place for: for training responses their randomness."""

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        self.settings = JobSettings.inside(OmegaConf.to_container(config.actor_rollout_ref))

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict, **kwargs) -> Any:
        sampling_params = {**sampling_params, **self._further(trajectory)}
        found = _NAME.fullmatch(str(kwargs["uid"]))
        if found:
            step, round_, place = map(int, found.groups())
            row = place * self.settings.group_size + kwargs["session_id"]
            sampling_params = {**sampling_params, **self._randomness(step, round_, row)}
        return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)

    def _further(self, trajectory: dict) -> dict[str, Any]:
        """In the words of vLLM."""
        s, further = self.settings, {}
        if s.stop:
            further["stop"] = list(s.stop)
        if s.validation_min_p and trajectory["validate"]:
            further["min_p"] = s.validation_min_p
        return further

    def _randomness(self, step: int, round_: int, row: int) -> dict[str, Any]:
        """For our own server the very uniforms that the embedded trainer uses.

        vLLM has a seed of its own for all requests: one for each would have it draw every token by itself.
        """
        s = self.settings
        if self.config.actor_rollout_ref.rollout.name != HUGGINGFACE:
            return {}
        rows = (LARGEST_REFILL if round_ else 1) * s.prompts_per_step * s.group_size
        table = _uniforms(rows, s.max_response_tokens, s.seed, "rollout", step, round_)
        return {"uniforms": table[row].tolist()}


@functools.lru_cache(maxsize=4)
def _uniforms(rows: int, columns: int, *key: object):
    """A smaller round's numbers are the first rows of a larger one's."""
    return seeds.uniforms(rows, columns, *key)


class SeededManager(AgentLoopManagerTQ):
    """Named in the job's config (main.py)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(SeededWorker)

    def end(self) -> None:
        """Called when nothing more is asked of it."""
