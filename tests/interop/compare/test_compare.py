"""What is read, paired and judged."""

import json
import re

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from rpg.interop.compare import judging, pairing
from rpg.interop.compare.formats import read_file
from rpg.interop.compare.rows import Choice, CompareError
from rpg.interop.compare.sources import files_of, sources_of, with_clusters


def table(path, scores, **columns):
    """A CSV file from problem -> scores of its samples."""
    rows = [",".join(["problem", "score", *columns])]
    for problem, values in scores.items():
        more = [str(column[problem]) for column in columns.values()]
        rows += [",".join([problem, str(value), *more]) for value in values]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def drawn(seed, chance, problems=40, samples=8):
    rng = np.random.default_rng(seed)
    return {f"p{at}": rng.binomial(1, chance, samples).tolist() for at in range(problems)}


def compared(*arguments, **options):
    return judging.compare(pairing.pair(sources_of(arguments, Choice())), **options)


@pytest.fixture
def two(tmp_path):
    base = table(tmp_path / "base.csv", drawn(1, 0.4))
    return base, table(tmp_path / "tuned.csv", drawn(2, 0.6))


def test_names_are_the_part_in_which_paths_differ(two, tmp_path):
    assert compared(*two).models == ["base", "tuned"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [table(tmp_path / name / "x.csv", drawn(1, 0.4)) for name in "ab"]
    assert compared(*paths).models == ["a", "b"]
    assert compared(f"old={paths[0]}", f"new={paths[1]}").models == ["old", "new"]


def test_both_verdicts_are_given_with_what_they_can_find(two):
    comparison = compared(*two)
    [difference] = comparison.differences
    assert (difference.others.word, difference.these.word) == ("better", "better")
    assert difference.these.smallest < difference.difference
    assert "Samples vary" in comparison.varies
    assert re.search(r"40 problems and k = 8 find differences of [\d.]+ points", comparison.power)


def test_problems_that_one_lacks_are_left_out_and_said(tmp_path):
    whole = drawn(1, 0.5, problems=30)
    fewer = {problem: scores for problem, scores in whole.items() if problem != "p7"}
    comparison = compared(table(tmp_path / "a.csv", whole), table(tmp_path / "b.csv", fewer))
    assert comparison.problems == 29
    assert comparison.notes == [
        "b lacks 1 of 30 problems (p7); only those that all have are compared"
    ]


def test_unequal_numbers_of_samples_are_said(tmp_path):
    paths = [
        table(tmp_path / f"{samples}.csv", drawn(1, 0.5, samples=samples)) for samples in (4, 8)
    ]
    comparison = compared(*paths)
    assert "score: 4 to 8 samples of a problem; each problem counts equally" in comparison.notes
    assert comparison.levels[0].mean.mean == pytest.approx(
        np.mean([np.mean(each) for each in drawn(1, 0.5, samples=4).values()])
    )


def test_clusters_are_the_units(tmp_path):
    clusters = {f"p{at}": f"c{at // 4}" for at in range(48)}
    paths = [
        table(tmp_path / f"{seed}.csv", drawn(seed, 0.5, problems=48), cluster=clusters)
        for seed in (1, 2)
    ]
    said = compared(*paths).notes
    assert said == [
        "score: 48 problems in 12 clusters; verdicts for others like them count clusters, not "
        "problems"
    ]


def test_clusters_may_stand_in_a_file_of_their_own(two, tmp_path):
    file = tmp_path / "clusters.csv"
    file.write_text("problem,cluster\n" + "".join(f"p{at},c{at // 2}\n" for at in range(40)))
    sources = with_clusters(sources_of(two, Choice()), file)
    [benchmark] = pairing.pair(sources).benchmarks
    assert benchmark.clusters == [f"c{at // 2}" for at in range(40)]


def test_trainings_are_files_of_one_name_or_a_column_of_seeds(tmp_path):
    paths = {
        name: [table(tmp_path / f"{name}{seed}.csv", drawn(seed, 0.5)) for seed in seeds]
        for name, seeds in [("a", (1, 2, 3)), ("b", (4, 5, 6))]
    }
    comparison = compared(*(f"{name}={','.join(files)}" for name, files in paths.items()))
    assert "Trainings vary (3 of each)" in comparison.varies
    column = tmp_path / "all.csv"
    rows = ["problem,score,seed,model"]
    for name, seeds in [("a", (1, 2, 3)), ("b", (4, 5, 6))]:
        for place, seed in enumerate(seeds):
            for problem, scores in drawn(seed, 0.5).items():
                rows += [f"{problem},{score},{place},{name}" for score in scores]
    column.write_text("\n".join(rows))
    assert compared(str(column)).differences == comparison.differences


def test_two_trainings_give_no_verdict(tmp_path):
    files = [table(tmp_path / f"{seed}.csv", drawn(seed, 0.5)) for seed in range(4)]
    [difference] = compared(f"a={files[0]},{files[1]}", f"b={files[2]},{files[3]}").differences
    assert difference.others.word == difference.these.word == "too few seeds"


def test_several_benchmarks_are_judged_by_their_mean_and_singly(tmp_path):
    rows = ["problem,score,benchmark,model"]
    for seed, (model, name) in enumerate([(m, b) for m in "ab" for b in ("x", "y")]):
        for problem, scores in drawn(seed, 0.5).items():
            rows += [f"{problem},{score},{name},{model}" for score in scores]
    (tmp_path / "all.csv").write_text("\n".join(rows))
    comparison = compared(str(tmp_path / "all.csv"))
    assert [each.benchmark for each in comparison.differences] == ["mean", "x", "y"]
    mean, first, second = (each.difference for each in comparison.differences)
    assert mean == pytest.approx((first + second) / 2)


def test_pass_at_k_is_the_unbiased_estimate(tmp_path):
    scores = {f"p{at}": [1, 0, 0, 0] for at in range(10)}
    path = table(tmp_path / "a.csv", scores)
    level = compared(path, f"b={path}").levels[0]
    assert {k: each.mean for k, each in level.pass_at.items()} == pytest.approx({2: 0.5, 4: 1.0})


def test_samples_of_ours_and_of_lighteval(tmp_path):
    ours = {"problem_id": ["a", "a", "b"], "sample": [0, 1, 0], "correct": [True, False, True]}
    ours |= {"problem": ["1 + 1", "1 + 1", "2 + 2"], "extracted": ["2", "3", "4"]}
    folder = tmp_path / "run" / "evals" / "sums"
    folder.mkdir(parents=True)
    for step in ("step-000010", "step-000020"):
        pyarrow.parquet.write_table(pyarrow.table(ours), folder / f"{step}.parquet")
    files, left_out = files_of(tmp_path / "run")
    assert ([path.name for path in files], left_out) == (["step-000020.parquet"], [])
    read = read_file(folder / "step-000020.parquet", Choice())
    assert (read.kind, [row.score for row in read.rows]) == ("rpg", [1.0, 0.0, 1.0])
    assert {row.benchmark for row in read.rows} == {"sums"}

    details = {"doc": [{"query": "1 + 1"}], "metric": [{"em": 1.0, "f1": 0.5, "length": 30.0}]}
    details["model_response"] = [{"text": ["2"]}]
    file = tmp_path / "details_lighteval|sums|0_2026-01-02T03-04-05.6.parquet"
    pyarrow.parquet.write_table(pyarrow.table(details), file)
    read = read_file(file, Choice())
    assert (read.kind, read.rows[0].score, read.rows[0].benchmark) == (
        "lighteval",
        1.0,
        "lighteval sums 0",
    )
    assert read.notes == ["em is compared; choose another with --metric: f1"]


def test_two_problems_of_one_name_are_not_paired(tmp_path):
    for name, text in [("a", "1 + 1"), ("b", "2 + 2")]:
        rows = [{"doc_id": 0, "doc": {"q": text}, "resps": [["2"]], "acc": 1.0}]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(CompareError, match="problem '0' is not the same text for a and for b"):
        compared(str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))


SUMMARY = '{"results": {"gsm8k": {"acc": 0.5}}, "configs": {}}'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", SUMMARY, "a summary of lm-eval, which has no samples; run it with --log_sam"),
        ("a.csv", "name,loss\nx,2\n", "has the columns name, loss; expected samples of lm-eval"),
        ("a.csv", "problem,score\np,7\n", "row 1 has the score '7'; expected a number between"),
        ("a.csv", "problem,score\np,\n", "row 1 has the score ''; expected a number between"),
        ("a.txt", "once upon a time", "begins with 'once upon a time'; expected samples"),
        ("a.jsonl", '{"problem": 1, "score": 1}\nx', "line 2 is not JSON"),
        ("a.eval", "PK\x03\x04nothing", "a log of Inspect that cannot be read"),
        ("a.parquet", "PAR1nothing", "Parquet that cannot be read"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(CompareError, match=re.escape(said)) as refused:
        read_file(path, Choice())
    assert str(refused.value).startswith(f"{path}: ")
