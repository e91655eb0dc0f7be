"""Each rule speaks where it should, with its evidence and what to do, and is silent about healthy
runs."""

import math

import pytest

from benchmarks.synthetic import Shape, write_sweep
from flows.monitor import Watch
from rpg.config.task import RewardVerifier
from rpg.metrics import METRICS
from rpg.report import diagnostics
from rpg.report.diagnostics import Mean
from rpg.report.summary import summarise
from rpg.report.tables import markdown
from rpg.store.current import current_runs
from rpg.store.database import build, connect
from rpg.store.samples import read_eval, write_eval
from rpg.tasks.rewards.graders import rules_name
from tests.report.sweeps import finished_again, rewritten

HEALTHY = {
    "reward": -0.2,
    "accuracy": 0.4,
    "truncation_rate": 0.02,
    "groups_kept": 12,
    "kl_policy_to_old": 0.002,
    "kl_policy_to_ref": 0.01,
    "ratio_max": 3.0,
    "entropy": 0.6,
    "response_length": 40.0,
    "loss": 0.01,
    "grad_norm": 0.7,
}


def steps(count=20, **changes):
    """Steps of a healthy run, a little different each, with some values changed from the tenth
    on."""
    rows = []
    for step in range(1, count + 1):
        row = {"step": step, **HEALTHY, "reward": -0.2 + 0.01 * step}
        rows.append(
            row | {k: v(step) if callable(v) else v for k, v in changes.items() if step > 9}
        )
    return rows


def test_a_healthy_run_says_nothing():
    assert diagnostics.of_training(steps()) == [] and diagnostics.of_training([]) == []
    assert diagnostics.of_training(steps(5, reward=-1.0)) == [], "too few steps to say anything"


def test_a_gap_between_roundings_counts_beside_what_an_update_moves():
    moves = {"kl_old_to_new": 4e-4, "kl_sampler_to_policy_error": 1e-6}
    small, large = (
        diagnostics.of_training(steps(**moves, kl_sampler_to_policy=kl)) for kl in (5e-5, 2e-4)
    )
    assert small == []
    assert [finding.rule for finding in large] == ["apart: kl_sampler_to_policy"]
    assert "0.0002 nats per token" in large[0].evidence and "0.0004" in large[0].evidence
    unsure = {**moves, "kl_sampler_to_policy": 2e-4, "kl_sampler_to_policy_error": 1e-3}
    assert diagnostics.of_training(steps(**unsure)) == []
    late = {**moves, "kl_sampler_to_policy": 2e-4, "sampler_age": 2}
    assert diagnostics.of_training(steps(**late)) == [], "a stale sampler was asked for"


def test_a_kl_below_its_rounding_is_said_to_be_below_it():
    known = {"kl_rounding": 7e-4, "kl_policy_to_ref": 3e-4}
    (finding,) = diagnostics.of_training(steps(**known))
    assert finding.rule == "below rounding: kl_policy_to_ref"
    assert "is 0.0003 nats per token, below the 0.0007" in finding.evidence
    assert diagnostics.of_training(steps(**{**known, "kl_policy_to_ref": 0.02})) == []
    assert diagnostics.of_training(steps(**{**known, "kl_policy_to_ref": 0.0})) == []


CASES = [
    (
        {"reward": -1.0, "accuracy": 0.0},
        "the reward was −1.000 in each of the last 8 steps",
        "no response was ever right",
    ),
    (
        {"truncation_rate": 1.0},
        "every response of the last 8 steps was cut off",
        "raise rollout.max_response_tokens",
    ),
    (
        {"groups_kept": 0},
        "no group was left to learn from in the last 8 steps",
        "rollout.group_size",
    ),
    (
        {"kl_policy_to_old": lambda s: 0.9 if s % 2 else 0},
        "above 0.5 nats per token in 4 of the last 8",
        "learning rate",
    ),
    ({"kl_policy_to_ref": 20.0}, "KL(policy || the reference) was above 10 nats", "a larger beta"),
    (
        {"ratio_max": 5e4},
        "an importance ratio was above 1000 in 8 of the last 8 steps, 5e+04",
        "clipping",
    ),
    ({"entropy": 0.01}, "the entropy fell from 0.6 to 0.01 nats, 1.7 %", "stopped trying"),
    (
        {"loss": math.nan},
        "loss is not a finite number at step 13",
        "the previous checkpoint is intact",
    ),
]


@pytest.mark.parametrize(
    ("changes", "evidence", "advice"), CASES, ids=[next(iter(case[0])) for case in CASES]
)
def test_each_rule_says_what_it_saw_and_what_to_do(changes, evidence, advice):
    [finding] = diagnostics.of_training(steps(**changes))
    assert evidence in finding.evidence and advice in finding.advice
    assert str(finding) == f"{finding.evidence}: {finding.advice}"


