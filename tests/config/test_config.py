"""Configuration: sparse in, resolved out; every mistake is one line that names file, field, value
and what is accepted."""

import itertools
import json
import runpy
from pathlib import Path

import pytest
import yaml

from rpg.catalogue.entry import merge
from rpg.config import shipped
from rpg.config.backend import LocalBackend
from rpg.config.errors import ConfigError
from rpg.config.load import assign, parse_assignments, parse_yaml, resolve
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_spec import load_sweep, single_run
from tests.config.pin_identities import shipped_sweeps
from tests.specs import load_run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def digest(spec):
    return "data"


def sweep_file(tmp_path, text):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "path",
    [p for p in shipped_sweeps() if p.parent.name in ("sweeps", "nightly", "papers")],
    ids=lambda p: p.stem,
)
def test_shipped_sweeps_have_a_question_a_baseline_and_paired_seeds(path):
    sweep = load_sweep(path, {}, digest)
    assert sweep.spec.name == path.stem
    assert sweep.spec.description
    folders = {run.folder for run in sweep.runs}
    assert len(folders) == len(sweep.runs), "each run has its own"
    seeds = {}
    for run in sweep.runs:
        seeds.setdefault(run.variant, []).append(run.spec.seed)
    assert sweep.baseline in seeds
    for variant, of_variant in seeds.items():
        assert of_variant == seeds[sweep.baseline], f"{variant}: paired with the baseline's"


@pytest.mark.component
def test_resolved_form_resolves_to_itself():
    for run in load_sweep(CONFIGS / "sweeps/stress.yaml", {}, digest).runs:
        dumped = run.spec.model_dump(mode="json")
        assert resolve(yaml.safe_load(yaml.safe_dump(dumped)), "again") == run.spec


MORE_OF_THE_BASELINE = """
name: t
axes: {algorithm: [grpo, dapo, cispo]}
seeds: {baseline: 5, others: 2}
baseline: grpo
"""


def seeds_by_algorithm(runs):
    found = {}
    for run in runs:
        found.setdefault(run.spec.algorithm.name, []).append(run.spec.seed)
    return found


def test_a_baseline_may_have_more_seeds_than_the_others(tmp_path):
    runs = load_sweep(sweep_file(tmp_path, MORE_OF_THE_BASELINE), {}, digest).runs
    expected = {"grpo": [0, 1, 2, 3, 4], "dapo": [0, 1], "cispo": [0, 1]}
    assert seeds_by_algorithm(runs) == expected


def test_runs_of_counted_seeds_are_those_of_a_list(tmp_path):
    counted = load_sweep(sweep_file(tmp_path, MORE_OF_THE_BASELINE), {}, digest).runs
    listed = MORE_OF_THE_BASELINE.replace("cispo]", "cispo], seed: [0, 1]")
    listed = listed.replace("seeds: {baseline: 5, others: 2}", "")
    same = load_sweep(sweep_file(tmp_path, listed), {}, digest).runs
    by_folder = {run.folder: run for run in counted}
    assert [by_folder[run.folder] for run in same] == list(same)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"seed": [7]}, {"grpo": [7], "dapo": [7], "cispo": [7]}),
        ({"seed": {"baseline": 3, "others": [2]}}, {"grpo": [0, 1, 2], "dapo": [2], "cispo": [2]}),
    ],
)
def test_seeds_of_the_command_line_replace_those_of_the_file(tmp_path, axes, expected):
    path = sweep_file(tmp_path, MORE_OF_THE_BASELINE)
    assert seeds_by_algorithm(load_sweep(path, {}, digest, axes=axes).runs) == expected


def test_an_axis_of_seeds_may_leave_more_to_the_baseline(tmp_path):
    text = MORE_OF_THE_BASELINE.replace("cispo]", "cispo], seed: [1, 3]")
    path = sweep_file(tmp_path, text.replace(", others: 2", ""))
    expected = {"grpo": [0, 1, 2, 3, 4], "dapo": [1, 3], "cispo": [1, 3]}
    assert seeds_by_algorithm(load_sweep(path, {}, digest).runs) == expected


