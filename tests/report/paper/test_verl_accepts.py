"""verl's own checks on the paper's runs: what can be known about them without a GPU."""

import importlib.util
from pathlib import Path

import pytest

from rpg.backends.verl.overrides import Paths, plan
from rpg.config.sweep_spec import load_sweep

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "configs/papers/rpg").glob("*.yaml"))
needs_verl = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="verl is not installed"
)


def kinds():
    """Of all sweeps' runs the first of each kind that verl tells apart."""
    first = {}
    for run in (run for path in FILES for run in load_sweep(path, {}, lambda _: "").runs):
        s = run.spec
        training = s.training.optimizer.type, s.model.path, s.rollout.max_response_tokens
        first.setdefault((s.algorithm.needs_reference, s.algorithm.loss_agg_mode, *training), run)
    return list(first.values())


def check(spec, *more):
    """What verl's driver and its workers do with a config before a GPU is touched."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    from rpg.backends.verl.main import compose, derive

    paths = Paths(
        spec.model.path, Path("/train"), (Path("/aime24"),), Path("/state"), Path("/metrics")
    )
    config = compose([*plan(spec, paths).arguments(), *more])
    derive(config)
    reference, parts = need_reference_policy(config), config.actor_rollout_ref
    validate_config(config, use_reference_policy=reference, use_critic=need_critic(config))
    return reference, [omega_conf_to_dataclass(parts[name]) for name in ("actor", "rollout")]


@pytest.mark.system
@needs_verl
def test_verl_accepts_the_papers_runs():
    runs = kinds()
    assert len(runs) > 10
    for run in runs:
        reference, (actor, rollout) = check(run.spec)
        assert reference == run.spec.algorithm.needs_reference
        assert (actor.ppo_mini_batch_size, rollout.n, rollout.name) == (32, 16, "vllm")
        assert rollout.max_model_len == 2 * run.spec.rollout.max_response_tokens


@needs_verl
@pytest.mark.parametrize(
    "override",
    ["actor_rollout_ref.actor.ppo_mini_batch_size=1024", "+actor_rollout_ref.actor.median=1"],
)
def test_verls_checks_refuse_a_wrong_setting(override):
    [run, *_] = load_sweep(ROOT / "configs/papers/rpg/table6.yaml", {}, lambda _: "").runs
    with pytest.raises(Exception, match=r"mini_batch_size|median"):
        check(run.spec, override)