LOOKALIKES = {
    "it has learnt all": {"reward": 1.0, "accuracy": 1.0},
    "it has learnt all, and groups without a signal are left out": {
        "groups_kept": 0,
        "accuracy": 0.97,
    },
    "answers of a fixed length, and right": {"truncation_rate": 1.0, "accuracy": 0.95},
    "two responses a step, one of them right": {"reward": 0.0, "accuracy": 0.5},
    "sure because it is right": {"entropy": 0.01, "accuracy": 0.97},
    "sure of most tokens of a long response": {
        "entropy": 0.01,
        "response_length": 900.0,
        "accuracy": 0.5,
    },
    "a log without accuracies whose reward rose": {"entropy": 0.01, "accuracy": None},
    "one wild step": {"kl_policy_to_old": lambda step: 0.9 if step == 15 else 0.0},
    "two wild steps": {"ratio_max": lambda step: 1e9 if step in (14, 15) else 2.0},
    "a step without updates": {"loss": lambda step: None if step == 15 else 0.01},
}


@pytest.mark.parametrize("changes", LOOKALIKES.values(), ids=LOOKALIKES)
def test_a_healthy_run_that_looks_ill_at_first_sight_says_nothing(changes):
    assert diagnostics.of_training(steps(**changes)) == []


ALL_COLUMNS = {name: 1.0 for names in diagnostics.NEEDS.values() for name in names}


def test_every_metric_that_a_rule_needs_is_declared_or_of_every_log():
    assert set(ALL_COLUMNS) <= set(METRICS)


def test_a_log_with_every_column_is_measured():
    rows = [{"step": step, **ALL_COLUMNS} for step in range(1, 20)]
    assert diagnostics.not_measured(rows, with_samples=True) == []
    assert diagnostics.not_measured([], with_samples=False) == []


@pytest.mark.parametrize(
    ("rule", "name"), [(r, n) for r, names in diagnostics.NEEDS.items() for n in names]
)
def test_a_rule_without_its_column_says_so(rule, name):
    row = {key: value for key, value in ALL_COLUMNS.items() if key != name}
    [finding] = diagnostics.not_measured([{"step": 1, **row, name: None}], with_samples=True)
    assert finding.evidence.startswith("not measured: ")
    assert f"{rule} needs column {name}" in finding.evidence


@pytest.mark.parametrize("name", sorted(HEALTHY.keys() & ALL_COLUMNS.keys()))
def test_a_rule_says_nothing_without_a_column_that_it_is_said_to_need(name):
    """The table of needs is that of the rules: what is ill in one column is not seen without it."""
    ill = {
        "loss": math.nan,
        "grad_norm": math.nan,
        "reward": math.nan,
        "truncation_rate": 1.0,
        "groups_kept": 0,
        "kl_policy_to_old": 2.0,
        "kl_policy_to_ref": 20.0,
        "ratio_max": 5e4,
        "entropy": 0.01,
    }
    rules = {rule for rule, names in diagnostics.NEEDS.items() if name in names}
    found = {finding.rule for finding in diagnostics.of_training(steps(**{name: ill[name]}))}
    assert found and found <= rules
    rows = [{key: row[key] for key in row if key != name} for row in steps(**{name: ill[name]})]
    assert diagnostics.of_training(rows) == []


def test_a_collapse_on_the_way_to_half_the_problems_is_one():
    [finding] = diagnostics.of_training(steps(entropy=0.01, accuracy=0.5))
    assert finding.rule == "entropy collapsed"
    falling = steps(entropy=0.01, accuracy=None, reward=lambda step: -0.3 - 0.01 * step)
    assert [finding.rule for finding in diagnostics.of_training(falling)] == ["entropy collapsed"]


def test_problems_that_teach_nothing_from_the_start_on_are_too_easy():
    [finding] = diagnostics.of_training([row | {"reward": 1.0, "accuracy": 1.0} for row in steps()])
    assert (
        "+1.000 in each of the last 8" in finding.evidence
        and "too easy to learn from" in finding.advice
    )
    # A reward that ignores the answers is constant, too.
    [finding] = diagnostics.of_training(steps(reward=0.0, accuracy=lambda step: 0.3 + 0.01 * step))
    assert finding.rule == "reward constant"


def test_answers_that_are_not_found():
    [finding] = diagnostics.of_answers("aime24", 40, 0.97, "1", 0.02, 0.01)
    assert "no answer is found in 97 % of the responses to aime24 at step 40" in finding.evidence
    assert "template" in finding.advice and not [
        *diagnostics.of_answers("aime24", 40, 0.5, "1", 0.1, 0.5)
    ]
    assert not [*diagnostics.of_answers("yes-or-no", 40, 0.0, "yes", 0.96, 0.95)], "the golds are"


@pytest.fixture
def ill(tmp_path):
    """A sweep of two variants of which one teaches nothing."""
    shape = Shape(
        steps=12, eval_every=6, problems=8, samples=2, benchmarks=("easy", "hard"), metrics=12
    )
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), (0, 1), shape)
    for seed in (0, 1):
        rewritten(
            layout.run("demo", f"dapo-seed{seed}"), lambda row: {"reward": -1.0, "accuracy": 0.0}
        )
    return layout


