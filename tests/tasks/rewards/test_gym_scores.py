"""Reasoning Gym's own scores: as its scorers give them, never by running what a response says, and
all the way to a run."""

import json
import re
from pathlib import Path

import pytest
import yaml

from rpg.config.run_spec import RunSpec
from rpg.config.task import GymTask, GymVerifier
from rpg.store.samples import metadata, read_eval
from rpg.tasks import load_problems
from rpg.tasks.preparation import read_problems
from rpg.tasks.rewards import GradingError, Item, grader_for
from rpg.tasks.rewards.gym_worker import EXPRESSIONS, LITERALS
from rpg.tasks.rewards.scoring import SCORE, Answered, Scorer
from tests.forked_commands import to_its_end
from tests.tiny import make_run

MORE = ("simple_integration", "intermediate_integration", "polynomial_multiplication")
"""Those that use `sympy.parse_expr`, by that name."""


@pytest.fixture(scope="module")
def made():
    """A problem of each data set, by its name."""
    names = ("chain_sum", "mini_sudoku", *LITERALS, *EXPRESSIONS, *MORE)
    task = {"type": "reasoning_gym", "datasets": [{"name": name} for name in names]}
    task |= {"train_problems": len(names), "benchmark_problems": 1}
    return {problem.group: problem for problem in load_problems(GymTask.model_validate(task)).train}


@pytest.fixture(scope="module")
def grader():
    with grader_for(GymVerifier()) as grader:
        yield grader


def score_by_hand(columns, answer):
    made = pytest.importorskip("reasoning_gym").create_dataset(
        columns["dataset"], **columns["config"]
    )
    return made.score_answer(answer, made[columns["index"]])


def test_a_score_is_the_scorers_own_and_the_answer_ends_with_its_line_or_the_response(grader, made):
    chain = made["chain_sum"]
    sudoku = made["mini_sudoku"]
    cases = [
        (chain, f"So.\nAnswer: {chain.answer}", chain.answer),
        (chain, f"Answer: 1\nAnswer: {chain.answer} apples\nmore", f"{chain.answer} apples"),
        (chain, "Answer: 1.5", "1.5"),
        (sudoku, f"Answer:\n{sudoku.answer}", sudoku.answer),
        (sudoku, "Answer: 1 2 3 4", "1 2 3 4"),
    ]
    grades = grader.grade([Item(response, p.answer, False, p.columns) for p, response, _ in cases])
    expected = [score_by_hand(problem.columns, answer) for problem, _, answer in cases]
    assert [grade.score for grade in grades] == expected
    assert 0 < expected[1] < 1
    assert [grade.extracted for grade in grades] == [answer for *_, answer in cases]
    assert [grade.correct for grade in grades] == [score == 1 for score in expected]
    none, cut = grader.grade(
        [(chain.answer, chain.answer), (f"Answer: {chain.answer}", chain.answer, True)]
    )
    assert (none.score, none.reason, cut.score, cut.reason) == (
        0,
        "no 'Answer:'",
        0,
        "answer cut off",
    )


def test_the_reward_lies_between_wrong_and_right_by_the_score(made):
    problem = made["chain_sum"]
    with Scorer(GymVerifier(at_least=0.1)) as scorer:
        text = f"Answer: {problem.answer} apples"
        [scored] = scorer.score(
            [Answered(text, 3, False, problem.answer, problem.text, problem.columns)]
        )
    score = score_by_hand(problem.columns, f"{problem.answer} apples")
    assert scored.grade.correct
    assert scored.reward == pytest.approx(2 * score - 1)
    assert scored.parts == {SCORE: score, "correctness": scored.reward}


def test_the_data_sets_that_evaluate_an_answer_are_those_that_are_guarded():
    """The package's sources, at the release we pin: every `eval` and `parse_expr` stands in a
    module that we guard, or evaluates what the package has written itself."""
    own = {
        "codeio",
        "number_sorting",
        "bitwise_arithmetic",
        "basic_arithmetic",
        "propositional_logic",
        "generators_00_49",
        "generators_50_99",
    }
    uses = re.compile(
        r"\b(eval|exec|parse_expr|sympify|literal_eval)\(|pickle|os\.system|subprocess"
    )
    package = Path(pytest.importorskip("reasoning_gym").__file__).parent
    files = {path.stem for path in package.rglob("*.py") if uses.search(path.read_text())}
    assert files - own == {*LITERALS, *EXPRESSIONS, *MORE}


