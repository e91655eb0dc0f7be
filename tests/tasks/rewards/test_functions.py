"""Reward functions of one's own: their forms, what they may return, their process, and what a
mistake looks like."""

import os
import sys
import time

import numpy as np
import psutil
import pytest

from rpg.config.code import kept_source, kept_sources
from rpg.config.errors import ConfigError
from rpg.config.reward import PythonReward
from rpg.config.task import MarkerVerifier, RewardVerifier
from rpg.tasks.rewards.function_calls import BadReward, Batch, call
from rpg.tasks.rewards.function_process import RewardError
from rpg.tasks.rewards.scoring import Answered, Scorer
from tests.operations.serving import words_of
from tests.specs import load_run

BATCH = Batch(
    ["a?", "b?"],
    ["yes", "no!"],
    [3, 2],
    {"answer": ["yes", "yes"], "level": [1, 2]},
    ["#### yes", "#### yes"],
)
CHAT = Batch([[{"role": "user", "content": "a?"}]], ["yes"], [3], {"answer": ["yes"]}, ["yes"])


def returns(value):
    return lambda responses: value


def test_the_three_forms_are_called_as_their_trainers_call_them():
    def ours(prompts, responses, level, answer, tokens):
        assert (prompts, level, tokens) == (["a?", "b?"], [1, 2], [3, 2])
        return [float(r == a) for r, a in zip(responses, answer, strict=True)]

    def trl(completions, **columns):
        assert set(columns) == {"prompts", "responses", "tokens", "answer", "level"}
        return [len(c) for c in completions]

    def trl_chat(prompts, completions, **_):
        pairs = zip(prompts, completions, strict=True)
        return [len(c[0]["content"]) + len(p[0]["content"]) for p, c in pairs]

    def verl(data_source, solution_str, ground_truth, extra_info=None):
        return {"score": float(solution_str == ground_truth), "level": extra_info["level"]}

    async def later(responses):
        return [1.0, 2.0]

    assert call(ours, "m:f", BATCH) == {"": [1.0, 0.0]}
    assert call(trl, "m:f", BATCH) == {"": [3.0, 3.0]}
    assert call(trl_chat, "m:f", CHAT) == {"": [5.0]}
    assert call(verl, "m:f", BATCH) == {"": [1.0, 0.0]}
    assert call(later, "m:f", BATCH) == {"": [1.0, 2.0]}


def test_named_values_come_as_lists_or_row_by_row_and_none_means_not_applicable():
    assert call(returns({"a": [1, 2], "b": [None, 0.5]}), "m:f", BATCH) == {
        "a": [1, 2],
        "b": [None, 0.5],
    }
    assert call(returns([{"a": 1}, {"a": 2, "b": 3}]), "m:f", BATCH) == {
        "a": [1, 2],
        "b": [None, 3],
    }


@pytest.mark.parametrize(
    ("value", "row", "words"),
    [
        ([1.0], 1, "m:f: returned 1 values for 2 responses"),
        ([1.0, 2.0, 3.0], 1, "returned 3 values for 2"),
        ([1.0, float("nan")], 1, "returned nan; expected a finite number"),
        (["0.5", 1.0], 0, "returned '0.5'; expected a finite number"),
        ([{"a": float("inf")}, {"a": 0}], 0, "m:f['a']: returned inf"),
        (0.5, None, "returned 0.5; expected a list with a number for each of the 2 responses"),
        (None, None, "returned None; expected a list"),
        (np.float64(0.5), None, "returned 0.5; expected a list"),
        ([10**400, 1.0], 0, "expected a finite number"),
    ],
)
def test_what_is_no_reward_is_refused_with_the_first_row(value, row, words):
    with pytest.raises(BadReward) as error:
        call(returns(value), "m:f", BATCH)
    assert words in str(error.value)
    assert error.value.row == row


def test_a_function_that_raises_is_told_with_the_response_it_raised_on():
    def score(responses):
        return [1 / (r != "no!") for r in responses]

    raised = r"m:f: raised ZeroDivisionError: .* \(test_functions.py, line \d+\)"
    with pytest.raises(BadReward, match=raised) as error:
        call(score, "m:f", BATCH)
    assert error.value.row == 1
    asked = "no argument for parameter completion_ids; there are: answer, completions, "
    with pytest.raises(BadReward, match=asked):
        call(lambda completion_ids: [], "m:f", BATCH)


# --- in its process

