"""`rpg.evaluation.evaluate`: any model on any benchmark, nothing lost by a kill, nothing done
twice."""

import json
import re
import shutil
import time

import huggingface_hub.constants
import pytest

from rpg.config.errors import ConfigError
from rpg.errors import UserError
from rpg.evaluation import evaluate, graded_samples
from rpg.evaluation.graded_samples import Progress
from rpg.evaluation.standalone import _room, _said
from rpg.models.truncated_sampling import Restriction
from rpg.store.atomic_files import atomic_write_json
from rpg.store.samples import EVAL_COLUMNS, read_samples
from rpg.tasks import DataError
from tests.evaluation.small_model import VLLM

LIMITS = {"max_prompt_tokens": 64, "max_response_tokens": 32}


def samples(result):
    return read_samples(result.samples).to_pylist()


def test_every_sample_is_kept_with_what_was_extracted_and_why(checkpoints, own_benchmark, tmp_path):
    lines = []
    [result] = evaluate(
        checkpoints[0], [own_benchmark], out=tmp_path / "out", say=lines.append, **LIMITS
    )
    rows = samples(result)
    assert len(rows) == 24 * 4
    assert set(rows[0]) == set(EVAL_COLUMNS)
    right = [row for row in rows if row["correct"]]
    assert 0 < len(right) < len(rows)
    assert all(row["extracted"] == row["answer"] and row["reason"] == "correct" for row in right)
    assert result.summary.mean_at_k.mean == pytest.approx(len(right) / len(rows))
    assert lines[-1].startswith("mine: 96/96 samples, ")
    assert "tokens/s" in lines[-1]
    record = json.loads((tmp_path / "out" / "evaluation.json").read_text())["mine"]
    assert record["summary"]["k"] == 4
    assert record["identity"]["prompt"]["version"] == 1


def test_what_is_done_is_not_done_again_and_a_change_is(checkpoints, own_benchmark, tmp_path):
    def run(**changes):
        lines = []
        model = changes.pop("model", checkpoints[0])
        [result] = evaluate(
            model, [own_benchmark], out=tmp_path, say=lines.append, **LIMITS | changes
        )
        return lines, samples(result)

    _, first = run()
    lines, again = run()
    assert lines == ["mine: already done"]
    assert again == first
    narrow = Restriction(top_k=3, top_p=0.9, stop=("#",))
    changes = (
        {"seed": 1},
        {"temperature": 0.7},
        {"model": checkpoints[1]},
        {"samples_per_problem": 2},
    )
    for change in (*changes, {"restriction": narrow}):
        lines, other = run(**change)
        assert lines != ["mine: already done"]
        assert other != first
    assert run(restriction=narrow) == (["mine: already done"], other)
    assert all("#" not in row["response"][:-1] for row in other)
    lines, more = run(samples_per_problem=6)
    assert [row for row in more if row["sample"] < 4] == first, (
        "of more samples, the first ones are kept"
    )
    file = own_benchmark.with_suffix(".jsonl")
    file.write_text(re.sub(r'"right": "(\d)"', r'"right": "$\1$"', file.read_text(), count=1))
    lines, corrected = run(samples_per_problem=6)
    assert lines == ["mine: 144/144 samples"], "graded again by the corrected answer, and not drawn"
    assert [row["answer"] for row in corrected] != [row["answer"] for row in more]
    for text in (" =", "  ="):
        file.write_text(re.sub(" *=", text, file.read_text(), count=1))
        assert run(samples_per_problem=6)[0][0] == "mine: 138/144 samples", (
            "another prompt, by a blank"
        )


def test_results_of_older_versions_stay_valid_and_are_added_to(
    checkpoints, own_benchmark, tmp_path
):
    """Before samples were stored, the graded files were all there was."""

    def run(k):
        lines = []
        how = {"home": tmp_path / "home", "out": tmp_path / "out", "samples_per_problem": k}
        [result] = evaluate(checkpoints[0], [own_benchmark], say=lines.append, **how, **LIMITS)
        return lines, samples(result)

    _, first = run(2)
    shutil.rmtree(tmp_path / "home" / "samples")
    record = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    del record["mine"]["draws"]
    atomic_write_json(tmp_path / "out" / "evaluation.json", record)
    assert run(2) == (["mine: already done"], first)
    lines, more = run(3)
    assert lines[0] == "mine: 48/72 samples"
    assert [row for row in more if row["sample"] < 2] == first


