"""Files that are cut off, mixed, doubled or graded otherwise are read right or refused by name."""

import gzip
import json
import re

import pyarrow
import pyarrow.parquet
import pytest

from rpg.interop.compare import judging, pairing
from rpg.interop.compare.formats import read_file
from rpg.interop.compare.rows import Choice, CompareError
from rpg.interop.compare.sources import files_of, sources_of, with_clusters

PROBLEMS = range(12)


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def compared(*arguments, metric=""):
    sources = sources_of([str(each) for each in arguments], Choice(metric))
    return judging.compare(pairing.pair(sources))


def table(name="{}", score=lambda at: at % 2, **more):
    return [{"problem": name.format(f"t{at}"), "score": score(at), **more} for at in PROBLEMS]


def document(at, **more):
    texts = {"doc": {"question": f"{at} + 1"}, "resps": [["2"]]}
    return {"doc_id": at, **texts, "filter": "none", "acc": float(at % 2), **more}


def dumped(at, **more):
    return {"input": f"{at} + 1", "output": "2", "gts": "3", "score": at % 2, "step": 4, **more}


def log(samples, status="success"):
    return {"eval": {"task": "sums"}, "status": status, "samples": samples}


def sample(at, value="C", **more):
    return {"id": at, "epoch": 1, "input": "1 + 1", "scores": {"match": {"value": value}}, **more}


def ours(at, index=0, **more):
    texts = {"problem": f"{at} + 1", "extracted": "2"}
    return {"problem_id": f"t{at}", "sample": index, "correct": at % 2 == 1, **texts, **more}


def details(at, **more):
    return {"doc": {"query": f"{at} + 1"}, "metric": {"em": float(at % 2)}, **more}


REFUSED = {
    "a cell too many": ("a.csv", "problem,score\nt0,1\nt1,0,1\n", "row 2 has 3 cells; expected 2"),
    "a cell too few": ("a.csv", "problem,score\nt0\n", "row 1 has 1 cell; expected 2"),
    "an open quote": ("a.csv", 'problem,score\n"t0,1\nt1,0\n', "is not CSV: unexpected end"),
    "a column twice": ("a.csv", "problem,score,score\nt0,1,0\n", "several columns are called"),
    "no name": ("a.csv", "problem,score\nt0,1\n,0\n", "row 2 has no problem; expected one"),
    "no rows": ("a.csv", "problem,score\n", "has no samples; expected"),
    "nothing": ("a.jsonl", "\n", "is empty; expected samples of lm-eval"),
    "an empty list": ("a.json", "[]", "has no samples"),
    "a null for a name": ("a.jsonl", '{"problem": null, "score": 1}', "line 1 has no problem"),
    "no number": ("a.jsonl", '{"problem": "t", "score": NaN}', "line 1 has the score nan"),
    "text": ("a.csv", "problem,score\nt0,fine\n", "row 1 has the score 'fine'; expected a number"),
    "percent": ("a.csv", "problem,score\nt0,70\n", "row 1 has the score '70'; expected a number"),
    "minus one": ("a.csv", "problem,score\nt0,-1\n", "the score '-1'; expected a number between 0"),
    "400 digits": ("a.jsonl", f'{{"problem": 1, "score": {"8" * 400}}}', "the score 888"),
    "5,000 digits": ("a.jsonl", f'{{"problem": 1, "score": {"8" * 5000}}}', "is not JSON: Exceeds"),
    "deep": ("a.json", "[" * 100_000, "is not JSON: too many brackets"),
    "cut off": ("a.jsonl", '{"problem": 1, "score": 1}\n{"pro', "line 2 is not JSON: Unterminated"),
    "a list cut off": ("a.json", '[{"problem": 1, "score": 1},', "is not JSON: Expecting value"),
    "a number among rows": (
        "a.json",
        '[{"problem": 1, "score": 1}, 5]',
        "entry 2 is not an object",
    ),
    "UTF-16": ("a.csv", "problem,score\nt0,1\n".encode("utf-16"), "neither text in UTF-8"),
    "gzip cut off": (
        "a.csv.gz",
        gzip.compress(b"problem,score\nt0,1\n")[:-9],
        "cut off or damaged",
    ),
}


