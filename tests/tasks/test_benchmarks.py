"""Benchmarks as data: those that ship, one's own, and what a wrong file is told."""

import json
import random
import re

import pytest

from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.config.task import RECIPE_TEMPLATE, MathTask, MathVerifier
from rpg.tasks import DataError, Problem, load_problems, verifier_of
from rpg.tasks.benchmarks import benchmark, benchmarks, load_benchmark
from rpg.tasks.checks import leaks, shingles, words
from rpg.tasks.preparation import data_digest, data_notes, prepare_data, read_problems
from tests.data_sets import DATA, needs_data
from tests.tasks.fake_hub import ask_here, fake_hub, json_lines

COUNTS = {"aime24": (30, 960), "aime25": (30, 960), "amc23": (40, 1280)}
COUNTS |= {"minerva_math": (272, 272), "olympiadbench": (675, 675)}


LARGE = ("gsm8k", "math")
"""Fewer samples."""
UNSEEN = ("math", "aime26")
"""No copy was at hand, so there is no digest to compare with."""


def test_what_ships_is_asked_and_graded_by_the_recipe():
    found = benchmarks()
    chains = [name for name in found if name.startswith("chain-")]
    assert set(found) == {*COUNTS, "math500", *LARGE, *UNSEEN, *chains}
    for name in chains:
        del found[name]
    for name, one in found.items():
        assert one.name == name
        assert one.title
        assert one.prompt.template == RECIPE_TEMPLATE
        assert one.verifier == MathVerifier()
        assert one.source.hub
        assert one.source.files
        assert one.samples_per_problem == (4 if name in LARGE else 32)
        assert name in UNSEEN or (one.problems and one.digest)
        pinned = re.fullmatch(r"[0-9a-f]{40}", one.source.revision or "")
        assert pinned or name == "aime26", "a branch may change from one day to the next"


@pytest.mark.component
@pytest.mark.parametrize("tier", ["easy", "medium", "hard"])
def test_the_chain_tiers_are_those_of_a_run(tier):
    """By hand and in a sweep: the same problems under the same names, so the same samples."""
    spec = RunSpec()
    loaded = load_benchmark(benchmark(f"chain-{tier}"))
    assert loaded.problems == load_problems(spec.task).benchmarks[f"chain-{tier}"]
    assert loaded.benchmark.verifier == verifier_of(spec.task)
    assert len(loaded.problems) == 64
    assert loaded.digest == loaded.benchmark.digest
    assert loaded.notes == []
    assert all(p.prompt == p.text for p in loaded.problems)


@pytest.mark.component
def test_a_benchmark_of_longer_chains_can_be_made(tmp_path):
    path = tmp_path / "chain-long.yaml"
    path.write_text("source: {chain: {tiers: {long: 9}, benchmark_problems: 5}}\n")
    assert len(load_benchmark(benchmark(path)).problems) == 5
    path = path.rename(tmp_path / "other.yaml")
    with pytest.raises(DataError, match=r"other: source\.chain makes chain-long; one of these has"):
        load_benchmark(benchmark(path))


@needs_data
@pytest.mark.parametrize("name", COUNTS)
def test_shipped_benchmarks_have_their_known_counts_and_digests(name):
    loaded = load_benchmark(benchmark(name), folder=DATA)
    assert (len(loaded.problems), loaded.rows) == COUNTS[name]
    assert loaded.digest == loaded.benchmark.digest
    said = ["olympiadbench-675: copies have 674 or 675 problems"] if name == "olympiadbench" else []
    assert loaded.benchmark.name == (f"{name}-675" if said else name)
    assert [note.partition(",")[0] for note in loaded.notes] == said
    assert len({p.id for p in loaded.problems}) == len(loaded.problems)
    assert all(p.answer.strip() and p.text in p.prompt for p in loaded.problems)


@needs_data
def test_the_recipes_own_prompts_are_reproduced():
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(DATA / "aime25.parquet")["prompt"].to_pylist()
    theirs = {row[0]["content"] for row in rows}
    assert {p.prompt for p in load_benchmark(benchmark("aime25"), folder=DATA).problems} == theirs