MODULE = """
import os, sys, time
from helper import SCALE

def score(responses, answer):
    print("a line for the log")
    return [SCALE * (r == a) for r, a in zip(responses, answer)]

def parts(responses):
    return {"style": [1.0] * len(responses), "rare": [None if r == "b" else 4.0 for r in responses]}

def stuck(responses):
    time.sleep(1000)

def ends(responses):
    os._exit(7)

def prompts(prompts):
    return [float(len(p)) for p in prompts]
"""
RESPONSES = [Answered("a", 5, False, "a", "prompt"), Answered("b", 9, False, "a", "prompt")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text("SCALE = 3\n")
    return tmp_path


def part(folder, name, **fields):
    return PythonReward(type="python", function=f"mine:{name}", beside=folder, **fields)


def scored(folder, *parts, verifier=None):
    with Scorer(verifier or MarkerVerifier(), parts, max_response_tokens=10) as scorer:
        return scorer.score(RESPONSES)


def test_parts_are_weighted_and_reported_without_their_weights(folder):
    from rpg.config.reward import CorrectnessReward, FormatReward, LengthReward

    found = scored(
        folder,
        part(folder, "score", weight=0.5),
        part(folder, "parts", weights={"rare": 0.1}),
        FormatReward(type="format", pattern="^a$", weight=2),
        LengthReward(type="length", full=5, zero=10),
        CorrectnessReward(right=1, wrong=0),
    )
    parts = {"score": 3.0, "parts_style": 1.0, "parts_rare": 4.0}
    parts |= {"format": 1.0, "length": 1.0, "correctness": 0.0}
    assert found[0].parts == parts
    assert found[0].reward == pytest.approx(0.5 * 3 + 1 + 0.4 + 2 + 1)
    assert found[1].parts == {
        **parts,
        "score": 0.0,
        "parts_rare": None,
        "format": 0.0,
        "length": 0.2,
    }
    assert found[1].reward == pytest.approx(1.2)


def test_a_response_is_right_when_its_reward_reaches_the_threshold(folder):
    found = scored(
        folder, part(folder, "score"), verifier=RewardVerifier(type="reward", at_least=3)
    )
    assert [one.grade.correct for one in found] == [True, False]
    assert found[1].grade.reason == "reward 0, right from 3"


def test_it_runs_from_the_source_that_was_kept_whatever_lies_there_now(folder):
    chosen = part(folder, "score")
    kept = {"score": kept_source(chosen)}
    assert [one["module"] for one in kept["score"]] == ["mine", "helper"]
    (folder / "mine.py").write_text("def score(responses): return [0.0, 0.0]\n")
    (folder / "helper.py").unlink()
    with Scorer(MarkerVerifier(), (chosen,), max_response_tokens=10, sources=kept) as scorer:
        assert [one.reward for one in scorer.score(RESPONSES)] == [3.0, 0.0]
    with pytest.raises(
        RewardError, match="mine:score: the run's manifest does not hold its source"
    ):
        Scorer(MarkerVerifier(), (chosen,), max_response_tokens=10, sources={})
    planned = chosen.model_copy(update={"digest": "0" * 16})
    with pytest.raises(RewardError, match="is not the one it was planned with"):
        Scorer(MarkerVerifier(), (planned,), max_response_tokens=10, sources=kept)


def test_a_function_that_hangs_or_ends_its_process_stops_the_batch_and_leaves_no_process(folder):
    began = time.monotonic()
    hung = Scorer(MarkerVerifier(), (part(folder, "stuck", seconds=0.5),), max_response_tokens=10)
    late = r"mine:stuck: no answer within 0.5 s for 2 responses \(reward.seconds\)"
    with pytest.raises(RewardError, match=late):
        hung.score(RESPONSES)
    assert hung._functions["stuck"]._process._process is None
    assert time.monotonic() - began < 60
    ended = r"its process ended with exit code 7; .* response 1 of 2: 'a' to 'prompt'"
    with pytest.raises(RewardError, match=ended):
        scored(folder, part(folder, "ends"))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
def test_time_and_memory_limits_take_everything_that_a_function_has_started(folder):
    def left():
        return [p for p in psutil.process_iter() if marker in words_of(p)]

    marker = f"left-by-{os.getpid()}"
    (folder / "starts.py").write_text(STARTS.replace("MARKER", marker))
    hung = PythonReward(type="python", function="starts:hangs", beside=folder, seconds=8)
    with Scorer(MarkerVerifier(), (hung,), max_response_tokens=10) as scorer:
        with pytest.raises(RewardError, match="no answer within 8 s"):
            scorer.score(RESPONSES)
        assert not left(), "one in a session of its own, and one whose parent has ended"
    big = PythonReward(type="python", function="starts:big", beside=folder, memory_gib=0.5)
    with pytest.raises(
        RewardError, match=r"starts:big: raised MemoryError.* \(reward.memory_gib\)"
    ):
        scored(folder, big)
    many = big.model_copy(update={"function": "starts:many"})
    with Scorer(MarkerVerifier(), (many,), max_response_tokens=10) as scorer:
        with pytest.raises(
            RewardError, match=r"its processes use .* GiB \(reward.memory_gib: 0.5\)"
        ):
            scorer.score(RESPONSES)
        assert not left()


STARTS = """
import subprocess, sys, time

def hangs(responses):
    wait = "import time; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", wait, "MARKER"], start_new_session=True)
    begin = f"subprocess.Popen([sys.executable, '-c', {wait!r}, 'MARKER'], start_new_session=True)"
    orphan = f"import subprocess, sys; {begin}"
    subprocess.run([sys.executable, "-c", orphan])
    time.sleep(600)

def big(responses):
    return [len(bytearray(2**30)), 0]

def many(responses):
    fill = "b = bytearray(b'x') * 2**28; import time; time.sleep(600)"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", fill, "MARKER"])
    time.sleep(600)
"""


def test_after_an_error_the_next_batch_has_a_process_of_its_own(folder):
    with Scorer(MarkerVerifier(), (part(folder, "prompts"),), max_response_tokens=10) as scorer:
        with pytest.raises(RewardError, match=r"raised TypeError: .* response 2 of 2: 'b' to ''"):
            scorer.score([RESPONSES[0], RESPONSES[1]._replace(prompt=None)])
        assert [one.reward for one in scorer.score(RESPONSES)] == [6.0, 6.0]


def test_a_pattern_that_takes_for_ever_is_an_error(monkeypatch):
    from rpg.config.reward import FormatReward
    from rpg.system import patterns

    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    hungry = FormatReward(type="format", pattern="(a|aa)+$")
    scorer = Scorer(MarkerVerifier(), (hungry,), max_response_tokens=9)
    with scorer, pytest.raises(RewardError, match=r"takes more than 0.05 s"):
        scorer.score([Answered("a" * 50_000 + "b", 5, False, "", "")])


# --- in a file


def run_file(folder, reward, name="run.yaml"):
    (folder / name).write_text(f"task: {{type: chain}}\nreward: {reward}\n")
    return folder / name


def test_a_changed_function_is_another_run_and_a_moved_one_is_not(folder, tmp_path_factory):
    from rpg.config.identity import identity

    text = "{type: python, function: 'mine:score'}"
    spec = load_run(run_file(folder, text))
    assert "beside" not in spec.model_dump(mode="json")["reward"][0]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("mine.py", "helper.py"):
        (elsewhere / name).write_bytes((folder / name).read_bytes())
    assert identity(load_run(run_file(elsewhere, text)), "d") == identity(spec, "d")
    (folder / "helper.py").write_text("SCALE = 4\n")
    assert identity(load_run(run_file(folder, text)), "d") != identity(spec, "d")
    with pytest.raises(ConfigError, match=r"mine.py: was changed after the run was planned"):
        kept_sources(spec)


def test_a_base_says_where_its_function_is(folder, tmp_path_factory):
    run_file(folder, "{type: python, function: 'mine:score'}")
    other = tmp_path_factory.mktemp("other")
    (other / "over.yaml").write_text(f"base: {folder}/run.yaml\nreward: {{weight: 2}}\n")
    (chosen,) = load_run(other / "over.yaml").reward
    assert (chosen.beside, chosen.weight) == (folder, 2.0)
    assert chosen.digest


def test_nothing_of_it_is_run_by_reading_a_file(folder):
    (folder / "mine.py").write_text("import os\nos.mkdir('ran')\ndef score(responses): ...\n")
    load_run(run_file(folder, "{type: python, function: 'mine:score'}"))
    assert "ran" not in os.listdir()
    assert "ran" not in os.listdir(folder)
    installed = load_run(run_file(folder, "{type: python, function: 'json.encoder:JSONEncoder'}"))
    assert len(installed.reward[0].digest) == 16


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (
            "{type: python, function: 'mine:scor'}",
            "mine.py: has no function 'scor'; did you mean 'score'? Accepted: ends,",
        ),
        ("{type: python, function: 'mina:score'}", "no module 'mina'; did you mean 'mine'?"),
        (
            "{type: python, function: mine}",
            "reward.0.function: expected module:function, e.g. my_rewards:score",
        ),
        (
            "{type: python, function: 'mine:score', digest: 0123456789abcdef}",
            "reward.digest: '0123456789abcdef', but",
        ),
        (
            "{type: pyton, function: 'mine:score'}",
            "reward.0: unknown type 'pyton'; did you mean 'python'?",
        ),
        (
            "{type: format, pattern: '(a'}",
            "reward.0.pattern: not a regular expression: missing ), unterminated",
        ),
        ("{type: format, patern: a}", "reward.0.patern: unknown field; did you mean 'pattern'?"),
        ("[]", "reward: reward must have at least one part"),
        ("[{type: length}, {type: length}]", "two parts of the reward are called 'length'"),
        ("{type: python, function: 'broken:score'}", "broken.py: line 1: "),
    ],
)
def test_a_mistake_names_file_field_and_what_would_be_accepted(folder, reward, words):
    (folder / "broken.py").write_text("def score(:\n")
    with pytest.raises(ConfigError) as error:
        load_run(run_file(folder, reward))
    assert words in str(error.value)
    assert str(error.value).startswith(str(folder / "run.yaml"))
