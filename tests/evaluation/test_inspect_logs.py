"""Ours as logs of Inspect AI, which its own reader reads; its own evaluations beside ours."""

from pathlib import Path

import pytest

from rpg.errors import UserError
from rpg.evaluation import evaluate
from rpg.evaluation.regrade import regrade
from rpg.store import Layout
from rpg.store.database import build, connect
from rpg.store.samples import read_samples

pytest.importorskip("inspect_ai", reason="needs the package inspect-ai (pip install '.[inspect]')")
from inspect_ai import Task
from inspect_ai import eval as run_inspect
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log, read_eval_log_sample, write_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match

from rpg.interop.integrations.inspect import export_logs, import_log


def key(row):
    return row["problem_id"], row["sample"]


def test_our_samples_come_back_from_a_log(checkpoints, own_benchmark, tmp_path):
    home = tmp_path / "home"
    for k in (6, 4):  # the six are set aside
        how = {
            "home": home,
            "max_prompt_tokens": 64,
            "max_response_tokens": 32,
            "say": lambda _: None,
        }
        [ours] = evaluate(checkpoints[0], [own_benchmark], samples_per_problem=k, **how)
    path, aside = sorted(
        export_logs(Layout.at(home), tmp_path / "logs", []), key=lambda path: len(path.name)
    )
    assert read_eval_log(str(aside), header_only=True).results.total_samples == 6 * 24
    header = read_eval_log(str(path), header_only=True)
    accuracy = header.results.scores[0].metrics["accuracy"].value
    assert header.status == "success"
    assert accuracy == pytest.approx(ours.summary.mean_at_k.mean)
    rows = read_samples(ours.samples).to_pylist()
    one = read_eval_log_sample(str(path), id=rows[5]["problem_id"], epoch=rows[5]["sample"] + 1)
    assert (one.output.completion, one.target) == (rows[5]["response"], rows[5]["answer"])
    other = Layout.at(tmp_path / "other")
    again = read_samples(import_log(other, path)).to_pylist()
    assert sorted(again, key=key) == sorted(rows, key=key)


def theirs(tmp_path, answers):
    """A log that Inspect AI itself wrote: two problems in two epochs, answered by a model that is
    made up."""
    outputs = [
        ModelOutput.from_content("mockllm/model", f"So.\nAnswer: {answer}") for answer in answers
    ]
    for output in outputs:  # else Inspect AI counts tokens, for which it fetches a tokenizer
        output.usage = ModelUsage(input_tokens=3, output_tokens=4, total_tokens=7)
    problems = [
        Sample(id="a", input="1 + 1?", target="2"),
        Sample(id="b", input="a half?", target="1/2"),
    ]
    task = Task(dataset=problems, scorer=match(), epochs=2, name="sums")
    [log] = run_inspect(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path / "theirs"),
        display="none",
        max_samples=1,
        max_tasks=1,
    )
    return log


def test_an_evaluation_of_inspect_stands_beside_ours_and_can_be_graded_by_our_rules(tmp_path):
    log = theirs(tmp_path, ["2", "0.5", "3", "1/2"])
    layout = Layout.at(tmp_path / "home")
    path = import_log(layout, Path(log.location.removeprefix("file://")))
    build(layout)
    with connect(layout) as db:
        [row] = db.sql(
            "SELECT model, benchmark, k, problems, accuracy, origin, engine FROM evals"
        ).fetchall()
        samples = db.sql("SELECT problem_id, sample, correct FROM samples").fetchall()
    assert row[:4] == ("mockllm/model", "sums", 2, 2)
    assert row[5:] == ("hand", "inspect")
    assert row[4] == pytest.approx(sum(correct for *_, correct in samples) / 4)
    assert {(problem, sample) for problem, sample, _ in samples} == {
        (p, s) for p in "ab" for s in (0, 1)
    }
    [graded] = regrade(path.parent, "default", say=lambda _: None)
    assert graded.right_after == 3 > graded.right_before, (
        "0.5 is 1/2 by our rules, and not to match()"
    )


@pytest.mark.parametrize("text", ["", "{}", "not a log"])
def test_what_is_no_log_is_said_in_a_line(tmp_path, text):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"x\.json: "):
        import_log(Layout.at(tmp_path / "home"), file)


def test_a_log_names_no_place_outside_of_the_evaluations(tmp_path):
    log = theirs(tmp_path, ["2", "0.5", "3", "1/2"])
    log.eval.model = "../../elsewhere"
    log.eval.task = ".."
    write_eval_log(log, str(tmp_path / "hostile.json"))
    layout = Layout.at(tmp_path / "home")
    assert (
        import_log(layout, tmp_path / "hostile.json")
        == layout.evaluations / "elsewhere/unnamed.parquet"
    )