@needs_data
def test_the_benchmarks_do_not_leak_into_each_other():
    groups = {name: load_benchmark(benchmark(name), folder=DATA).problems for name in COUNTS}
    for name, problems in groups.items():
        others = {other: group for other, group in groups.items() if other != name}
        assert leaks(problems, others) == []


# ------------------------------------------------------------------------------------------------
# one's own


def write(folder, rows, text="source: {path: own.jsonl}\n"):
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "own.yaml").write_text(text)
    return folder / "own.yaml"


def test_ones_own_benchmark_is_a_yaml_file_and_a_data_file(tmp_path):
    path = write(
        tmp_path, [{"problem": "1+1?", "answer": 2}, {"problem": "1/2 of 1?", "answer": "1/2"}]
    )
    loaded = load_benchmark(benchmark(path))
    assert [(p.text, p.answer) for p in loaded.problems] == [("1+1?", "2"), ("1/2 of 1?", "1/2")]
    assert loaded.problems[0].prompt == RECIPE_TEMPLATE.replace("{prompt}", "1+1?")
    assert loaded.benchmark.name == "own"


def test_a_cluster_is_a_column_or_named_by_answers(tmp_path):
    rows = [{"problem": "1+1?", "answer": 2, "year": 1999}, {"problem": "1+2?", "answer": 3}]
    rows[1]["year"] = 2000

    source = "source: {path: own.jsonl}\n"
    by_column = write(tmp_path, rows, source + "columns: {cluster: [year]}\n")
    assert [p.cluster for p in load_benchmark(benchmark(by_column)).problems] == ["1999", "2000"]

    by_answer = write(tmp_path, rows, source + "clusters: {odd: ['3']}\n")
    assert [p.cluster for p in load_benchmark(benchmark(by_answer)).problems] == [None, "odd"]


@pytest.mark.parametrize("name", ["aime24", "aime25"])
def test_the_two_papers_of_a_year_have_fifteen_problems_each(name):
    clusters = benchmark(name).clusters

    assert len(clusters) == 2
    for answers in clusters.values():
        # 336 is also written as degrees; 104 is the answer of two problems of one paper.
        assert 14 <= len({answer.removesuffix("^\\circ") for answer in answers}) <= 15


def test_names_and_digest_do_not_depend_on_order_repeats_and_typesetting(tmp_path):
    rows = [{"problem": "one  two", "answer": "$1$"}, {"problem": "three", "answer": "2"}]
    first = load_benchmark(benchmark(write(tmp_path, rows)))
    turned = [{"problem": "three", "answer": "2"}, {"problem": "one two", "answer": "1"}]
    again = load_benchmark(benchmark(write(tmp_path, turned + turned)))
    assert again.digest == first.digest
    assert again.rows == 4
    assert {p.id for p in again.problems} == {p.id for p in first.problems}
    other = load_benchmark(benchmark(write(tmp_path, [{**rows[0], "answer": "3"}, rows[1]])))
    assert other.digest != first.digest


def test_copies_with_different_numbers_of_problems_are_benchmarks_of_different_names(tmp_path):
    rows = [{"problem": "one", "answer": "1"}, {"problem": "two", "answer": "2"}]
    for count, name in ((1, "own"), (2, "own-2")):
        path = write(tmp_path, rows[:count], "source: {path: own.jsonl}\nproblems: [1, 2]\n")
        loaded = load_benchmark(benchmark(path))
        assert loaded.benchmark.name == name
        assert len(loaded.problems) == count
        [note] = loaded.notes
        assert note.startswith(
            f"{name}: copies have 1 or 2 problems, and numbers over different copies"
        )


def test_a_copy_with_another_digest_is_reported(tmp_path):
    text = "source: {path: own.jsonl}\ndigest: 0123456789abcdef\n"
    [note] = load_benchmark(
        benchmark(write(tmp_path, [{"problem": "a", "answer": "1"}], text))
    ).notes
    assert "own.jsonl" in note
    assert "0123456789abcdef" in note