def test_findings_are_in_status_and_in_the_report(ill):
    views = {view.name: view for view in Watch(current_runs(ill, "demo")).views()}
    assert "the reward was −1.000 in each of the last 8 steps" in views["dapo-seed0"].health[0]
    assert views["grpo-seed0"].health == ()
    build(ill)
    with connect(ill) as db:
        found = summarise(db, "demo")
    [line] = [line for line in found.health if "reward was" in line]
    assert line.startswith("DAPO (2 of 2 runs): the reward was −1.000") and "rpg doctor" in line
    assert "reward was" in markdown(found)


@pytest.mark.parametrize(
    ("answer", "words"), [(None, "no answer is found in 100 %"), ("1", "100 % of the responses to")]
)
def test_silent_responses_and_one_answer_to_everything_are_in_the_report(ill, answer, words):
    run = ill.run("demo", "grpo-seed0")
    wrong = {"extracted": answer, "correct": False}
    for rules, shown in ((None, 2), (rules_name(RewardVerifier(type="reward", at_least=0.5)), 0)):
        for name in ("easy", "hard"):
            samples = [row | wrong for row in read_eval(run, name, 12).to_pylist()]
            write_eval(run, name, 12, samples, rules)
        finished_again(run)
        build(ill)
        with connect(ill) as db:
            found = summarise(db, "demo").health
        assert sum(f"GRPO (1 of 2 runs): {words}" in finding for finding in found) == shown


def test_answers_that_could_not_be_read():
    forms = {
        f"not read: {word}": count for word, count in zip("abcdefghijkl", range(1, 13), strict=True)
    }
    [finding] = diagnostics.of_unread("aime24", 40, 0.03, forms, (0.5, 0.52))
    assert "3 % of the answers to aime24 at step 40 could not be read" in str(finding)
    assert "0.520 instead of 0.500" in str(finding)
    assert (
        finding.advice.startswith("not read: l (12); not read: k (11)")
        and finding.advice.count(";") == 9
    )
    assert not [*diagnostics.of_unread("aime24", 40, 0.02, forms, (0.5, None))]


def test_a_reward_that_rises_while_held_out_accuracy_falls():
    reward = Mean(-0.2, 0.01), Mean(0.3, 0.01)
    accuracy = Mean(0.6, 0.02), Mean(0.4, 0.02)
    [finding] = diagnostics.of_held_out("hard", (10, 40), reward, accuracy)
    assert finding.rule == "reward apart: hard"
    assert "from step 10 to 40 the training reward rose from −0.200 to +0.300" in finding.evidence
    assert "the accuracy on hard fell from 0.600 to 0.400" in finding.evidence


@pytest.mark.parametrize(
    ("reward", "accuracy"),
    [
        ((-0.2, 0.01, -0.2, 0.01), (0.6, 0.02, 0.4, 0.02)),
        ((0.3, 0.01, -0.2, 0.01), (0.6, 0.02, 0.4, 0.02)),
        ((-0.2, 0.3, 0.3, 0.3), (0.6, 0.02, 0.4, 0.02)),
        ((-0.2, 0.01, 0.3, 0.01), (0.6, 0.05, 0.4, 0.05)),
        ((-0.2, 0.01, 0.3, 0.01), (0.44, 0.001, 0.4, 0.001)),
        ((-0.2, 0.01, 0.3, 0.01), (0.6, math.nan, 0.4, math.nan)),
    ],
    ids=["level", "both fall", "noisy reward", "noisy accuracy", "small fall", "unknown error"],
)
def test_held_out_accuracy_that_may_be_as_good_as_before(reward, accuracy):
    means = [(Mean(*values[:2]), Mean(*values[2:])) for values in (reward, accuracy)]
    assert [*diagnostics.of_held_out("hard", (10, 40), *means)] == []


def test_a_reward_apart_from_accuracy_is_in_the_report(tmp_path):
    shape = Shape(steps=24, eval_every=8, problems=40, samples=4, benchmarks=("easy",), metrics=12)
    layout = write_sweep(tmp_path, "demo", ("grpo", "dapo"), (0,), shape)
    run = layout.run("demo", "dapo-seed0")
    rewritten(run, lambda row: {"reward": -0.5 + row["step"] / 24})
    for step, right in ((0, False), (8, True), (16, True), (24, False)):
        rows = [row | {"correct": right} for row in read_eval(run, "easy", step).to_pylist()]
        for row in rows[:4]:
            row["correct"] = not right
        write_eval(run, "easy", step, rows)
    finished_again(run)
    build(layout)
    with connect(layout) as db:
        found = summarise(db, "demo").health
    [line] = [line for line in found if "training reward rose" in line]
    assert line.startswith("DAPO (1 of 1 runs): from step 8 to 24 the training reward rose from")
    assert "the accuracy on easy fell from 0.975 to 0.025" in line
