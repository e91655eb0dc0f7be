"""The chain task: distinct problems, nothing leaks, the answers are right."""

import random
import re

import pytest

from rpg.config.model import WarmStart
from rpg.config.task import ChainTask
from rpg.tasks import DataError, demonstrations_of, load_problems, verifier_of
from rpg.tasks.chain import CHARACTERS, Chain, distinct
from rpg.tasks.rewards.graders import grade


def solve(prompt):
    """The answer of a prompt, by other means than the generator's: left to right on the printed
    text."""
    start, *rest = re.findall(r"[a-m]([-+*]?)(\d)", prompt.removesuffix("="))
    value = int(start[1])
    for op, digit in rest:
        value = eval(f"({value} {op} {digit}) % 10")
    return str(value)


def test_problems_are_distinct_held_out_and_right():
    task = ChainTask(tiers={"easy": 2, "medium": 4}, train_problems=3001, benchmark_problems=50)
    splits = load_problems(task)
    train = {p.prompt for p in splits.train}
    assert len(splits.train) == len(train) == 3001
    assert [len(problems) for problems in splits.benchmarks.values()] == [50, 50]
    assert list(splits.benchmarks) == ["chain-easy", "chain-medium"]
    held_out = [p.prompt for problems in splits.benchmarks.values() for p in problems]
    assert len(set(held_out)) == 100
    assert not train & set(held_out)
    everything = [
        *splits.train,
        *splits.benchmarks["chain-easy"],
        *splits.benchmarks["chain-medium"],
    ]
    assert len({p.id for p in everything}) == len(everything)
    for problem in everything[::37]:
        assert problem.answer == solve(problem.prompt)
        assert set(problem.prompt + problem.demonstration) <= set(CHARACTERS)
        assert problem.demonstration.count("#") == 1
    assert [p.group for p in splits.train].count("easy") == 1501
    assert load_problems(task) == splits
    assert load_problems(task.model_copy(update={"data_seed": 1})).train != splits.train


def test_tiers_of_equal_length_share_no_problem_and_every_number_is_another():
    task = ChainTask(tiers={"a": 1, "b": 1}, train_problems=1000, benchmark_problems=20)
    splits = load_problems(task)
    problems = [*splits.train, *splits.benchmarks["chain-a"], *splits.benchmarks["chain-b"]]
    prompts = [p.prompt for p in problems]
    assert len(prompts) == len(set(prompts)) == 270  # all there are
    groups = [p.group for p in splits.train]
    assert groups.count("a") == groups.count("b") == 115


@pytest.mark.parametrize(
    ("tiers", "held_out"), [({"one": 1}, 270), ({"a": 1, "b": 1}, 135), ({"one": 1}, 9999)]
)
def test_too_few_problems_is_an_error_that_names_the_tier(tiers, held_out):
    few = r"benchmark_problems: \d+ are too many for tier '(one|a)'.* 270 distinct"
    with pytest.raises(DataError, match=few):
        load_problems(ChainTask(tiers=tiers, benchmark_problems=held_out))


def test_scratchpads_are_graded_right_and_corrupted_ones_stay_consistent():
    rng = random.Random(0)
    verifier = verifier_of(ChainTask())
    wrong = 0
    for _ in range(300):
        chain = Chain.from_index(4, rng.randrange(distinct(4)))
        assert grade(verifier, chain.scratchpad(), chain.answer).correct
        text = chain.scratchpad(0.3, rng)
        assert text[-1] == text[-3]  # the answer repeats the last running value
        wrong += not grade(verifier, text, chain.answer).correct
    assert (
        100 < wrong < 280
    )  # 1 - 0.7**4 = 0.76 would be wrong if an error could not repair another


def test_demonstrations_hold_out_benchmarks_and_their_own_test():
    task = ChainTask(tiers={"easy": 2}, train_problems=300, benchmark_problems=64)
    splits = load_problems(task)
    demos = demonstrations_of(task, splits)
    excluded = {p.prompt for p in [*demos.held_out, *splits.benchmarks["chain-easy"]]}
    assert len(excluded) == 128
    rng = random.Random(1)
    shown = [demos.ability(rng) for _ in range(2000)]
    shown += [demos.behaviour(rng, WarmStart()) for _ in range(2000)]
    assert not excluded & {prompt for prompt, _ in shown}
    verifier = verifier_of(task)
    assert all(
        grade(verifier, response, solve(prompt)).correct for prompt, response in shown[:2000]
    )
    bare = [response.startswith("#") for _, response in shown[2000:]]
    assert 0.76 < sum(bare) / 2000 < 0.84