def test_answers_in_a_box_and_corrections(tmp_path):
    text = "source: {path: own.jsonl}\ncolumns: {answer: [answer, boxed(solution)]}\n"
    text += 'corrections: {"np.sqrt(2)": "\\\\sqrt{2}"}\n'
    rows = [
        {"problem": "a", "solution": r"so \boxed{\frac{1}{2}}"},
        {"problem": "b", "answer": "np.sqrt(2)"},
    ]
    loaded = load_benchmark(benchmark(write(tmp_path, rows, text)))
    assert [p.answer for p in loaded.problems] == [r"\frac{1}{2}", r"\sqrt{2}"]


@pytest.mark.parametrize(
    ("rows", "text", "message"),
    [
        (
            [{"problem": "a"}],
            None,
            "line 1: no answer: the row has none of the columns answer, final_answer. Found",
        ),
        (
            [{"answer": "1"}],
            None,
            "no problem: the row has none of the columns problem, question, prompt",
        ),
        (
            [{"problem": "a", "answer": {"x": 1}}],
            None,
            "line 1: column answer: expected text, got dict",
        ),
        ([{"problem": " ", "answer": "1"}], None, "column problem: the text is empty"),
        ([], None, "own.jsonl: no rows"),
        (
            [{"problem": "a", "answer": "1"}, {"problem": "a", "answer": "2"}],
            None,
            "line 2: answer '2', but the same problem has the answer '1'",
        ),
        (
            [{"problem": "a", "answer": "1"}],
            "problems: 2\n",
            "1 distinct problems in 1 rows; own has 2",
        ),
        ([{"problem": "a", "answer": "1"}], "problems: [2, 3]\n", "own has 2 or 3"),
        ([{"problem": "a", "answer": "\ud800"}], None, "column answer: not valid Unicode"),
        (
            [{"problem": "a", "s": "no box"}],
            "columns: {answer: [boxed(s)]}\n",
            "column s: contains no",
        ),
    ],
)
def test_a_row_of_a_benchmark_that_cannot_be_used_is_named(tmp_path, rows, text, message):
    path = write(tmp_path, rows, "source: {path: own.jsonl}\n" + (text or ""))
    with pytest.raises(DataError) as error:
        load_benchmark(benchmark(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source: {hubb: x}\n", "source.hubb: unknown field; did you mean 'hub'?"),
        ("source: {}\n", "source: name a hub id (hub), a file (path) or file names (files)"),
        ("source: {path: x}\nprompt: {template: no place}\n", "template must contain {prompt}"),
        ("source: {path: x}\nverifier: {type: maths}\n", "did you mean 'math'?"),
        ("title: x\n", "source: this field is required"),
        ("source: {path: x}\nsamples_per_problem: 0\n", "samples_per_problem"),
    ],
)
def test_a_mistake_in_the_file_of_a_benchmark_is_named(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        benchmark(write(tmp_path, [], text))
    assert message in str(error.value)
    assert "own.yaml" in str(error.value)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.component
def test_a_revision_is_read_from_the_hub(tmp_path, monkeypatch):
    """The whole way, from the YAML file through the hub's own client to a server that speaks its
    protocol."""
    pytest.importorskip("datasets", reason="datasets is not installed (pip install '.[math]')")
    monkeypatch.delenv("RPG_DATA", raising=False)
    rows = [{"question": "a", "final_answer": ["1"]}, {"question": "a", "final_answer": ["1"]}]
    rows += [{"question": "b", "final_answer": ["2", "3"]}]
    path = tmp_path / "own.yaml"

    def read(source, hub="some/set"):
        text = (
            f"source: {{hub: {hub}, {source}}}\ncolumns: {{answer: [final_answer]}}\nproblems: 2\n"
        )
        path.write_text(text)
        loaded = load_benchmark(benchmark(path))
        return loaded.source, [(p.text, p.answer) for p in loaded.problems], loaded.rows

    expected = [("a", "1"), ("b", "2, 3")], 3
    with fake_hub("some/set", COMMIT, {"test.jsonl": json_lines(rows)}) as hub:
        ask_here(monkeypatch, hub, tmp_path)
        assert read(f"revision: '{COMMIT}'") == (f"some/set@{COMMIT}", *expected)
        assert f"GET /datasets/some/set/resolve/{COMMIT}/test.jsonl" in hub.asked
        for revision, split in ((COMMIT[::-1], "test"), (COMMIT, "train")):
            with pytest.raises(DataError, match="own: cannot read some/set: ") as error:
                read(f"revision: '{revision}', split: {split}")
            assert "\n" not in str(error.value)
    folder = tmp_path / "newest"  # in the hub's layout: read as the hub is
    folder.mkdir()
    (folder / "test.jsonl").write_bytes(json_lines(rows))
    assert read("split: test", folder) == (f"{folder}@newest", *expected)


@pytest.mark.component
def test_without_file_and_hub_the_way_out_is_said(tmp_path, monkeypatch):
    datasets = pytest.importorskip(
        "datasets", reason="datasets is not installed (pip install '.[math]')"
    )
    unreachable = lambda *a, **k: (_ for _ in ()).throw(ConnectionError("no route\nat all"))  # noqa: E731
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError) as error:
        load_benchmark(benchmark("aime24"), folder=tmp_path)
    message = str(error.value)
    for part in ("the hub cannot be reached", "network, or put", "aime-2024.parquet", "RPG_DATA"):
        assert part in message
        assert "\n" not in message