@pytest.mark.parametrize(
    "hostile",
    [
        "__import__('os').system('touch {}')",
        "[__import__('os').system('touch {}')]",
        "exec(chr(105))",
        "(lambda: open('{}', 'w'))()",
        "x.__class__",
        "print(1)",
        "[c for c in 'ab']",
        "exit()",
    ],
)
def test_nothing_that_a_response_says_is_run(grader, made, hostile, tmp_path):
    mark = tmp_path / "mark"
    items = [
        Item(f"Answer: {hostile.format(mark)}", p.answer, False, p.columns) for p in made.values()
    ]
    grades = grader.grade(items)
    assert not mark.exists()
    assert not any(grade.correct for grade in grades)
    right = grader.grade(
        [Item(f"Answer: {p.answer}", p.answer, False, p.columns) for p in made.values()]
    )
    assert [grade.score for grade in right] == [1.0] * len(made)


def test_what_takes_for_ever_ends_and_costs_one_answer(made, monkeypatch):
    monkeypatch.setattr("rpg.tasks.rewards.graders.GYM_SECONDS", 1.0)
    problem = made["countdown"]
    texts = ["Answer: 9**9**9**9", f"Answer: {problem.answer}"]
    with grader_for(GymVerifier()) as short:
        stuck, right = short.grade(
            [Item(text, problem.answer, False, problem.columns) for text in texts]
        )
    assert not stuck.correct
    assert "limit" in stuck.reason
    assert right.correct


def test_a_problem_that_the_package_now_makes_differently_is_an_error(grader, made):
    columns = made["chain_sum"].columns
    changed = {**columns, "index": columns["index"] + 1}
    with pytest.raises(GradingError, match="another problem than in the data; another version"):
        grader.grade([Item("Answer: 1", "1", False, changed)])
    with pytest.raises(
        GradingError, match=r"needs the columns of problems of task.type: reasoning_gym"
    ):
        grader.grade([("Answer: 1", "1")])


RUN = """
task:
  type: reasoning_gym
  datasets: [{name: chain_sum, levels: [0, 1], config: {min_terms: 2, max_terms: 2}}]
  train_problems: 60
  benchmark_problems: 8
  template: "{prompt}"
  verifier: {marker: "="}
model:
  hidden_size: 32
  intermediate_size: 64
  warm_start:
    {target_accuracy: 0, max_steps: 1, consolidation_steps: 0, behaviour_steps: 150,
     behaviour_learning_rate: 3.0e-3, scratchpad_fraction: 1}
training: {steps: 1, prompts_per_step: 4, mini_batch_prompts: 4}
rollout: {group_size: 4, max_prompt_tokens: 96, max_response_tokens: 16}
evaluation: {every: 1, samples_per_problem: 4}
"""


@pytest.mark.system
def test_the_stored_score_is_score_answer_called_by_hand_on_the_stored_sample(tmp_path):
    folder = make_run(tmp_path, "gym", RunSpec.model_validate(yaml.safe_load(RUN)))
    to_its_end("train", folder)
    to_its_end("evaluate", folder.path.parent)
    expected = []
    stored = []
    for benchmark in ("chain_sum-level-0", "chain_sum-level-1"):
        [file] = (tmp_path / "cache" / "data").glob(f"*/{benchmark}.parquet")
        columns = {p.id: p.columns for p in read_problems(file)}
        assert metadata(folder.eval_path(benchmark, 1))["rules"] == "reasoning-gym-0.1.25>=1"
        for row in read_eval(folder, benchmark, 1).to_pylist():
            _, marker, tail = row["response"].rpartition("=")
            answer = tail.split("\n")[0].strip() if marker and not row["truncated"] else ""
            expected.append(score_by_hand(columns[row["problem_id"]], answer))
            stored.append(json.loads(row["rewards"])[SCORE])
    assert stored == expected
    assert len(stored) == 64
    assert any(stored)
    assert not all(stored)