def test_one_seed_of_the_command_line_is_that_of_all(tmp_path):
    path = sweep_file(tmp_path, MORE_OF_THE_BASELINE)
    expected = {"grpo": [4], "dapo": [4], "cispo": [4]}
    assert seeds_by_algorithm(load_sweep(path, {"seed": 4}, digest).runs) == expected


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("baseline: grpo", "", "there is no baseline"),
        ("baseline: 5", "baseline: 1", "lacks seed 1 of the others"),
        (", others: 2", "", "there is no axis seed"),
        ("cispo]", "cispo], seed: [0]", "keep one of the two"),
        ("others: 2", "others: 0", "seeds.others"),
    ],
)
def test_seeds_that_cannot_be_compared_are_refused(tmp_path, before, after, words):
    text = MORE_OF_THE_BASELINE.replace(before, after)
    assert text != MORE_OF_THE_BASELINE
    with pytest.raises(ConfigError, match=words):
        load_sweep(sweep_file(tmp_path, text), {}, digest)


def test_axes_multiply_zip_pairs_and_exclude_drops(tmp_path):
    path = sweep_file(
        tmp_path,
        """
name: t
axes:
  algorithm: [grpo, dapo]
  training.optimizer.learning_rate: [1e-4, 1e-3]
  training.steps: [2, 3]
  seed: [0, 1]
zip: [[training.optimizer.learning_rate, training.steps]]
exclude: [{algorithm: dapo, seed: 1}]
""",
    )
    runs = load_sweep(path, {}, digest).runs
    got = [
        (
            r.spec.algorithm.name,
            r.spec.training.optimizer.learning_rate,
            r.spec.training.steps,
            r.spec.seed,
        )
        for r in runs
    ]
    want = [
        (a, lr, n, s)
        for a, (lr, n), s in itertools.product(["grpo", "dapo"], [(1e-4, 2), (1e-3, 3)], [0, 1])
        if (a, s) != ("dapo", 1)
    ]
    assert got == want


def test_set_on_an_axis_replaces_it_and_whole_sections_come_before_their_fields(tmp_path):
    path = sweep_file(
        tmp_path,
        "name: t\naxes: {algorithm: [grpo, grpo-corrected], seed: [0, 1]}\nset: "
        "{algorithm.beta: 0.5}\n",
    )
    runs = load_sweep(path, {"seed": 7}, digest).runs
    assert [(r.spec.algorithm.name, r.spec.algorithm.beta, r.spec.seed) for r in runs] == [
        ("grpo", 0.5, 7),
        ("grpo-corrected", 0.5, 7),
    ]


def test_base_files_merge_and_cycles_are_found(tmp_path):
    (tmp_path / "a.yaml").write_text("base: b.yaml\ntraining: {steps: 7}\n")
    (tmp_path / "b.yaml").write_text("training: {steps: 5, epochs: 2}\n")
    run = load_run(tmp_path / "a.yaml")
    assert (run.training.steps, run.training.epochs) == (7, 2)
    (tmp_path / "b.yaml").write_text("base: a.yaml\n")
    with pytest.raises(ConfigError, match="include each other"):
        load_run(tmp_path / "a.yaml")


OPTIMIZER = {"betas": [0, 1], "schedule": "linear"}


@pytest.mark.parametrize("written", [{}, {"type": "adamw"}])
def test_another_type_replaces_the_whole_section_of_a_base(written):
    base = {"training": {"optimizer": {**OPTIMIZER, **written}}}
    other = {"training": {"optimizer": {"type": "schedule_free"}}}
    assert merge(base, other, RunSpec) == other


@pytest.mark.parametrize("written", [{}, {"type": "adamw"}])
def test_the_default_type_spelt_out_replaces_nothing(written):
    base = {"training": {"optimizer": {**OPTIMIZER, **written}}}
    unspelt = merge(base, {"training": {"optimizer": {"weight_decay": 0}}}, RunSpec)
    spelt = merge(base, {"training": {"optimizer": {"type": "adamw", "weight_decay": 0}}}, RunSpec)
    assert resolve(spelt, "x") == resolve(unspelt, "x")

    reward = merge({"reward": {"weight": 2.0}}, {"reward": {"type": "correctness"}}, RunSpec)
    assert reward["reward"] == {"weight": 2.0, "type": "correctness"}


