"""What a form may say: only what is there, only below allowed folders, never code and never the
shell."""

import re
import time
from pathlib import Path

import pytest
import yaml

from flows.serve import forms
from flows.serve.form_sizes import choices, chooser, described
from rpg.catalogue.schema import models_in
from rpg.config import verl_keys
from rpg.config.capabilities import sizes
from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.config.section import NUMBER
from rpg.config.shipped import PAPER, SHIPPED
from rpg.config.sweep_spec import load_sweep
from rpg.planning.cost import Measured, size
from rpg.store import Layout

OWN = "name: mine\nrun: {{training: {{steps: 2}}, {extra}}}\naxes: {{seed: [0]}}\n"


@pytest.fixture
def where(tmp_path):
    (tmp_path / "home" / "configs").mkdir(parents=True)
    return forms.roots(tmp_path / "home", {})


def own(where, extra="seed: 0", name="mine"):
    (where.own / f"{name}.yaml").write_text(OWN.format(extra=extra).replace(", seed: 0", ""))
    return f"own/{name}"


def test_a_form_becomes_the_arguments_of_the_command(where):
    name, arguments = forms.sweep(
        where,
        "quickstart",
        axes=forms.axes_of(["grpo", "dapo"], [3, 4]),
        steps=7,
        backend="local",
        overrides="# a word\ntraining.epochs=2\n\n",
        name="mine",
    )
    assert name == "mine"
    assert arguments == [
        "sweep",
        str(SHIPPED / "sweeps" / "quickstart.yaml"),
        "--home",
        str(where.home),
        "--set=training.epochs=2",
        "--set=training.steps=7",
        "--set=backend.type=local",
        '--axis=algorithm=["grpo", "dapo"]',
        "--axis=seed=[3, 4]",
        "--name=mine",
    ]
    assert forms.option("workers", 2) == ["--workers=2"]
    assert forms.option("workers", 0) == []


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([0, 1], '--axis=seed={"baseline": 5, "others": [0, 1]}'),
        ([], '--axis=seed={"baseline": 5, "others": null}'),
    ],
)
def test_a_form_may_give_the_baseline_more_seeds(where, seeds, expected):
    _, arguments = forms.sweep(where, "quickstart", axes=forms.axes_of((), seeds, 5))
    assert arguments[-1] == expected


def test_the_form_says_how_many_runs_a_file_has_and_what_they_take(where, tmp_path):
    own(where)
    (where.own / "broken.yaml").write_text("name: [")
    nothing = Measured({})
    layout = Layout.at(tmp_path)
    line = described(SHIPPED / "sweeps" / "quickstart.yaml", nothing, layout)[-1]
    assert re.fullmatch(r"21 runs, 1,260 optimizer steps, finds \d+ points", line)
    runs = load_sweep(SHIPPED / "sweeps" / "quickstart.yaml", {}, lambda spec: "").runs
    known = Measured({size(run.spec.model_dump(mode="json")): [1.0, 2.0, 3.0] for run in runs})
    line = described(SHIPPED / "sweeps" / "quickstart.yaml", known, layout)[-1]
    assert re.search(r", about 11 min, finds \d+ points$", line), line  # 21 x 15 steps x 2 s
    assert described(where.own / "mine.yaml", nothing, layout)[-1].startswith("1 run, ")
    assert described(where.own / "broken.yaml", nothing, layout)[-1] == "has a mistake"
    assert "GPU hours, calculated" in described(PAPER / "table6.yaml", nothing, layout)[-1]


