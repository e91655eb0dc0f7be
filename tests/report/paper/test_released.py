"""The 60 released launch scripts, rendered through our configurations and compared key by key.

Every key of the scripts is in RENAMED or in exactly one list of released_keys.yaml, every key we
set is accounted for, and wherever the two sides are meant to differ both values are written down: a
change of either is a failure here.
"""

import importlib.util
import json
import os
from functools import cache
from pathlib import Path

import pytest
import yaml

from rpg.backends.verl.overrides import Paths, plan
from rpg.config.load import parse_yaml
from rpg.config.sweep_spec import load_sweep

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("RPG_DATA", ROOT.parent / "shared" / "data"))
needs_scripts = pytest.mark.skipif(
    not (DATA / "released_runs.json").is_file() or importlib.util.find_spec("verl") is None,
    reason=f"needs verl and {DATA / 'released_runs.json'}, the overrides of the released scripts "
    "(set RPG_DATA)",
)
SWEEPS = ("released", "released-reinforce", "released-odd")
ACTOR, REF, ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout"))
MODEL = "actor_rollout_ref.model"


class Rendered:
    """One of our runs as verl would see it: what we set over verl's own defaults."""

    def __init__(self, run, defaults):
        train, state, metrics = map(Path, ("/train", "/state", "/metrics"))
        paths = Paths(run.spec.model.path, train, (Path("/aime24"),), state, metrics)
        self.run, self.spec, self.defaults = run, run.spec, defaults
        self.set = plan(run.spec, paths).overrides
        self.algorithm = json.loads(self.set["rpg.algorithm"])

    def __getitem__(self, key):
        if key in self.set:
            return self.set[key]
        here = self.defaults
        for part in key.split("."):
            here = here[part]
        if isinstance(here, str) and here.startswith(
            "${oc.select:"
        ):  # another key, and what it is without that one
            other, _, default = here.removeprefix("${oc.select:").removesuffix("}").partition(",")
            try:
                return self[other]
            except KeyError:
                return parse_yaml(default, key)
        return here


KEYS = yaml.safe_load(Path(__file__).with_name("released_keys.yaml").read_text())
SAME, DROPPED, DIFFERENT = KEYS["same"], KEYS["dropped"], KEYS["different"]

NOT_READ = object()
"""Any value is right: the released code does not look at it in such a run."""


def _clip(bound):
    return lambda r: r.algorithm["clip"][bound]


def _kl_loss_type(r):
    """How the released code names the KL term of an algorithm; None is its default, k3."""
    kl, name = r.algorithm["kl"], r.algorithm["name"]
    if name.startswith("rpg-"):
        return name.replace("-reinforce-", "-rf-").replace("-", "_")
    return {"k1": "kl", "k3": None}[kl["estimator"]] if kl["type"] == "loss" else None


def _estimator(r):
    advantage = r.algorithm["advantage"]
    names = {"batch": "reinforce_plus_plus", "group_then_batch": "reinforce_plus_plus_baseline"}
    return names.get(advantage["type"]) or ("grpo" if advantage["std"] else "rpg")


def _warmup(r):
    """In rollouts, as the scheduler of the released code counts."""
    own = r.set.get(f"{ACTOR}.optim.override_optimizer_config", {}).get("warmup_steps", 0)
    updates = r["data.train_batch_size"] // r[f"{ACTOR}.ppo_mini_batch_size"]
    return (r[f"{ACTOR}.optim.lr_warmup_steps"] + own) / updates


def _optimizer(r):
    return {"AdamW": "adamw", "AdamWScheduleFree": "schedulefree"}[r[f"{ACTOR}.optim.optimizer"]]


def _if_kl(value):
    return lambda r: NOT_READ if r.algorithm["kl"]["type"] == "none" else value(r)


def _overlong(value):
    return lambda r: value(r, r.algorithm["overlong"]) if r.algorithm["overlong"] else NOT_READ