def test_a_limit_takes_the_first_problems_and_is_not_the_whole(
    checkpoints, own_benchmark, tmp_path
):
    [some] = evaluate(checkpoints[0], [own_benchmark], limit=3, out=tmp_path, say=str, **LIMITS)
    first = samples(some)
    [whole] = evaluate(checkpoints[0], [own_benchmark], out=tmp_path, say=str, **LIMITS)
    assert (some.summary.problems, whole.summary.problems) == (3, 24)
    assert some.notes == whole.notes == []
    assert samples(whole)[:12] == first


@pytest.mark.parametrize("kind", [VLLM])
def test_greedy_results_do_not_depend_on_the_engine(kind, checkpoints, own_benchmark, tmp_path):
    found = []
    for name in ("local", kind):
        out = tmp_path / name
        how = {"engine": name, "temperature": 0.0, "out": out, "say": str}
        [result] = evaluate(checkpoints[0], [own_benchmark], **how, **LIMITS)
        found.append((samples(result), result.summary))
    assert found[0] == found[1]
    assert found[0][1].k == 1


def test_progress_says_samples_speed_and_time_left():
    progress = Progress(done=50, total=200, tokens=900, seconds=30.0, fresh=10)
    assert str(progress) == "50/200 samples, 30 tokens/s, 0:30, 7:30 left"
    assert str(Progress(40, 200, 0, 0.0, 0)) == "40/200 samples"
    assert str(Progress(41, 200, 5, 0.0, 1)) == "41/200 samples, 0 tokens/s, 0:00 left"


def test_before_the_first_sample_progress_says_how_long_responses_are():
    started = Progress(0, 10, 0, seconds=850.0, fresh=0, length=2048, limit=4096)
    said = "0/10 samples, at token 2,048 of at most 4,096, 14:10, at most 14:10 left"
    assert str(started) == said
    some = Progress(0, 10, 0, seconds=90.0, fresh=0, ended=3, length=1000, limit=4000)
    assert str(some).startswith("0/10 samples, 3 more ended, at token 1,000 of at most 4,000, 1:30")


def test_responses_that_are_drawn_together_are_told_of(
    checkpoints, own_benchmark, tmp_path, monkeypatch
):
    monkeypatch.setattr(graded_samples, "_TELL_SECONDS", 0.0)
    monkeypatch.setattr(graded_samples, "_SAY_SECONDS", 0.0)
    lines = []
    evaluate(checkpoints[0], [own_benchmark], out=tmp_path, say=lines.append, **LIMITS)
    assert [
        line for line in lines if re.search(r": 0/\d+ samples.* at token \d+ of at most 32", line)
    ]


def test_after_a_minute_progress_is_said_once_a_minute(monkeypatch):
    lines, clock = [], [100.0]
    monkeypatch.setattr(graded_samples.time, "monotonic", lambda: clock[0])
    report = graded_samples.progress_lines("mine", lines.append)
    for seconds in range(0, 300, 5):
        clock[0] = 100.0 + seconds
        report(Progress(0, 4, 0, float(seconds), 0))
    said = [line.rpartition(", ")[2] for line in lines]
    assert said == ["mine: 0/4 samples", "0:15", "0:30", "0:45", "1:50", "2:55", "4:00"]


def test_progress_is_said_from_time_to_time_and_at_the_end(monkeypatch):
    lines = []
    clock = [100.0]
    monkeypatch.setattr(graded_samples.time, "monotonic", lambda: clock[0])
    report = graded_samples.progress_lines("mine", lines.append)
    for done, clock[0] in enumerate((100.0, 109.0, 110.5, 111.0, 112.0)):
        report(Progress(done, 4, 0, 0.0, 0))
    assert lines == ["mine: 0/4 samples", "mine: 2/4 samples", "mine: 4/4 samples"]