def test_sweeps_are_listed_small_ones_first_and_gpus_last_with_questions_and_times(where, tmp_path):
    own(where)
    (where.own / "broken.yaml").write_text("name: [")
    (where.own / "run.yaml").write_text("task: {type: chain}")
    files = forms.configs(where)
    assert {"paper/table3", "own/mine", "own/broken"} < set(files)
    assert "own/run" not in files
    with pytest.raises(ConfigError, match="not valid YAML"):
        forms.sweep(where, "own/broken")
    lines, table = choices(files, tmp_path)
    names = list(lines)
    assert sorted(names) == sorted(files)
    assert names.index("own/mine") < names.index("quickstart")
    rows = {
        line.split(" | ")[0].strip("| "): line
        for line in table.splitlines()
        if line.startswith("| ")
    }
    assert "| Which direction does each KL term pull? | 21 runs" in rows["quickstart"]
    gpu = ["GPU hours" in lines[name] for name in names]
    assert (
        gpu == sorted(gpu, key=lambda paper: paper) or not gpu[-1]
    )  # broken files come last of all
    assert set(names) < set(rows)
    assert "has a mistake" in rows["own/broken"]
    assert lines["quickstart"] == (
        "quickstart · 1,260 steps, not timed yet · Which direction does each KL term pull?"
    )
    line = r"paper/table3 · [\d,]+ GPU hours · Table 3: Qwen3-4B, 8K context\."
    assert re.fullmatch(line, lines["paper/table3"])
    assert max(map(len, lines.values())) < 140
    studies, _ = choices(forms.studies(where), tmp_path)
    assert studies["first-study"].startswith("first-study · up to 30 runs · ")


def test_of_a_line_that_was_chosen_only_the_name_counts_on_the_server_too(where):
    """A schedule keeps the line of its day, other programs send the name, and a file may be called
    as a line is."""
    own(where, name="odd")
    from prefect.utilities.schema_tools import validation

    own(where, name="odd · name")
    files = forms.configs(where)
    lines = choices(files, where.home)[0]
    config = {"type": "string"} | chooser(lines)
    known = {"type": "object", "properties": {"config": config}, "required": ["config"]}
    for given in (
        *lines,
        *lines.values(),
        "own/odd · name · 3 min",
        "quickstart · about 9 min · an older question",
    ):
        validation.validate({"config": given}, known, raise_on_error=True)
    for given in ("own/odd · name", "own/odd · name · 3 min", lines["own/odd · name"]):
        assert forms.sweep(where, given)[1][1] == str(where.own / "odd · name.yaml")
    assert forms.sweep(where, "quickstart · about 9 min")[0] == "quickstart"
    for given in ("quickstrat", "quickstart2 · about 9 min", "quickstart ", "../x", ""):
        with pytest.raises(
            validation.ValidationError,
            match=r"'config'.* (is not one of|does not match) .*quickstart",
        ):
            validation.validate({"config": given}, known, raise_on_error=True)
        with pytest.raises(ConfigError, match="is not known"):
            forms.sweep(where, given)


STUDY = {
    "name": "mine",
    "base": "chain",
    "run": {"task": {"tuning_problems": 4}},
    "variants": ["grpo", "rpg-urkl"],
    "tune": {"space": {"algorithm.beta": {"log": [0.01, 1.0]}}, "trials": 2, "seeds": [100, 101]},
    "report": {"seeds": [0, 1, 2]},
}


def own_study(where, **changes):
    (where.own / "mine.yaml").write_text(yaml.safe_dump(STUDY | changes))


def test_a_study_is_named_in_a_form_and_is_no_sweep(where):
    own_study(where)
    assert {"first-study", "own/mine"} < set(forms.studies(where))
    assert "own/mine" not in forms.configs(where)
    for name in forms.studies(where):
        forms.study(where, name)
    name, arguments = forms.study(where, "own/mine", 2)
    path = str(where.own / "mine.yaml")
    assert (name, arguments) == ("mine", ["study", path, "--home", str(where.home), "--workers=2"])
    with pytest.raises(ConfigError, match=r"config: '\.\./x' is not known"):
        forms.study(where, "../x")
    (where.home / "limits.yaml").write_text("runs: 29\n")  # of 2 x (3 x 2 x 2 + 3) = 30
    with pytest.raises(ConfigError, match=r"tune, report: 30 runs; the server's limit .* is 29"):
        forms.study(where, "own/mine")