@pytest.mark.parametrize(
    ("written", "left"),
    [({}, {"betas": [0, 1]}), ({"type": "adamw"}, {})],
    ids=["no type was written, so what both have stays", "another type was written"],
)
def test_assigning_a_type_drops_the_fields_of_another_one(written, left):
    run = {"training": {"optimizer": {**OPTIMIZER, **written}}}
    assign(run, "training.optimizer.type", "schedule_free", "x")
    assert run["training"]["optimizer"] == {"type": "schedule_free", **left}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("5", 5),
        ("1.5E+3", 1500.0),
        ("null", None),
        ("010", "010"),
        ("1:30", "1:30"),
    ],
)
def test_numbers_are_read_as_people_write_them(text, value):
    got = parse_yaml(text, "x")
    assert got == value
    assert type(got) is type(value)


BASELINES = [
    "grpo beta=0.0001",
    "grpo algorithm.beta=0.0001",
    "grpo beta=1e-4",
    "algorithm=grpo beta=1.0e-4",
    {"algorithm": "grpo", "algorithm.beta": 1e-4},
    {"algorithm": "grpo", "beta": 1e-4},
]


@pytest.mark.parametrize("baseline", BASELINES, ids=str)
def test_a_baseline_is_named_as_a_person_would_name_it(tmp_path, baseline):
    axes = "{algorithm: [grpo, rpg-urkl], algorithm.beta: [1.0e-4, 1.0e-2], seed: [0]}"
    path = sweep_file(tmp_path, f"name: t\naxes: {axes}\nbaseline: {json.dumps(baseline)}")
    assert load_sweep(path, {}, digest).baseline == "grpo beta=0.0001"


MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    "mistake", MISTAKES, ids=lambda mistake: mistake["file"].splitlines()[-1][:40]
)
def test_mistakes_are_explained(tmp_path, mistake):
    path = sweep_file(tmp_path, mistake["file"])
    with pytest.raises(ConfigError) as caught:
        load_sweep(path, {}, digest)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "Traceback" not in message
    for word in mistake["words"]:
        assert word in message, message


@pytest.mark.parametrize(
    "pairs",
    ["steps", "=3", "a..b=1", "training.steps=[1", "training.max_grad_norm=", "seed=0 seed=1"],
)
def test_bad_assignments_are_explained(pairs):
    with pytest.raises(ConfigError):
        single_run(CONFIGS / "runs/chain.yaml", parse_assignments(pairs.split()), digest)


def test_names_and_exclude_know_what_the_command_line_sets(tmp_path):
    axes = "{algorithm: [{name: grpo, beta: 0.3}, {name: rpg-urkl, beta: 0.2}], seed: [0, 1]}"
    path = sweep_file(
        tmp_path,
        f"name: t\naxes: {axes}\nexclude: [{{algorithm: {{name: grpo, beta: 0.3}}, seed: 1}}]",
    )
    [run] = load_sweep(path, {"algorithm.beta": 0.1, "seed": 1}, digest).runs
    assert (run.variant, run.spec.algorithm.beta) == ("rpg-urkl", 0.1)
    assert (
        len(load_sweep(path, {}, digest, axes={"seed": [2]}).runs) == 2
    )  # what the file leaves out need not be there
    with pytest.raises(ConfigError, match="--set seed: --axis seed has values"):
        load_sweep(path, {"seed": 1}, digest, axes={"seed": [0]})
    with pytest.raises(
        ConfigError, match=r"algorithm=.*, --set training.steps=true\]: training.steps: .*'True'"
    ):
        load_sweep(path, {"training.steps": True}, digest)


def test_a_single_run_is_named_after_its_file_and_no_sweep(tmp_path):
    sweep = single_run(CONFIGS / "runs/chain.yaml", {"seed": 3}, digest)
    assert sweep.spec.name == "chain"
    assert sweep.runs[0].spec.seed == 3
    with pytest.raises(ConfigError, match="rpg sweep"):
        single_run(sweep_file(tmp_path, "name: t\naxes: {seed: [0]}"), {}, digest)


@pytest.mark.component
def test_the_reference_page_is_the_models():
    page = runpy.run_path(str(CONFIGS.parent / ".ci/configuration_page.py"))["page"]
    written = (CONFIGS.parent / "docs/configuration.md").read_text()
    assert written == page(), "run: python .ci/configuration_page.py > docs/configuration.md"


