"""Problems that leave for good once they are solved (rollout.drop_solved)."""

import itertools
import json
from collections import Counter

import pytest

from rpg.backends.early_end import End, end_of
from rpg.backends.local import training_loop
from rpg.backends.prompts import UnsolvedOrder
from rpg.config.training import Until
from rpg.errors import UserError
from tests.tiny import make_run, make_spec, make_trainer, numbers, whole_and_resumed

PER_STEP = 7


def drawn(order, steps, solves):
    """What each step draws; `solves`: a problem and a step -> the share of right responses."""
    lists = []
    for step in steps:
        numbers = order.first(step, PER_STEP)
        order.observe(numbers, [solves(number, step) for number in numbers])
        lists.append(numbers)
    return lists


def test_a_solved_problem_is_not_in_the_next_pass_and_all_others_are_once():
    """Of 30 problems every third is solved, at a rate of just 0.9; the others nearly are."""
    solved = set(range(0, 30, 3))
    others = sorted(set(range(30)) - solved)
    order = UnsolvedOrder(30, 0, solved_at=0.9)

    steps = drawn(order, range(1, 16), lambda number, _: 0.9 if number in solved else 0.875)

    seen = list(itertools.chain.from_iterable(steps))
    first_pass = seen[:30]
    second_pass = seen[30:50]
    third_pass = seen[50:70]
    assert sorted(first_pass) == list(range(30)), "the first pass has all"
    assert sorted(second_pass) == others
    assert sorted(third_pass) == others
    assert second_pass != third_pass, "each pass in a new order"
    assert order.metrics() == {"prompts_left": 20}


def test_a_problem_that_was_solved_once_does_not_come_back():
    order = UnsolvedOrder(14, 3, solved_at=0.5)
    drawn(order, [1, 2], lambda number, _: float(number < 4))
    later = drawn(order, range(3, 30), lambda *_: 0.0)
    assert {number for numbers in later for number in numbers} == set(range(4, 14))


def test_refills_are_problems_that_are_not_solved():
    order = UnsolvedOrder(40, 1, solved_at=1.0)
    order.observe(range(30), [1.0] * 30)
    assert sorted(order.refill(5, 1, 10, used={30, 31})) == list(range(32, 40))
    assert len(order.refill(5, 1, 3, used=set())) == 3


@pytest.mark.parametrize("step", range(1, 12))
def test_restored_it_goes_on_as_if_nothing_had_happened(step):
    def solves(number, step):
        return float((number * step) % 5 == 0)

    whole = UnsolvedOrder(24, 7, solved_at=1.0)
    drawn(whole, range(1, step), solves)
    state = json.loads(json.dumps(whole.state()))
    restored = UnsolvedOrder(24, 7, solved_at=1.0)
    restored.restore(state)
    assert drawn(restored, range(step, 14), solves) == drawn(whole, range(step, 14), solves)


def test_without_a_problem_left_it_says_so():
    order = UnsolvedOrder(3, 0, solved_at=0.9)
    order.observe(range(3), [1.0] * 3)
    with pytest.raises(UserError, match=r"rollout\.drop_solved 0\.9: all 3 problems are solved"):
        drawn(order, [1, 2], lambda *_: 1.0)


def test_a_training_ends_after_the_step_that_solved_the_last_problem():
    rows = [{"step": 1, "prompts_left": 2}, {"step": 2, "prompts_left": 0}]
    assert end_of(Until(), rows) == End(2, "solved", 0)
    assert end_of(Until(), rows[:1]) is None


SOLVING = {"drop_solved": 0.125, "group_size": 8}


def spec_of(steps, problems=20, **changes):
    task = {"train_problems": problems}
    return make_spec(**{"task": task, "rollout": SOLVING, "training": {"steps": steps}} | changes)


def test_the_pass_rate_is_that_of_the_groups_responses(home):
    spec = spec_of(3, 16)
    trainer = make_trainer(spec, home)
    rates = {}
    for step in (1, 2):  # one pass
        first = trainer.roller.roll(trainer.policy, step).first
        right = first.correct.view(-1, 8).float().mean(-1).tolist()
        rates |= dict(zip(map(tuple, first.samples.batch.prompts), right, strict=True))
    assert len(rates) == 16
    gone = {prompt for prompt, rate in rates.items() if rate >= 0.125}
    assert 0 < len(gone) < 16, "some, not all"
    assert trainer.roller.order.metrics() == {"prompts_left": 16 - len(gone)}
    third = trainer.roller.roll(trainer.policy, 3).first.samples.batch.prompts
    assert not gone.intersection(map(tuple, third))


def test_refills_of_dynamic_sampling_count_too(home):
    spec = spec_of(1, 200, algorithm={"name": "grpo", "dynamic_sampling": True})
    trainer = make_trainer(spec, home)
    observed = Counter()
    observe = trainer.roller.order.observe

    def counted(numbers, rates):
        observed.update(numbers)
        observe(numbers, rates)

    trainer.roller.order.observe = counted
    rollout = trainer.roller.roll(trainer.policy, 1)
    assert rollout.groups_sampled > 8
    assert observed.total() == rollout.groups_sampled


def test_killed_and_resumed_it_draws_the_same_prompts(home):
    whole_and_resumed(home, "solving", spec_of(6), 2, 4)


def test_a_run_that_has_solved_all_ends_there(home):
    folder = make_run(home, "solved", spec_of(30, 8))
    said = []
    training_loop.train(folder, home, said.append)
    left = [row["prompts_left"] for row in numbers(folder)]
    assert folder.read_manifest()["ended"] == {"step": len(left), "reason": "solved", "value": 0}
    assert left[-1] == 0 < left[0], "fewer at every pass, and then none"
    assert "all prompts are solved (rollout.drop_solved)" in said[-1]