@pytest.mark.parametrize(
    "changes",
    [
        {"base": "/etc/x.yaml"},
        {"factors": {"model": [{"type": "pretrained", "path": "/etc"}]}},
        {"variants": {"one": {}, "two": {"model": {"type": "pretrained", "path": "/etc"}}}},
        {
            "tune": STUDY["tune"]
            | {
                "space": {
                    "model": {"choices": [{"type": "tiny"}, {"type": "pretrained", "path": "/etc"}]}
                }
            }
        },
        {"variants": {"one": {}, "two": {"reward": {"type": "python", "function": "os:system"}}}},
    ],
    ids=["base", "factors", "variants", "space", "code"],
)
def test_a_study_reaches_nothing_outside_either(where, changes):
    own_study(where, **changes)
    with pytest.raises(ConfigError, match=r"outside the folders|may only be named by a file in"):
        forms.study(where, "own/mine")


def test_nights_are_what_ships_and_ones_own_folders_of_sweeps(where, tmp_path):
    (where.own / "mine").mkdir()
    own(where, name="mine/one")
    (where.own / "mine" / "two.yaml").write_text(yaml.safe_dump(STUDY))
    (where.own / "runs").mkdir()
    (where.own / "runs" / "base.yaml").write_text("task: {type: chain}")
    assert list(forms.nights(where)) == ["nightly", "own/mine"]
    shipped = SHIPPED / "nightly"
    assert forms.nightly(where, "nightly") == (
        shipped,
        ["nightly", str(shipped), "--home", str(where.home)],
    )
    folder, arguments = forms.nightly(where, "own/mine", 2)
    assert folder == where.own / "mine"
    assert arguments[1:] == [str(folder), "--home", str(where.home), "--workers=2"]
    with pytest.raises(ConfigError, match=r"sweeps: '\.\./\.\./etc' is not known"):
        forms.nightly(where, "../../etc")


def test_a_night_reaches_nothing_outside_either(where, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "one.yaml").write_text(
        OWN.format(extra="seed: 0").replace(", seed: 0", "")
    )
    (where.own / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="outside the folders"):
        forms.nightly(where, "own/linked")
    (where.own / "mine").mkdir()
    own(where, "model: {type: pretrained, path: /etc}", "mine/two")
    with pytest.raises(ConfigError, match="outside the folders"):
        forms.nightly(where, "own/mine")


@pytest.mark.parametrize(
    ("edited_from", "reason"),
    [
        ("{model: {type: pretrained, path: /etc}}", "outside the folders"),
        ("{training.steps: 3000000}", "training.steps"),
    ],
)
def test_neither_does_the_earlier_version_of_a_file_that_a_night_edits(where, edited_from, reason):
    (where.own / "mine").mkdir()
    own(where, name="mine/three")
    forms.nightly(where, "own/mine")
    path = where.own / "mine" / "three.yaml"
    path.write_text(f"{path.read_text()}drill: {{edited_from: {edited_from}}}\n")

    with pytest.raises(ConfigError, match=reason):
        forms.nightly(where, "own/mine")


