"""verl's agent loops with the random numbers of every response, so that the run's seed alone
decides what is sampled.

Instead of verl's random ids, prompts have names of step, round and place: `s3r0p00012`.
"""

import functools
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from rpg.backends.prompts import LARGEST_REFILL
from rpg.backends.verl.agent_turns import AgentTurns
from rpg.backends.verl.job_settings import JobSettings
from rpg.backends.verl.overrides import HUGGINGFACE
from rpg.backends.verl.responses import place_of, problem_in, write_error
from rpg.errors import UserError
from rpg.models import seeds


class SeededWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):
    """Adds to the sampling parameters what verl's settings lack: for training responses their
    random numbers."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        self.settings = JobSettings.inside(config.actor_rollout_ref)
        task = self.settings.task
        self.turns = AgentTurns(config, self.settings, task, self.tokenizer) if task else None

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **kwargs: Any) -> Any:
        parameters = dict(sampling_params)  # by vLLM's names
        if self.settings.stop:
            parameters["stop"] = list(self.settings.stop)
        if self.settings.validation_min_p and trajectory["validate"]:
            parameters["min_p"] = self.settings.validation_min_p
        place = place_of(kwargs, self.settings.group_size)
        if place is not None:
            step, round_, row = place
            parameters |= self._randomness(step, round_, row)
            if self.turns is not None:
                key = f"{self.settings.seed} rollout {step} {round_} {row}"
                return await self._with_environment(self.turns, parameters, key, **kwargs)
        return await super()._run_agent_loop(parameters, trajectory, **kwargs)

    async def _with_environment(
        self, turns: AgentTurns, parameters: dict[str, Any], key: str, **kwargs: Any
    ) -> Any:
        """Draw as verl's `_run_agent_loop` does, with turns of an environment."""
        del kwargs["agent_name"], kwargs["trace"]  # nobody else gets them there, either
        try:
            problem = problem_in(kwargs)
            name = str(kwargs["uid"])
            output = await turns.draw(self.llm_client, parameters, problem, name, key)
        except UserError as error:
            write_error(self.config, error)
            raise
        return await self._agent_loop_postprocess(output, False, **kwargs)

    def _randomness(self, step: int, round_: int, row: int) -> dict[str, Any]:
        """The uniform numbers of the embedded trainer, for our server.

        vLLM has one seed for all requests: with a seed for each it would draw every token
        separately.
        """
        if self.config.actor_rollout_ref.rollout.name != HUGGINGFACE:
            return {}
        s = self.settings
        rows = (LARGEST_REFILL if round_ else 1) * s.prompts_per_step * s.group_size
        # The numbers of a smaller round are the first rows of those of a larger one.
        table = _uniforms(rows, s.max_response_tokens, s.seed, "rollout", step, round_)
        return {"uniforms": table[row].tolist()}


_uniforms = functools.lru_cache(maxsize=4)(seeds.uniforms)


class SeededManager(AgentLoopManagerTQ):
    """Named in the job's configuration (main.py)."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(SeededWorker)

    def end(self) -> None:
        """Called when no more responses are needed."""