LINES = """\
name: y
base: b.yaml
set:
  training.steps: 3
  rollout: {group_size: 1}
axes:
  algorithm:
    - grpo
    - name: rpg-urkl
      betta: 3
"""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "y.yaml:5 [algorithm=grpo]: rollout.group_size: "),
        (
            {"rollout.group_size": 2, "training.optimizer.learning_rate": 0.1},
            "y.yaml:10 [algorithm=",
        ),
        (
            {"rollout.group_size": 2, "algorithm": "grpo"},
            "b.yaml:4: training.optimizer.learning_rate: ",
        ),
        (
            {"rollout.group_size": 0},
            "y.yaml [algorithm=grpo, --set rollout.group_size=0]: rollout.group_size: ",
        ),
    ],
    ids=["set", "an axis", "base", "not of the command line"],
)
def test_a_mistake_is_named_with_the_line_that_makes_it(tmp_path, changes, said):
    base = "training:\n  mini_batch_prompts: 4\n  optimizer:\n    learning_rate: -1.0e-3\n"
    (tmp_path / "b.yaml").write_text(base)
    (tmp_path / "y.yaml").write_text(LINES)
    with pytest.raises(ConfigError) as error:
        load_sweep(tmp_path / "y.yaml", changes, lambda spec: "")
    assert said in str(error.value), error.value


def test_a_label_names_a_value_and_changes_no_run(tmp_path):
    text = "name: a\nbase: chain\naxes:\n  algorithm: [grpo, {name: grpo, clip: null LABEL}]\n"
    plain = tmp_path / "plain.yaml"
    labelled = tmp_path / "labelled.yaml"
    plain.write_text(text.replace(" LABEL", ""))
    labelled.write_text(text.replace(" LABEL", ', label: "GRPO, unclipped"'))
    sweeps = [load_sweep(path, {}, lambda _: "") for path in (plain, labelled)]
    assert [run.run_id for run in sweeps[0].runs] == [run.run_id for run in sweeps[1].runs]
    assert sweeps[1].labels == {"grpo(clip=none)": "GRPO, unclipped"}
    assert not sweeps[0].labels
    labelled.write_text(text.replace(" LABEL", ", label: 3"))
    with pytest.raises(ConfigError, match=r"axes.algorithm: label: 3 is not a text"):
        load_sweep(labelled, {}, lambda _: "")


def test_no_key_stands_twice_in_a_file_of_the_package():
    """Of two equal keys, a plain loader takes the second and says nothing."""

    def twice(node):
        keys = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        inner = (
            [value for _, value in node.value]
            if keys
            else node.value
            if node.id == "sequence"
            else []
        )
        return {key for key in keys if keys.count(key) > 1}.union(*map(twice, inner))

    assert twice(yaml.compose("a: [{b: 1, c: 2, b: 1}]")) == {"b"}
    files = [path for room in ("rpg", "flows") for path in (CONFIGS.parent / room).rglob("*.yaml")]
    found = {path.name: twice(yaml.compose(path.read_text("utf-8"))) for path in files}
    assert len(found) > 30
    assert {name: keys for name, keys in found.items() if keys} == {}


def test_only_a_cpu_is_promised_the_same_bits_with_less_memory():
    cpu, gpu = (LocalBackend(device=device).less_memory("update") for device in ("cpu", "cuda"))
    assert "with bit-identical results" in cpu
    assert "with bit-identical results" not in gpu
    assert "resumes from the last checkpoint" in gpu


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": {"type": "verl"}}, "model.lora.base nf4: not supported by backend verl; acc"),
        ({"rollout": {"sampler": {"dtype": "int8"}}}, "rollout.sampler.dtype int8: .*accepted: "),
    ],
)
def test_a_base_of_4_bits_is_refused_where_it_cannot_be(changes, message):
    run = {"model": {"lora": {"base": "nf4"}}}
    assert resolve(run, "x").model.lora.base == "nf4"
    with pytest.raises(ConfigError, match=message):
        resolve(run | changes, "x")


@pytest.mark.parametrize("name", ["table3", "paper/table3", "configs/paper/table3.yaml"])
def test_the_tables_of_the_paper_keep_their_names(name):
    assert shipped.lookup(name) == CONFIGS / "papers/rpg/table3.yaml"
    assert shipped.lookup("paper/../sweeps/quickstart") is None
    assert shipped.lookup("papers/gspo") == CONFIGS / "papers/gspo.yaml"


@pytest.mark.parametrize("name", shipped.names())
def test_every_shipped_file_is_found_by_its_name(name):
    assert shipped.lookup(name) == shipped.names()[name]
