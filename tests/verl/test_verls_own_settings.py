"""`backend.verl`: anything of verl's own goes through, what our fields decide does not, and
mistakes say what would do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rpg.backends.verl.overrides import Paths, plan
from rpg.config import verl_keys
from rpg.config.errors import ConfigError
from rpg.config.identity import identity
from rpg.config.sweep_spec import load_sweep
from rpg.config.verl_keys import derived, sections, unknown
from tests.specs import load_run
from tests.verl.test_gpu_resources import VLLM
from tests.verl.test_launch_overrides import CHAIN, PATHS, VARIANTS

ROLLOUT = "actor_rollout_ref.rollout"
COUNTS = {
    f"{ROLLOUT}.agent.num_workers",
    "reward.num_workers",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units",
    "ray_kwargs.ray_init.num_cpus",
    "trainer.logger",
    f"{ROLLOUT}.free_cache_engine",
}
"""What we set and anyone may set otherwise; our loggers stay among theirs."""
IDLE = """data.shuffle data.truncation data.apply_chat_template_kwargs.enable_thinking
trainer.balance_batch actor_rollout_ref.actor.tau_pos actor_rollout_ref.actor.calculate_entropy
actor_rollout_ref.ref.log_prob_micro_batch_size
actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size
algorithm.rollout_correction.rollout_is"""
"""What would change nothing, or make evaluations see other prompts and shards other batches than
our fields say."""


def of(verl, **changes):
    return load_run(CHAIN, {**VLLM, "backend.verl": verl, **changes})


def composed(spec):
    from omegaconf import OmegaConf

    from rpg.backends.verl.main import compose

    config = compose(plan(spec, PATHS).arguments())
    return lambda key: OmegaConf.to_object(OmegaConf.create({"v": OmegaConf.select(config, key)}))[
        "v"
    ]


def test_settings_arrive_in_verls_own_configuration():
    pytest.importorskip("verl")
    given = {
        f"{ROLLOUT}.max_num_seqs": 64,
        f"{ROLLOUT}.quantization": "fp8",
        f"{ROLLOUT}.engine_kwargs.vllm.swap_space": 8,  # a section that takes any key
        "actor_rollout_ref.model.override_config.attn_implementation": "eager",
        "+actor_rollout_ref.actor.fsdp_config.something_new": [1, "a b"],
        "global_profiler.tool": "torch",
        "global_profiler.steps": [2],
        "reward.num_workers": 3,
        "trainer.logger": ["tensorboard", "console"],
    }
    select = composed(of(given))
    for key, value in given.items():
        if key != "trainer.logger":
            assert select(key.removeprefix("+")) == value, key
    assert select("trainer.logger") == ["console", "file", "tensorboard"], (
        "ours are read from the file"
    )


def test_what_our_fields_decide_is_refused_by_their_names():
    """Every key that a launch sets, every one that the driver derives, and those that nobody would
    read."""
    keys = set(IDLE.split())
    for changes in VARIANTS.values():
        for resume in (None, Path("/runs/r/global_step_4")):
            spec = load_run(
                CHAIN, {"backend.type": "verl", "backend.validation_samples": 2, **changes}
            )
            keys |= set(plan(spec, Paths(**{**vars(PATHS), "resume": resume})).overrides)
    source = (Path(__file__).resolve().parents[2] / "rpg/backends/verl/main.py").read_text()
    derived = source.partition("values = {")[2].partition("}")[0]
    keys |= set(re.findall(r'"([a-z_]+(?:\.[a-z_0-9]+)+)":', derived))
    assert len(keys) > 60
    for key in sorted(keys - COUNTS):
        with pytest.raises(ConfigError, match="cannot be set") as error:
            of({key: 1})
        assert "backend.verl" in str(error.value)
    with pytest.raises(
        ConfigError, match=r"trainer\.nnodes: cannot be set here; set backend\.nodes instead"
    ):
        of({"trainer.nnodes": 2})
    with pytest.raises(
        ConfigError, match=r"contains .*, which cannot be set here; name single settings"
    ):
        of({"actor_rollout_ref.actor": {"strategy": "fsdp"}})
    with pytest.raises(ConfigError, match=r"'no': expected a dotted key"):
        of({"no": 1})
    with pytest.raises(ConfigError, match="expected a dotted key"):
        of({"trainer.x=1 +trainer.y": 1})


def test_one_setting_is_set_by_its_dotted_name():
    """As `--set`, as an axis, and beside others."""
    seqs = f"{ROLLOUT}.max_num_seqs"
    spec = of({seqs: 8, "global_profiler.tool": "torch"}, **{f"backend.verl.{seqs}": 16})
    assert spec.backend.verl == {seqs: 16, "global_profiler.tool": "torch"}
    assert of({}, **{f"backend.verl.{seqs}": 16}) == of({seqs: 16})
    assert of({}, **{"backend.verl.+a.b": 1}).backend.verl == {"+a.b": 1}
    with pytest.raises(ConfigError, match=r"trainer\.nnodes: cannot be set here; set backend\.nod"):
        of({}, **{"backend.verl.trainer.nnodes": 2})


def test_a_setting_may_be_an_axis_and_describe_the_baseline(tmp_path):
    seqs = f"backend.verl.{ROLLOUT}.max_num_seqs"
    path = tmp_path / "sweep.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "seqs",
                "base": str(CHAIN),
                "set": VLLM,
                "axes": {seqs: [32, 64]},
                "baseline": f"grpo {seqs}=64",
            }
        )
    )
    runs = load_sweep(path, {}, lambda _: "data").runs
    assert [run.spec.backend.verl for run in runs] == [
        {f"{ROLLOUT}.max_num_seqs": 32},
        {f"{ROLLOUT}.max_num_seqs": 64},
    ]


def test_our_list_names_keys_that_verl_has():
    pytest.importorskip("verl")
    added = (
        "rpg agent_loop_manager_class ray_kwargs.ray_init. mixed_precision gen_batch_size "
        "target_parameters"
    )
    lacking = [line for line in unknown(dict.fromkeys(derived())) if "has no setting" in line]
    assert [line for line in lacking if not any(name in line for name in added.split())] == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {f"{ROLLOUT}.max_num_seq": 64},
            "verl has no setting 'actor_rollout_ref.rollout.max_num_seq' (got 64); did you "
            "mean 'actor_rollout_ref.rollout.max_num_seqs'?",
        ),
        ({f"{ROLLOUT}.max_num_seqs": "many"}, "max_num_seqs: 'many' (verl's default is 256)"),
        (
            {f"{ROLLOUT}.enable_prefix_caching": 1},
            "enable_prefix_caching: 1 (verl's default is True)",
        ),
        ({"+trainer.brand_new": 1}, None),
    ],
)
def test_verl_is_asked_whether_it_knows_a_setting(settings, says):
    pytest.importorskip("verl")
    lines = unknown(of(settings).backend.verl)
    assert lines == [] if says is None else len(lines) == 1 and says in lines[0]


RPG = (
    "import sys; from rpg.cli import main\ntry: main()\nfinally: print({'torch', 'ray', 'verl'} "
    "& {*sys.modules})"
)


@pytest.mark.parametrize("command", ["show", "sweep", "render --kuberay"])
def test_a_misspelt_setting_is_found_before_anything_starts(tmp_path, command):
    pytest.importorskip("verl")
    (tmp_path / "run.yaml").write_text(
        f"backend: {{type: verl, verl: {{{ROLLOUT}.max_num_seq: 4}}}}\n"
    )
    (tmp_path / "sweep.yaml").write_text("name: s\nbase: run.yaml\naxes: {seed: [0, 1]}\n")
    words = [sys.executable, "-c", RPG, *command.split(), "sweep.yaml", "--home", "data"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "set()\n")
    assert not (tmp_path / "data").exists()
    what = (
        f"verl has no setting '{ROLLOUT}.max_num_seq' (got 4); did you mean "
        f"'{ROLLOUT}.max_num_seqs'?"
    )
    assert done.stderr == f"error: sweep.yaml: backend.verl: {what}\n"


def test_without_verl_its_settings_are_said_to_be_unchecked(tmp_path, command_line, monkeypatch):
    monkeypatch.setattr(verl_keys, "_schema", lambda: None)
    (tmp_path / "run.yaml").write_text(
        f"backend: {{type: verl, verl: {{{ROLLOUT}.max_num_seq: 4}}}}\n"
    )
    code, _, errors = command_line("show", tmp_path / "run.yaml")
    assert code == 0
    assert f"{ROLLOUT}.max_num_seq: could not be checked, since verl is not" in errors


def test_it_is_part_of_what_a_run_is():
    plain = of({})
    other = of({f"{ROLLOUT}.max_num_seqs": 64})
    assert (
        identity(plain, "data")
        == identity(load_run(CHAIN, VLLM), "data")
        != identity(other, "data")
    )


def test_rollout_correction_is_the_runs_own_field():
    """The weights are those of the embedded trainer: one function of the same log-probabilities."""
    correction = {"type": "truncate", "cap": 2.0}
    spec = of({}, algorithm={"name": "rpg-urkl", "rollout_correction": correction})
    rendered = json.loads(plan(spec, PATHS).overrides["rpg.algorithm"])
    assert correction.items() <= rendered["rollout_correction"].items()
    with pytest.raises(ConfigError, match=r"set algorithm\.rollout_correction instead"):
        of({"algorithm.rollout_correction.rollout_is": "token"})


def test_a_stale_sampler_is_the_runs_own_field():
    assert plan(of({}, **{"rollout.staleness": 2}), PATHS).overrides["rpg.staleness"] == 2
    with pytest.raises(
        ConfigError, match=r"_mode: cannot be set here; set rollout\.staleness instead"
    ):
        of({"trainer.v1.trainer_mode": "colocate_async"})


def test_the_table_of_the_page_has_every_section_of_verls_configuration():
    pytest.importorskip("verl")
    page = (Path(__file__).resolve().parents[2] / "docs/verl.md").read_text()
    table = page.partition("## verl's own settings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sections()
