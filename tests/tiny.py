"""Runs of a tiny model that answers at random: enough for groups with right and wrong responses."""

import time

import pytest
import yaml
from safetensors.torch import load_file

from rpg.config.run_spec import RunSpec
from rpg.store import Layout
from rpg.store.run_writer import write_manifest

BASE = yaml.safe_load("""
task: {type: chain, tiers: {one: 1, two: 2}, train_problems: 400, benchmark_problems: 8}
model:
  {type: tiny, hidden_size: 32, intermediate_size: 64, warm_start:
    {target_accuracy: 0, consolidation_steps: 0, behaviour_steps: 120,
     behaviour_learning_rate: 0.003}}
training: {steps: 3, prompts_per_step: 8, mini_batch_prompts: 4}
rollout: {group_size: 8, max_prompt_tokens: 16, max_response_tokens: 12}
evaluation: {every: 2, samples_per_problem: 2}
""")
HUNGRY = yaml.safe_load("""
model:
  {layers: 12, hidden_size: 64, intermediate_size: 1024, kv_heads: 1,
    warm_start: {max_steps: 25, batch_size: 8, behaviour_steps: 0}}
training:
  {steps: 2, prompts_per_step: 24, mini_batch_prompts: 24, micro_batch_rows: 4096,
   checkpoint_every: 1}
rollout: {group_size: 16, max_response_tokens: 48}
""")
"""Changes that make a run whose memory is what its backward passes need: some 600 MB of it, the
weights are 10."""


def merged(base, changes):
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def make_spec(**changes):
    return RunSpec.model_validate(merged(BASE, changes))


def make_run(home, name, spec):
    """A run's folder with its manifest."""
    folder = Layout(home).run("sweep", name)
    write_manifest(
        folder,
        {
            "run_id": name,
            "variant": name,
            "algorithm": spec.algorithm.name,
            "display_name": spec.algorithm.display_name,
            "seed": spec.seed,
            "axes": {},
            "baseline": None,
            "spec": spec.model_dump(mode="json"),
            "versions": {},
            "git_revision": None,
            "machine": {},
            "created": time.time(),
            "steps": spec.training.steps,
            "eval_steps": list(spec.eval_steps()),
            "benchmarks": list(spec.benchmarks()),
        },
    )
    return folder


CLOCK = ("time", "attempt", "tokens_per_second")


def numbers(folder):
    """A run's metrics without what a clock measured."""
    rows = folder.read_metrics()
    return [
        {k: v for k, v in r.items() if k not in CLOCK and not k.startswith("seconds_")}
        for r in rows
    ]


def make_trainer(spec, home, lean=True, half=False):
    """The embedded trainer of a run, at its first step, with its teacher; `half`: with bfloat16
    weights, as on a GPU."""
    from rpg.backends.local.optimizers import Optimizer
    from rpg.backends.local.rollout import Roller
    from rpg.backends.local.trainer import Trainer
    from rpg.models.initial_policy import initial_policy
    from rpg.models.policy import Policy
    from rpg.models.teacher import teacher_of
    from rpg.tasks.preparation import prepare_data, read_problems

    policy = initial_policy(make_spec(), home)
    policy = Policy(policy.model, policy.tokenizer, lean=lean, bfloat16=half)
    roller = Roller(spec, read_problems(prepare_data(spec, home).train))
    trainer = Trainer(
        spec, policy, roller, teacher_of(spec, policy.tokenizer, home, lambda line: None)
    )
    if half:
        trainer.optimizer = Optimizer(policy.model, spec.training.optimizer, half_weights=True)
    return trainer


class Killed(BaseException):
    pass


def killed_in(step):
    """A `say` that ends a training once this step is told."""

    def say(line):
        if f"step {step}/" in line:
            raise Killed

    return say


def whole_and_resumed(home, name, spec, *stops):
    """(a run trained at once, one killed after each of the steps `stops`, which goes on): they end
    with the same bits."""
    from rpg.backends.local.training_loop import train

    whole, parts = (make_run(home, f"{name}-{which}", spec) for which in ("whole", "parts"))
    train(whole, home, lambda line: None)
    for step in stops:
        with pytest.raises(Killed):
            train(parts, home, killed_in(step))
        assert parts.checkpoint_steps()[-1] == step
    train(parts, home, lambda line: None)
    last = spec.training.steps
    assert parts.attempts() == [*range(1, len(stops) + 2)]
    assert numbers(parts) == numbers(whole)
    assert len(numbers(whole)) == last
    end = whole.checkpoint(last)
    files = [path.relative_to(end) for path in end.rglob("*.safetensors")]
    assert len(files) > 1
    for file in files:
        mine, same = (load_file(folder.checkpoint(last) / file) for folder in (whole, parts))
        assert mine.keys() == same.keys() and all(
            value.equal(same[key]) for key, value in mine.items()
        ), file
    return whole, parts
