"""Problems that are tuned on are none of those reported or trained on."""

import itertools

import pytest

from rpg.config.task import ChainTask, OperatorsTask, WordsTask
from rpg.tasks import DataError, load_problems

TASKS = [
    ChainTask(train_problems=300, benchmark_problems=24, tuning_problems=10),
    OperatorsTask(type="operators", train_problems=300, benchmark_problems=24, tuning_problems=10),
    WordsTask(type="words", train_problems=300, benchmark_problems=24, tuning_problems=10),
]


@pytest.mark.component
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.type)
def test_tuning_problems_are_none_of_the_reported_or_trained_ones(task):
    splits = load_problems(task)
    assert set(splits.benchmarks) == {*task.benchmark_names(), *task.tuning_names()}
    texts = {"train": splits.train, **splits.benchmarks}
    texts = {name: {problem.text for problem in problems} for name, problems in texts.items()}
    for (one, mine), (other, theirs) in itertools.combinations(texts.items(), 2):
        assert not mine & theirs, f"{one} and {other} share problems"
    for name in task.benchmark_names():
        assert (len(texts[name]), len(texts[f"{name}-tuning"])) == (14, 10)


@pytest.mark.component
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.type)
def test_setting_tuning_problems_apart_changes_nothing_else(task):
    whole = load_problems(task.model_copy(update={"tuning_problems": 0}))
    parts = load_problems(task)
    assert parts.train == whole.train
    for name, problems in whole.benchmarks.items():
        kept = parts.benchmarks[name]
        apart = parts.benchmarks[f"{name}-tuning"]
        assert sorted([*kept, *apart], key=problems.index) == problems


def test_a_benchmark_is_not_used_up():
    words = r"task.tuning_problems: 24, but chain-easy has 24 problems; accepted: fewer"
    with pytest.raises(DataError, match=words):
        load_problems(TASKS[0].model_copy(update={"tuning_problems": 24}))