def test_a_link_or_an_include_does_not_lead_outside(where, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "run.yaml").write_text("task: {type: chain}\n")
    (where.own / "door").symlink_to(tmp_path / "secret")
    (where.own / "in.yaml").write_text("name: in\nbase: ../../secret/run.yaml\naxes: {seed: [0]}\n")
    (where.own / "linked.yaml").symlink_to(tmp_path / "secret" / "run.yaml")
    for config, extra in (
        ("own/in", ""),
        (own(where), f"model={{type: pretrained, path: {where.own}/door}}"),
    ):
        with pytest.raises(ConfigError, match="outside"):
            forms.sweep(where, config, overrides=extra)
    with pytest.raises(ConfigError, match="not known"):
        forms.sweep(where, "own/linked")  # a run file is not in the list, wherever it lies
    (where.own / "set.yaml").write_text("source: {path: /etc/passwd}\n")
    with pytest.raises(ConfigError, match="outside"):
        forms.sweep(
            where, "quickstart", overrides=f"task={{type: math, train: {where.own}/set.yaml}}"
        )


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"axes": {"algorithm": ["gropo"]}}, "did you mean 'grpo'"),
        ({"axes": {"algorithm": ["grpo], seed: [1"]}}, "grpo], seed"),
        ({"overrides": "training.stepz=3"}, "did you mean 'steps'"),
        ({"overrides": "no equals sign"}, "field=value"),
        ({"name": "../../escape"}, "name"),
        ({"name": "Upper Case"}, "name"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_be_accepted(where, values, word):
    with pytest.raises(ConfigError) as caught:
        forms.sweep(where, **{"config": "quickstart", **values})
    assert word in str(caught.value)


def test_the_limits_are_the_servers_and_what_ships_is_within_them(where):
    for name in forms.configs(where):
        forms.sweep(where, name)
    (where.home / "limits.yaml").write_text("addresses: ['ray://10.0.0.1:10001']\nsteps: 50\n")
    overrides = (
        "evaluation.place={type: ray, address: "
        "'ray://10.0.0.1:10001'}\ntraining.steps=10\nevaluation.every=10"
    )
    assert forms.sweep(where, "quickstart", overrides=overrides)
    with pytest.raises(ConfigError, match="steps 50"):
        forms.sweep(where, "quickstart", overrides="training.steps=60")
    (where.home / "limits.yaml").write_text("stepz: 50\n")
    with pytest.raises(ConfigError, match=r"limits\.yaml:1: stepz: unknown field"):
        forms.sweep(where, "quickstart")


def with_function(folder, name="mine"):
    (folder / "rewards.py").write_text("def score(responses): return [0.0] * len(responses)\n")
    text = OWN.format(extra="reward: {type: python, function: 'rewards:score'}")
    (folder / f"{name}.yaml").write_text(text)


def test_a_reward_function_comes_from_the_folder_of_who_serves_and_from_nowhere_else(
    where, tmp_path
):
    with_function(where.own)  # the data folder's own configurations, which others may write
    with pytest.raises(
        ConfigError,
        match=r"only be named by a file in \$RPG_CONFIGS, which is not set; or run it with",
    ):
        forms.sweep(where, "own/mine")
    served = tmp_path / "served"
    (served / "nights").mkdir(parents=True)
    with_function(served)
    with_function(served / "nights", "one")
    roots = forms.roots(where.home, {"RPG_CONFIGS": str(served)})
    assert forms.sweep(roots, "own/mine")[0] == "mine"
    assert forms.nightly(roots, "own/nights")[0] == served / "nights"
    (served / "base.yaml").write_text(f"base: {where.own}/mine.yaml\n")
    (where.own / "run.yaml").write_text("reward: {type: python, function: 'rewards:score'}\n")
    (served / "reaches.yaml").write_text(
        f"name: reaches\nbase: {where.own}/run.yaml\naxes: {{seed: [0]}}\n"
    )
    with pytest.raises(ConfigError, match=r"only be named by a file in \$RPG_CONFIGS \("):
        forms.sweep(roots, "own/reaches")
    assert forms.sweep(roots, "quickstart", overrides="reward={type: length}")[0] == "quickstart"


GPU = (
    "backend={type: verl, device: cuda, rollout: {type: vllm}}\nmodel={type: pretrained, path: "
    "Qwen/Qwen3-0.6B}\n"
)
VERL = f"{GPU}backend.verl="
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("reason", "override"),
    [(reason, override) for reason, overrides in REFUSED.items() for override in overrides],
)
def test_an_override_is_refused_with_the_reason(where, tmp_path, reason, override):
    flag = tmp_path / "flag"
    override = override.replace("{flag}", str(flag)).replace("{verl}", VERL.removesuffix("="))
    with pytest.raises(ConfigError, match=reason):
        forms.sweep(where, "quickstart", overrides=override)
    assert not flag.exists()


