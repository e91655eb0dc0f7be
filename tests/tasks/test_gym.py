"""Reasoning Gym: the same problems from the same settings, held out and apart, and mistakes that
say what is accepted."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from rpg.config.load import resolve
from rpg.config.task import GymTask
from rpg.tasks import DataError, demonstrations_of, gym_problems, load_problems
from rpg.tasks.preparation import data_digest

MIXED = {
    "type": "reasoning_gym",
    "datasets": [
        {"name": "isomorphic_strings", "weight": 3},  # its problems depend on Python's hash seed
        {"name": "chain_sum", "levels": [0, 1], "config": {"min_terms": 2}},
        {"name": "graph_color"},  # has no answer of its own
    ],
    "train_problems": 50,
    "benchmark_problems": 6,
}


@pytest.fixture(scope="module")
def splits():
    return load_problems(GymTask.model_validate(MIXED))


def texts(splits):
    return [[p.text for p in problems] for problems in (splits.train, *splits.benchmarks.values())]


def test_weights_are_shares_of_the_training_problems_and_levels_share_evenly(splits):
    groups = [p.group for p in splits.train]
    counts = {name: groups.count(name) for name in dict.fromkeys(groups)}
    assert counts == {
        "isomorphic_strings": 30,
        "chain_sum-level-0": 5,
        "chain_sum-level-1": 5,
        "graph_color": 10,
    }
    assert {name: len(problems) for name, problems in splits.benchmarks.items()} == dict.fromkeys(
        counts, 6
    )
    assert GymTask.model_validate(MIXED).benchmark_names() == tuple(splits.benchmarks)


def test_no_problem_stands_twice_across_splits_and_levels_and_few_different_ones_are_said():
    small = {
        "name": "chain_sum",
        "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    }
    overlapping = GymTask.model_validate(
        {
            **MIXED,
            "datasets": [{**small, "levels": [0, 1]}],
            "train_problems": 40,
            "benchmark_problems": 30,
        }
    )
    split = [[row["text"] for row in rows] for rows in gym_problems.generated(overlapping).values()]
    assert sum(map(len, split)) == len({text for part in split for text in part}) == 100
    with pytest.raises(
        DataError, match=r"task.datasets.0: chain_sum with these settings gave \d+ new"
    ):
        load_problems(overlapping.model_copy(update={"train_problems": 400}))


def test_the_same_settings_give_the_same_problems_whatever_pythons_hash_seed(splits):
    code = (
        "import sys, json; from rpg.config.task import GymTask; from rpg.tasks import "
        "load_problems\n"
        "s = load_problems(GymTask.model_validate(json.load(sys.stdin)))\n"
        "print(json.dumps([[p.text for p in part] for part in (s.train, *s.benchmarks.values())]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    again = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(MIXED),
        capture_output=True,
        text=True,
        env=environment,
    )
    assert json.loads(again.stdout) == texts(splits), again.stderr
    other = load_problems(GymTask.model_validate({**MIXED, "data_seed": 1}))
    assert not {t for part in texts(other) for t in part} & set(texts(splits)[0][:30])


def test_the_identity_changes_with_the_package_and_the_settings_and_with_nothing_else(monkeypatch):
    def digest(**changes):
        return data_digest(
            resolve({"task": {**MIXED, **changes}, "seed": changes.pop("seed", 0)}, "x")
        )

    first = digest()
    assert first == digest() == data_digest(resolve({"task": MIXED, "seed": 3}, "x"))
    sums = {"name": "chain_sum"}
    others = digest(datasets=[sums]), digest(datasets=[{**sums, "weight": 2}]), digest(data_seed=1)
    assert len({first, *others}) == 4
    assert version("reasoning-gym") == "0.1.25", (
        "the release that pyproject.toml and the documentation name"
    )
    monkeypatch.setattr(gym_problems, "version", lambda name: "0.1.26")
    assert digest() != first


def test_what_a_problem_needs_to_be_made_again_stands_in_its_columns(splits):
    for problem in [p for p in splits.train if p.group != "isomorphic_strings"]:
        columns = problem.columns
        dataset = pytest.importorskip("reasoning_gym").create_dataset(
            columns["dataset"], **columns["config"]
        )
        made = dataset[columns["index"]]
        assert made["question"] == problem.text
        assert str(made["answer"] or "") == problem.answer
        asked = 'The last line of your response should be "Answer:" and the answer.'
        assert problem.prompt == f"{problem.text}\n{asked}"


def test_demonstrations_leave_out_problems_without_an_answer_and_show_steps_where_there_are_any():
    task = GymTask.model_validate(
        {**MIXED, "datasets": [{"name": "gsm_symbolic"}, {"name": "graph_color"}]}
    )
    splits = load_problems(task)
    shown = {p.group: p.demonstration for p in demonstrations_of(task, splits).held_out}
    assert set(shown) == {"gsm_symbolic"}
    *steps, last = shown["gsm_symbolic"].split("\n")
    assert steps
    assert last.startswith("Answer: ")
    assert "####" not in shown["gsm_symbolic"]


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (
            {"name": "chain_sums"},
            r"task.datasets.0.name: 'chain_sums' is not .*; did you mean 'chain_sum'\? "
            r"Accepted: ab, ",
        ),
        ({"name": "composite"}, r"task.datasets.0.name: 'composite' is not a data set"),
        (
            {"name": "chain_sum", "config": {"min_term": 2}},
            r"config.min_term: .*; did you mean 'min_terms'\? Accepted: ",
        ),
        ({"name": "chain_sum", "config": {"seed": 2}}, r"config.seed: not a setting of chain_sum"),
        (
            {"name": "chain_sum", "config": {"min_terms": 9}},
            r"chain_sum refuses these settings: max_terms must be >= min",
        ),
        ({"name": "chain_sum", "levels": [99]}, r"chain_sum has no level 99. Accepted: 0 to 10"),
        (
            {"name": "gsm_symbolic", "levels": [0]},
            r"task.datasets.0.levels: gsm_symbolic has no levels",
        ),
    ],
)
def test_a_mistake_names_the_field_and_what_is_accepted(dataset, words):
    with pytest.raises(DataError, match=words):
        gym_problems.generated(GymTask.model_validate({**MIXED, "datasets": [dataset]}))


@pytest.mark.system
def test_the_second_level_of_every_curriculum_makes_problems():
    """Of those that take less than a second. The package itself refuses level 1 of modulo_grid."""
    slow = {"knight_swap", "sokoban", "rush_hour", "futoshiki", "arc_agi", "rearc", "modulo_grid"}
    names = sorted(pytest.importorskip("reasoning_gym").factory.CURRICULA.keys() - slow)
    datasets = [{"name": name, "levels": [1]} for name in names]
    sizes = {"train_problems": len(names), "benchmark_problems": 1}
    task = GymTask.model_validate({**MIXED, "datasets": datasets, **sizes})
    made = load_problems(task)
    assert len(made.benchmarks) == len(names) > 90
    assert all(map(len, (made.train, *made.benchmarks.values())))