# The same thing said elsewhere or otherwise: released key -> its value as it follows from what we
# render.
RENAMED = {
    f"{ACTOR}.grad_clip": lambda r: r[f"{ACTOR}.optim.clip_grad"],
    f"{ACTOR}.loss_agg_mode": lambda r: r.algorithm["loss_agg_mode"],
    f"{ACTOR}.optim.lr_warmup_steps": _warmup,
    f"{ACTOR}.optim.optim_type": _optimizer,
    f"{ACTOR}.clip_ratio_low": _clip("low"),
    f"{ACTOR}.clip_ratio_high": _clip("high"),
    f"{ACTOR}.clip_ratio_c": _clip("c"),
    f"{ACTOR}.use_kl_loss": lambda r: r.algorithm["kl"]["type"] != "none",
    f"{ACTOR}.kl_loss_type": _kl_loss_type,
    f"{ACTOR}.kl_loss_coef": _if_kl(lambda r: r.algorithm["beta"]),
    f"{ACTOR}.use_iterative_ref_model": _if_kl(
        lambda r: {"old": True, "fixed": None}[r.algorithm["reference"]["type"]]
    ),
    "algorithm.adv_estimator": _estimator,
    "algorithm.filter_groups.enable": lambda r: r.algorithm["dynamic_sampling"],
    "algorithm.filter_groups.max_num_gen_batches": lambda r: (
        1 + r["rpg.max_refills"] if r.algorithm["dynamic_sampling"] else 1
    ),
    "reward_model.overlong_buffer.enable": lambda r: r.algorithm["overlong"] is not None,
    "reward_model.overlong_buffer.len": _overlong(
        lambda r, o: o["buffer_fraction"] * r["data.max_response_length"]
    ),
    "reward_model.overlong_buffer.penalty_factor": _overlong(lambda r, o: o["factor"]),
    "trainer.test_freq": lambda r: r["rpg.save_steps"][0],
    "trainer.val_before_train": lambda r: r.spec.eval_steps()[0] == 0,
}

SCHEDULE_FREE = {"optimizer_impl": "schedulefree", "optimizer": "AdamWScheduleFree"}
# What we set beyond the keys above: our key -> its value (a function where it depends on the run).
OURS = {
    "data.train_files": "/train",
    "data.val_files": ["/aime24"],
    "data.seed": 0,
    "data.dataloader_num_workers": 0,
    "data.filter_overlong_prompts": False,
    "actor_rollout_ref.nccl_timeout": 3600,  # verl's own 600 is read nowhere
    "reward.num_workers": 8,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 8,
    f"{ROLLOUT}.agent.num_workers": 8,
    f"{ACTOR}.strategy": "fsdp2",
    f"{ACTOR}.ppo_epochs": 1,
    f"{ACTOR}.data_loader_seed": 0,
    f"{ACTOR}.optim.betas": [0.9, 0.999],
    f"{ACTOR}.optim.clip_grad": 1.0,
    f"{ACTOR}.optim.lr_warmup_steps": lambda r: 0 if _optimizer(r) == "schedulefree" else 160,
    f"{ACTOR}.optim.override_optimizer_config": {"warmup_steps": 160},
    **{f"{ACTOR}.optim.{key}": value for key, value in SCHEDULE_FREE.items()},
    f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],
    f"{ACTOR}.fsdp_config.seed": 0,
    f"{REF}.fsdp_config.seed": 0,
    f"{REF}.fsdp_config.optimizer_offload": False,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.seed": 0,
    f"{ROLLOUT}.dtype": "bfloat16",
    f"{ROLLOUT}.max_model_len": 4096,
    "rpg.algorithm": lambda r: json.dumps(
        {"name": r.spec.algorithm.name, **r.spec.algorithm.settings()}
    ),
    "rpg.verifier": json.dumps(
        {"type": "math", "rules": "default", "fallback": "none", "relative_tolerance": 0.0}
    ),
    "rpg.seed": 0,
    "rpg.max_refills": 19,
    "rpg.save_steps": list(range(10, 401, 10)),
    "trainer.device": "cuda",
    "trainer.logger": ["console", "file"],
    "trainer.project_name": "rpg",
    "trainer.experiment_name": "run",
    "trainer.default_local_dir": "/state",
    "trainer.total_training_steps": 400,
    "trainer.test_freq": -1,
    "trainer.val_before_train": False,
}