def test_verl_s_numbers_may_be_set_and_code_comes_from_whoever_serves(where, tmp_path):
    numbers = (
        "{actor_rollout_ref.rollout.max_num_seqs: 128, "
        "actor_rollout_ref.actor.use_torch_compile: true}"
    )
    task = "task={type: math, train: math-train}\n"
    assert forms.sweep(where, "quickstart", overrides=task + VERL + numbers)
    extra = """model: {type: pretrained, path: Qwen/Qwen3-0.6B},
      task: {type: math, train: math-train},
      backend: {type: verl, device: cuda, rollout: {type: vllm},
                verl: {actor_rollout_ref.model.external_lib: mine}}"""
    may_be_code = r"external_lib: 'mine' may be code, and from here it may only be named by"
    with pytest.raises(ConfigError, match=may_be_code):
        forms.sweep(where, own(where, extra))
    (tmp_path / "served").mkdir()
    roots = forms.roots(where.home, {"RPG_CONFIGS": str(tmp_path / "served")})
    assert forms.sweep(roots, own(roots, extra))


def numbers_of(model, at="", seen=()):
    for name, field in model.model_fields.items():
        dotted = f"{at}.{name}" if at else name
        inner = [each for each in models_in(field.annotation) if each not in seen]
        for each in inner:
            yield from numbers_of(each, dotted, (*seen, each))
        if not inner and re.search(r"\b(int|float)\b", repr(field.annotation)):
            yield dotted


def largest(field):
    """The limit of a number from a form."""
    [(_, limit, _)] = sizes(RunSpec, field, 1)
    return limit.most


def test_every_number_beyond_its_limit_is_refused_at_once(where):
    """In every section, whatever its kind; before anything is expanded."""
    slowest = 0.0
    for field in sorted({*numbers_of(RunSpec)}):
        began = time.process_time()
        value = largest(field) + 1
        with pytest.raises(ConfigError, match=re.escape(field)):
            forms.sweep(where, "quickstart", overrides=f"{field}={value!r}")
        slowest = max(slowest, time.process_time() - began)
    assert slowest < 1.0


def test_every_number_of_verl_beyond_its_limit_is_refused_at_once(where):
    slowest = 0.0
    keys = [key for key in verl_keys._schema() if verl_keys.capability(key, 1) is NUMBER]
    assert len(keys) > 250
    for key in keys:
        began = time.process_time()
        value = f"{{{key}: {verl_keys.size(key).most + 1!r}}}"
        with pytest.raises(ConfigError, match=re.escape(key)):
            forms.sweep(where, "quickstart", overrides=f"{VERL}{value}")
        slowest = max(slowest, time.process_time() - began)
    assert slowest < 1.0


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        (forms.axes_of((), range(2_000)), "14,000 runs; the server's limit"),
        (forms.axes_of((), range(100_000)), "700,000 runs; the server's limit"),
        (forms.axes_of((), [3] * 100_000), "a value is given twice"),
        (forms.axes_of((), [0, 1, 2], 1_000), "7,000 runs; the server's limit"),
    ],
)
def test_too_many_runs_are_refused_before_they_are_made_in_a_short_message(where, axes, reason):
    began = time.process_time()
    with pytest.raises(ConfigError, match=reason) as refused:
        forms.sweep(where, "quickstart", axes=axes)
    assert time.process_time() - began < 5.0
    assert len(str(refused.value)) < 10_000


def test_a_file_in_the_data_folder_is_held_to_the_limits_too(where):
    extra = "task: {type: chain, train_problems: 900000000}"
    with pytest.raises(ConfigError, match=r"task\.train_problems: 900,000,000; the server's limit"):
        forms.sweep(where, own(where, extra))
    (where.own / "many.yaml").write_text(
        "name: many\nbase: chain\naxes: {training.epochs: [1, 5000000]}\n"
    )
    with pytest.raises(ConfigError, match=r"training\.epochs: 5,000,000; the server's limit"):
        forms.sweep(where, "own/many")
    seeds = ", ".join(map(str, range(2_000)))
    (where.own / "many.yaml").write_text(f"name: many\nbase: chain\naxes: {{seed: [{seeds}]}}\n")
    line = described(where.own / "many.yaml", Measured({}), Layout.at(where.home))[-1]
    assert line == "2,000 runs"