@pytest.mark.parametrize(("name", "content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused_by_name(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(CompareError, match=re.escape(said)) as refused:
        read_file(path, Choice())

    assert str(refused.value).startswith(f"{path}: ")
    assert len(str(refused.value)) < 500


ROWS = {
    "another kind": ([document(0), {"problem": 1, "score": 1}], "line 2 has no 'doc'"),
    "a document twice": ([document(0), document(1), document(0)], "document 0 is there 2 times"),
    "metric of 100": ([document(0), document(1, acc=100.0)], "document 1 has the score 100.0"),
    "metric of null": ([document(0), document(1, acc=None)], "document 1 has the score None"),
    "no prompt": ([dumped(0), {"output": "2", "score": 1, "step": 4}], "line 2 has no 'input'"),
    "no accuracy": ([dumped(0, acc=1), dumped(1)], "line 2 has the score None"),
    "a reward of -1": ([dumped(1), dumped(2, score=-1)], "line 2 has the score -1"),
    "two steps": ([dumped(0), dumped(1, step=8)], "has samples of the steps 4, 8"),
    "a sample twice": (
        [{"problem": "t", "score": 1, "sample": at} for at in (0, 1, 1)],
        "problem 't', sample 1 is there 2 times; expected once",
    ),
    "no model": (
        [{"problem": "t", "score": 1, "model": name} for name in ("m", "")],
        "line 2 has no model; expected one in each row",
    ),
    "no benchmark": (
        [{"problem": "t", "score": 1, "task": "x"}, {"problem": "u", "score": 1}],
        "line 2 has no task; expected one in each row",
    ),
}


@pytest.mark.parametrize(("rows", "said"), ROWS.values(), ids=ROWS)
def test_a_row_that_does_not_fit_is_refused(tmp_path, rows, said):
    with pytest.raises(CompareError, match=re.escape(said)):
        read_file(lines(tmp_path / "a.jsonl", rows), Choice())


LOGS = {
    "no id": (log([{"epoch": 1}]), "sample 1 of a log of Inspect has no id"),
    "no samples": (log(["x"]), "sample 1 of a log of Inspect has no id"),
    "twice": (log([sample(3), sample(3)]), "sample 3, epoch 1 is there 2 times"),
    "null": (log([sample(3), sample(4, value=None)]), "sample 4, epoch 1 has the score None"),
    "scores in a list": (log([sample(3, scores=[1])]), "sample 3 has the scores [1]; expected"),
    "other section": ({"eval": 4, "status": "success"}, "without the section eval"),
    "none scored": (log([sample(3, scores={})], "error"), "without scored samples"),
}


@pytest.mark.parametrize(("content", "said"), LOGS.values(), ids=LOGS)
def test_a_log_of_inspect_that_lacks_something_is_refused(tmp_path, content, said):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))

    with pytest.raises(CompareError, match=re.escape(said)):
        read_file(path, Choice())


PARQUET = {
    "ours, null": ([ours(0), ours(1, correct=None)], "row 2 has the score None"),
    "ours, twice": ([ours(0), ours(0)], "problem 't0', sample 0 is there 2 times"),
    "lighteval, null": ([details(0), details(1, metric=None)], "row 2 has the score None"),
    "lighteval, no question": ([details(0), details(1, doc=None)], "row 2 has no question"),
}


@pytest.mark.parametrize(("rows", "said"), PARQUET.values(), ids=PARQUET)
def test_a_row_of_parquet_that_lacks_something_is_refused(tmp_path, rows, said):
    with pytest.raises(CompareError, match=re.escape(said)):
        read_file(parquet(tmp_path / "a.parquet", rows), Choice())


@pytest.mark.parametrize("row", [ours(0), details(0)], ids=["ours", "lighteval"])
def test_parquet_without_rows_is_refused(tmp_path, row):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]).slice(0, 0), path)

    with pytest.raises(CompareError):
        read_file(path, Choice())


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_other_ends_of_lines_in_a_text_do_not_end_a_row(tmp_path, separator):
    path = lines(tmp_path / "a.jsonl", table(f"{{}}{separator}b"))

    assert len(read_file(path, Choice()).rows) == len(PROBLEMS)