@cache
def runs():
    folder = Path(importlib.util.find_spec("verl").submodule_search_locations[0])
    text = (folder / "trainer/config/_generated_ppo_trainer.yaml").read_text()
    defaults = parse_yaml(text, "verl's defaults")
    files = [ROOT / f"configs/papers/rpg/{name}.yaml" for name in SWEEPS]
    sweeps = [load_sweep(file, {}, lambda _: "") for file in files]
    return [Rendered(run, defaults) for sweep in sweeps for run in sweep.runs]


@cache
def scripts():
    """Script -> key -> value; both values of a key that a script leaves out are None."""
    data = json.loads((DATA / "released_runs.json").read_text())
    keys = {key for own in data["runs"].values() for key in own}
    read = lambda text: None if text is None else parse_yaml(text, "a script")  # noqa: E731
    return {
        name: {
            key: read(value)
            for key, value in {**dict.fromkeys(keys), **data["common"], **own}.items()
        }
        for name, own in data["runs"].items()
    }


def differences(script, r):
    """Released keys whose value is not what we render: key -> (theirs, ours)."""
    found = {}
    for key, theirs in script.items():
        if key in SAME:
            ours = r[key]
        elif key in RENAMED:
            ours = RENAMED[key](r)
        else:
            continue
        if key == f"{ACTOR}.kl_loss_type" and theirs:
            theirs = theirs.removesuffix(
                "_clip_ppo"
            )  # with and without, dual-clip PPO is what is run
        if ours is not NOT_READ and (
            ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool)
        ):
            found[key] = (theirs, ours)
    return found


def nearest(script):
    return min(runs(), key=lambda r: len(differences(script, r)))


@pytest.mark.component
@needs_scripts
def test_every_released_script_is_one_of_our_runs():
    assert len(scripts()) == len(runs()) == 60
    taken = {}
    for name, script in scripts().items():
        best = nearest(script)
        assert differences(script, best) == {}, f"{name}, nearest is {best.run.variant}"
        assert taken.setdefault(best.run.folder, name) == name, (
            f"{best.run.variant} stands for two scripts"
        )


@needs_scripts
def test_every_key_of_the_scripts_is_accounted_for_once():
    lists = [*SAME, *RENAMED, *DROPPED, *DIFFERENT]
    assert sorted(lists) == sorted(key for key in next(iter(scripts().values())))
    for key, other in {**DROPPED, **DIFFERENT}.items():
        assert {script[key] for script in scripts().values()} == set(other["released"]), key
        assert "ours" not in other or all(r[key] == other["ours"] for r in runs()), key


@needs_scripts
def test_every_key_we_set_is_accounted_for():
    for r in runs():
        for key, value in r.set.items():
            if (
                key in SAME or key in DIFFERENT or key.startswith("ray_kwargs.")
            ):  # where it runs, not what
                continue
            assert key in OURS, f"{key}={value} is in no list"
            expected = OURS[key](r) if callable(OURS[key]) else OURS[key]
            assert value == expected, key
    assert set(OURS) <= {key for r in runs() for key in r.set}


@needs_scripts
def test_a_changed_script_would_be_noticed():
    """Each comparison can fail: of some script another value of the key is the one difference to
    its run."""
    pairs = [
        (scripts()[f"run_{name}"], nearest(scripts()[f"run_{name}"]))
        for name in ("rpg_7b_ufkl1e-4", "grpo_7b")
    ]
    for key in (*SAME, *RENAMED):
        assert any(
            set(differences({**script, key: "another"}, r)) == {key} for script, r in pairs
        ), key


def test_the_differences_are_told_to_users():
    text = (ROOT / "docs/paper.md").read_text()
    assert f"{len(SAME) + len(RENAMED)} keys are the same" in text
    table = text[text.index("| key | released |") :].split("\n\n")[0].splitlines()[2:]
    assert sorted(line.split("`")[1] for line in table) == sorted([*DROPPED, *DIFFERENT])
    for key, other in {**DROPPED, **DIFFERENT}.items():
        start = f"| `{key}` | {', '.join(map(str, other['released']))} |"
        [row] = [line for line in table if line.startswith(start)]
        assert other["because"] in row