# --------------------------------------------------------------------------------------------------
# ---
# leaks


def problem(name, text):
    return Problem(name, text, text, "1", "")


def test_similarity_is_that_of_all_pairs():
    rng = random.Random(0)
    vocabulary = "a b c d e f".split()
    texts = [" ".join(rng.choices(vocabulary, k=rng.randint(3, 12))) for _ in range(80)]
    train = [problem(f"t{i}", t) for i, t in enumerate(texts[:60])]
    test = [problem(f"h{i}", t) for i, t in enumerate(texts[60:])]
    found = {
        (leak.training, leak.problem): leak.similarity
        for leak in leaks(train, {"x": test}, 0.05, ("similar",))
    }
    for a in train:
        for b in test:
            one = shingles(words(a.text))
            other = shingles(words(b.text))
            jaccard = len(one & other) / len(one | other)
            assert found.get((a.id, b.id), 0.0) == pytest.approx(
                jaccard if jaccard >= 0.05 else 0.0
            )


# --------------------------------------------------------------------------------------------- as a
# run's task


@needs_data
def test_a_task_of_mathematics_leaves_out_training_problems_that_are_nearly_a_benchmarks(tmp_path):
    amc = load_benchmark(benchmark("amc23"), folder=DATA).problems[0]
    rows = [{"problem": f"What is {i} plus {i * 7}?", "answer": str(8 * i)} for i in range(5)]
    rows += [{"problem": amc.text.replace(" the ", " a ", 1), "answer": amc.answer}]
    train = tmp_path / "train.jsonl"
    train.write_bytes(json_lines(rows))
    spec = RunSpec(task=MathTask(type="math", train=str(train), benchmarks=("amc23",), data=DATA))
    splits = load_problems(spec.task)
    prepared = prepare_data(spec, tmp_path / "home")
    assert len(splits.train) == 5, "the problem that is nearly one of AMC's is left out"
    assert read_problems(prepared.benchmarks["amc23"]) == splits.benchmarks["amc23"]
    [note] = data_notes(prepared)
    assert note == "1 training problems are also in a benchmark and were left out of training"
    assert prepared.digest == data_digest(spec)
    train.write_text(train.read_text().replace("plus", "and"))
    assert data_digest(spec) != prepared.digest, (
        "a process that has read the file before sees the change"
    )