def test_compressed_files_are_read_as_what_they_hold(tmp_path):
    plain = lines(tmp_path / "samples_sums_2026-03-04T05-06-07.8.jsonl", map(document, PROBLEMS))
    packed = plain.with_name(f"{plain.name}.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    assert read_file(packed, Choice()).rows == read_file(plain, Choice()).rows


def test_whole_numbers_are_one_name_however_they_are_written(tmp_path):
    whole = lines(tmp_path / "a.jsonl", [{"id": at, "score": 1} for at in PROBLEMS])
    floats = lines(tmp_path / "b.jsonl", [{"id": float(at), "score": 1} for at in PROBLEMS])

    assert compared(whole, floats).problems == len(PROBLEMS)


def test_a_file_is_not_two_trainings(tmp_path):
    path = lines(tmp_path / "a.jsonl", table())

    with pytest.raises(CompareError, match="is given as two trainings of old"):
        compared(f"old={path},{path}", f"new={path},{path}")


def test_files_of_trainings_have_no_column_of_seeds(tmp_path):
    rows = [*table(seed=0), *table(seed=1)]
    paths = [lines(tmp_path / f"{at}.jsonl", rows) for at in range(2)]

    with pytest.raises(CompareError, match="2 files and a column with 2 trainings"):
        compared(f"old={paths[0]},{paths[1]}", f"new={paths[0]}")


def test_the_last_step_is_the_highest_number(tmp_path):
    folder = tmp_path / "run" / "evals" / "sums"
    for step in ("999999", "1000000"):
        parquet(folder / f"step-{step}.parquet", [ours(at) for at in PROBLEMS])

    [last], _ = files_of(tmp_path / "run")

    assert last.name == "step-1000000.parquet"


def test_a_run_without_evaluations_is_refused(tmp_path):
    (tmp_path / "run" / "evals" / "sums").mkdir(parents=True)

    with pytest.raises(CompareError, match=r"no samples \(step-\*.parquet\) of any benchmark"):
        files_of(tmp_path / "run")


def test_files_of_a_folder_that_are_left_out_are_named(tmp_path):
    lines(tmp_path / "old" / "deep" / "a.jsonl", table())
    (tmp_path / "old" / "settings.json").write_text("{}")
    new = lines(tmp_path / "new.jsonl", table())

    comparison = compared(tmp_path / "old", new)

    assert comparison.notes == [f"{tmp_path / 'old'}: read without 1 file of JSON (settings.json)"]


def test_a_log_that_did_not_end_is_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(log([sample(at) for at in PROBLEMS], "cancelled")))

    assert "has the status cancelled" in read_file(path, Choice()).notes[-1]


def test_documents_without_the_metric_are_counted(tmp_path):
    rows = [document(at) for at in PROBLEMS]
    del rows[5]["acc"]

    read = read_file(lines(tmp_path / "a.jsonl", rows), Choice())

    assert len(read.rows) == len(PROBLEMS) - 1
    assert read.notes == ["a.jsonl: 1 document without acc: left out"]


def test_metrics_and_benchmarks_of_other_names_are_said(tmp_path):
    old = lines(tmp_path / "old.jsonl", table(task="sums"))
    rows = [{"problem": f"t{at}", "reward": 0.5, "task": "more"} for at in PROBLEMS]

    comparison = compared(old, lines(tmp_path / "new.jsonl", rows))

    assert comparison.notes == [
        "metrics of different names are compared: score of old, reward of new",
        "treated as one benchmark, since problems have the same names: sums, more",
    ]


def test_scores_between_0_and_1_have_no_pass_at_k(tmp_path):
    rows = [{"problem": f"t{at}", "score": 0.25 + 0.01 * at} for at in PROBLEMS for _ in range(2)]
    old = lines(tmp_path / "old.jsonl", rows)
    new = lines(tmp_path / "new.jsonl", [row | {"score": row["score"] + 0.1} for row in rows])

    comparison = compared(old, new)

    assert comparison.differences[0].difference == pytest.approx(0.1)
    assert comparison.levels[0].pass_at == {}


def test_one_common_problem_gives_no_figure_of_what_is_found(tmp_path):
    old = lines(tmp_path / "old.jsonl", table())
    new = lines(tmp_path / "new.jsonl", table()[:1])

    assert "1 problem: to tell which differences can be found takes two" in compared(old, new).power


CLUSTERS = {
    "no such file": (None, "cannot be read: No such file"),
    "latin-1": (b"problem,cluster\n\xe9,c\n", "neither text in UTF-8"),
    "no cluster": (b"problem,cluster\nt0,\n", "row 1 lacks a problem or a cluster"),
    "other columns": (b"name,group\nt0,c\n", "row 1 lacks a problem or a cluster"),
    "two clusters": (b"problem,cluster\nt0,a\nt0,b\n", "row 2 has a second cluster for 't0'"),
    "other problems": (b"problem,cluster\nx,c\n", "names none of the problems that are compared"),
}


@pytest.mark.parametrize(("content", "said"), CLUSTERS.values(), ids=CLUSTERS)
def test_clusters_that_are_not_understood_are_refused(tmp_path, content, said):
    paths = [lines(tmp_path / f"{at}.jsonl", table()) for at in range(2)]
    file = tmp_path / "clusters.csv"
    if content is not None:
        file.write_bytes(content)
    sources = sources_of([str(path) for path in paths], Choice())

    with pytest.raises(CompareError, match=re.escape(said)):
        with_clusters(sources, file)


def test_a_problem_in_two_clusters_is_refused(tmp_path):
    old = lines(tmp_path / "old.jsonl", table(cluster="a"))
    new = lines(tmp_path / "new.jsonl", table(cluster="b"))

    with pytest.raises(CompareError, match="'t0' is in several clusters: 'a', 'b'"):
        compared(old, new)