def test_leaks_and_duplicates_are_reported_with_the_numbers(checkpoints, tmp_path):
    long = "Tom has {} red balls, {} blue balls and a bag. He takes two of them without looking; "
    long += "what colour has each of them, and how often?"
    rows = [
        {"problem": long.format(3, 4), "answer": "1"},
        {"problem": long.format(3, 9), "answer": "2"},
    ]
    rows += [{"problem": text, "answer": "3"} for text in ("1+2-3=", "4-4+1=", "4-4+1=")]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own.yaml").write_text(
        "source: {path: own.jsonl}\nprompt: {template: '1+{prompt}'}\nverifier: {type: "
        "marker, marker: '#'}\n"
    )
    train = tmp_path / "train.jsonl"
    train.write_text(json.dumps({"problem": " 1+2-3= ", "answer": "0"}) + "\n")
    how = {
        "samples_per_problem": 2,
        "max_prompt_tokens": 200,
        "max_response_tokens": 20,
        "say": str,
    }
    own = tmp_path / "own.yaml"
    out = tmp_path / "out"
    [result] = evaluate(checkpoints[0], [own], training=str(train), out=out, **how)
    found = result.checks
    ids = [row["problem_id"] for row in samples(result)][::2]
    assert found.rows == 5
    assert len(ids) == 4
    [(one, other, similarity)] = found.near_duplicates
    assert {one, other} == set(ids[:2])
    assert 0.6 <= similarity < 1
    assert [(leak.problem, leak.similarity) for leak in found.leaks] == [(ids[2], 1.0)]
    assert (result.summary.problems, result.without_leaks.problems) == (4, 3)
    record = json.loads((tmp_path / "out" / "evaluation.json").read_text())["own"]
    assert record["checks"]["leaks"][0]["problem"] == ids[2]
    assert record["checks"]["training"] == str(train)
    assert record["summary_without_leaks"]["problems"] == 3


def test_mistakes_are_said_in_one_line(checkpoints, own_benchmark, tmp_path):
    mine = own_benchmark
    for benchmarks, options, words in (
        ([mine, mine], {}, "benchmarks: 'mine' is named twice"),
        (
            [mine],
            {"engine": {"type": "local", "rows": 0}},
            r"engine\.rows: .*greater than .* \(got 0\)",
        ),
        ([mine], {"place": {"worker": 2}}, r"place\.worker: Extra inputs are not permitted"),
    ):
        with pytest.raises(ConfigError, match=words):
            evaluate(checkpoints[0], benchmarks, out=tmp_path, **options)
    with pytest.raises(DataError, match=r"max_prompt_tokens: 3, but 24 prompts are longer"):
        evaluate(checkpoints[0], [own_benchmark], out=tmp_path, max_prompt_tokens=3)


def test_a_missing_model_is_named_before_benchmarks_and_an_absent_hub_within_seconds(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(
        UserError, match=r"someone/model.*the hub cannot be reached.*copy the model's folder"
    ):
        evaluate("someone/model", ["aime24"], data=tmp_path, out=tmp_path / "out")
    assert time.monotonic() - began < 5


def test_what_could_not_be_read_is_said_with_its_reasons():
    rows = [
        {
            "correct": i < 90,
            "extracted": "5" if i < 99 else None,
            "reason": "answer line: same number",
        }
        for i in range(100)
    ]
    for row in rows[90:96]:
        row["reason"] = "answer line: not read: unclear: 'perchance' before the value; read as 5"
    rows[90]["second_reading"] = True
    without, unread = _said("mine", rows)
    assert without.startswith("mine: 1.0% of the responses have no answer line")
    assert unread.startswith("mine: 6.0% of the answers")
    assert "'perchance' before the value (6)" in unread
    assert "a second reader found 1 right and 0 wrong of 6" in unread
    assert len(_said("mine", rows[:90] + rows[90:91])) == 0  # one of 91


@pytest.mark.parametrize(("context", "tokens"), [(131_072, 32_768), (32_768, 30_720), (1024, 512)])
def test_a_response_may_fill_the_models_context_up_to_32768_tokens(context, tokens, tmp_path):
    atomic_write_json(tmp_path / "config.json", {"max_position_embeddings": context})
    assert _room(tmp_path, None, 2048) == tokens
