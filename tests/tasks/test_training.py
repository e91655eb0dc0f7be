"""Training sets: from the hub's rows to problems that can be trained on, with a reason for each
that is left out."""

import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from rpg.cli import load
from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.config.task import RECIPE_TEMPLATE
from rpg.tasks import DataError, load_problems
from rpg.tasks.benchmarks import benchmark, load_benchmark
from rpg.tasks.checks import near_duplicates, words
from rpg.tasks.preparation import prepare_data, read_problems
from rpg.tasks.training_sets import foreign, load_training, training_set
from tests.data_sets import DATA, needs_data
from tests.specs import load_run
from tests.tasks.fake_hub import ask_here, card, fake_hub, json_lines

CHAIN = Path(__file__).resolve().parents[2] / "configs/runs/chain.yaml"

ENGLISH = [
    ("Find the sum of all positive integers $n$ for which $n^2+3n+5$ is divisible by $121$.", "0"),
    (
        "A triangle has sides of length 13, 14 and 15. What is the radius of its inscribed circle?",
        "4",
    ),
    ("Let α and β be the roots of $x^2-5x+6=0$. Compute α³ + β³.", "35"),
]
CHINESE = [
    ("求所有满足条件的正整数 $n$，使得 $n^2+1$ 能被 $5$ 整除，且 $n<10$，并求它们的和。", "20"),
    ("设 $f(x)=x^2$，则 $f(3)$ 的值是多少？", "9"),
]


def dapo(path, pairs, repeats=3):
    """A file in the schema of the hub's DAPO-Math-17k: each problem several times, inside the
    recipe's prompt."""
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"content": RECIPE_TEMPLATE.replace("{prompt}", text), "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"00000000-0000-0000-0000-{i:012d}"},
        }
        for i, (text, answer) in enumerate(pairs)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows * repeats), path)
    return path


def test_what_is_kept_and_what_is_dropped_are_all_there_is(tmp_path):
    """Rows that repeat in every way: white space, typesetting, answers, languages."""
    rng = random.Random(0)
    for trial in range(30):
        pairs = []
        for text, answer in rng.choices(ENGLISH + CHINESE, k=12):
            text = rng.choice([text, f"  {text}\n", text.replace("$", ""), text.replace(" ", "  ")])
            pairs.append((text, rng.choice([answer, answer, answer, "1"])))
        path = dapo(tmp_path / f"{trial}.parquet", pairs)
        try:
            loaded = load_training(
                training_set(str(path)).model_copy(update={"language": "english"})
            )
        except DataError:
            continue  # nothing was left
        kept = {p.id for p in loaded.problems}
        dropped = {d.problem for d in loaded.dropped}
        assert len(kept) == len(loaded.problems)
        assert not kept & dropped
        assert (
            loaded.distinct
            == len(kept) + len(dropped)
            == len({" ".join(t.split()) for t, _ in pairs})
        )
        answers = {
            p.text: {a for t, a in pairs if words(t) == words(p.text)} for p in loaded.problems
        }
        assert all(len(found) == 1 for found in answers.values())


def test_the_english_part_of_dapo(tmp_path):
    dapo(tmp_path / "dapo-math-17k.parquet", ENGLISH + CHINESE)
    loaded = load_training(training_set("dapo-math-17k-en"), tmp_path)
    assert [(p.text, p.answer) for p in loaded.problems] == ENGLISH, (
        "the recipe's words are taken off"
    )
    assert (loaded.rows, loaded.distinct) == (15, 5)
    assert [(d.reason, d.text) for d in loaded.dropped] == [
        ("language", text) for text, _ in CHINESE
    ]
    assert loaded.problems[0].prompt == RECIPE_TEMPLATE.replace("{prompt}", ENGLISH[0][0])


def test_repeats_in_other_typesetting_and_two_answers(tmp_path):
    text, answer = ENGLISH[0]
    other = text.replace("$n^2+3n+5$", "${n}^{2} + 3n + 5$").replace("Find", "find")
    torn = ENGLISH[1]
    pairs = [
        (text, answer),
        (other, "$0$"),
        torn,
        (torn[0].replace("13, 14", "$13$, $14$"), "5"),
        ENGLISH[2],
    ]
    loaded = load_training(training_set(str(dapo(tmp_path / "own.parquet", pairs))))
    assert [p.text for p in loaded.problems] == [text, ENGLISH[2][0]]
    assert sorted(d.reason for d in loaded.dropped) == ["repeated", "two answers", "two answers"]
    by_text = {d.text: d.detail for d in loaded.dropped}
    assert loaded.problems[0].id in by_text[other]
    assert "'5', but '4'" in by_text[pairs[3][0]]
    assert torn[0] in by_text


@pytest.mark.parametrize(
    ("text", "english"),
    [(t, True) for t, _ in ENGLISH]
    + [(t, False) for t, _ in CHINESE]
    + [
        (
            "What is $\\angle ABC$、if $AB=BC$ and the triangle is right-angled at the vertex B?",
            True,
        ),
        ("Найдите сумму всех корней уравнения", False),
        ("次の方程式を解け: $x^2=4$", False),
        ("12 + 30 = ?", True),
        ("Élie naïvely sums ½ of π·r² and Σ over ℕ", True),
    ],
)
def test_what_counts_as_english(text, english):
    assert (foreign(text) <= 0.01) is english


def test_what_ships_is_pinned_and_named():
    for name in ("dapo-math-17k-en", "gsm8k-train", "math-train"):
        shipped = training_set(name)
        assert shipped.title
        assert shipped.source.hub
        assert shipped.source.files
        assert len(shipped.source.revision) == 40
    with pytest.raises(ConfigError, match="did you mean 'dapo-math-17k-en'"):
        training_set("dapo-math-17k")


@pytest.mark.component
def test_gsm8k_and_math_are_read_from_the_hub_as_they_are_there(tmp_path, monkeypatch):
    """Made rows in the columns, configurations and splits of the originals; training and test
    split."""
    pytest.importorskip("datasets", reason="datasets is not installed (pip install '.[math]')")
    monkeypatch.delenv("RPG_DATA", raising=False)
    gsm8k = training_set("gsm8k-train").source
    math = training_set("math-train").source

    def pens(n, k):
        worked = f"{n}+{k}=<<{n}+{k}={n + k}>>{n + k}\n#### {n + k:,}"
        return {"question": f"Ann has {n} pens and buys {k}. How many?", "answer": worked}

    sums = {split: [pens(n, k) for n in range(1, 4)] for split, k in (("train", 2000), ("test", 3))}
    files = {f"{split}.jsonl": json_lines(rows) for split, rows in sums.items()}
    files["README.md"] = card({"main": {split: f"{split}.jsonl" for split in sums}})
    with fake_hub("openai/gsm8k", gsm8k.revision, files) as server, monkeypatch.context() as here:
        ask_here(here, server, tmp_path / "gsm8k")
        loaded = load_training(training_set("gsm8k-train"))
        assert [p.answer for p in loaded.problems] == ["2,001", "2,002", "2,003"]
        assert (
            "not 2ebcb3dea573d278" in loaded.notes[0]
        )  # these are not the real ones, and that is said
        with pytest.raises(DataError, match="3 distinct problems in 3 rows; gsm8k has 1319"):
            load_benchmark(benchmark("gsm8k"))

    def root(name, split, n):
        text = f"{name}: what is $x$ if $x^2={n * n}$ and $x>0$ ({split})?"
        worked = (
            f"Here $x=\\boxed{{{n}}}$, and not $\\boxed{{-{n}}}$. So "
            f"$\\boxed{{\\frac{{{n}}}{{1}}}}$"
        )
        return {"problem": text, "level": "Level 1", "type": name, "solution": worked}

    subjects = {
        name: {split: [root(name.title(), split, n) for n in (3, 5)] for split in ("train", "test")}
        for name in math.subset
    }
    splits = [(f"{n}-{s}", rows) for n, parts in subjects.items() for s, rows in parts.items()]
    files = {f"{name}.jsonl": json_lines(rows) for name, rows in splits}
    files["README.md"] = card(
        {n: {s: f"{n}-{s}.jsonl" for s in splits} for n, splits in subjects.items()}
    )
    with fake_hub("EleutherAI/hendrycks_math", math.revision, files) as server:
        ask_here(monkeypatch, server, tmp_path / "math")
        training = load_training(training_set("math-train"))
        test = load_benchmark(benchmark("math"))
    for problems, split in ((training.problems, "train"), (test.problems, "test")):
        assert len(problems) == 14
        assert all(f"({split})" in p.text for p in problems)
        assert {p.answer for p in problems} == {"\\frac{3}{1}", "\\frac{5}{1}"}
        assert {p.text.partition(":")[0] for p in problems} == {
            name.title() for name in math.subset
        }


def test_a_name_is_no_path_and_a_path_is_beside_its_file(tmp_path):
    (tmp_path / "named.yaml").write_text("task: {type: math, train: math-train}\n")
    (tmp_path / "path.yaml").write_text("task: {type: math, train: own.jsonl}\n")
    assert load_run(tmp_path / "named.yaml").task.train == "math-train"
    assert load_run(tmp_path / "path.yaml").task.train == str(tmp_path / "own.jsonl")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"reward_model": {"ground_truth": None}},
            ["row 2", "no answer", "reward_model.ground_truth"],
        ),
        ({"reward_model": {"ground_truth": "  "}}, ["row 2", "reward_model.ground_truth", "empty"]),
        ({"prompt": []}, ["row 2", "column prompt", "expected a conversation"]),
        ({"prompt": [{"role": "user", "content": " "}]}, ["row 2", "asked(prompt)", "empty"]),
        (
            {"prompt": [{"role": "assistant", "content": "4"}]},
            ["row 2", "column prompt", "conversation"],
        ),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, words):
    good = {
        "prompt": [{"role": "user", "content": ENGLISH[0][0]}],
        "reward_model": {"ground_truth": ENGLISH[0][1]},
    }
    path = tmp_path / "own.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([good, {**good, **row}]), path)
    with pytest.raises(DataError) as error:
        load_training(training_set(str(path)))
    for word in (str(path), *words):
        assert word in str(error.value)


def test_nothing_left_says_why(tmp_path):
    dapo(tmp_path / "dapo-math-17k.parquet", CHINESE, repeats=1)
    with pytest.raises(DataError, match=r"no problem is left of 2 rows \(2 language\)"):
        load_training(training_set("dapo-math-17k-en"), tmp_path)


# ---------------------------------------------------------------------------------------------- the
# real files


def task(train, *benchmarks):
    return {"type": "math", "train": str(train), "benchmarks": list(benchmarks), "data": str(DATA)}


@needs_data
def test_training_on_a_benchmark_leaves_nothing():
    spec = RunSpec.model_validate({"task": task(DATA / "aime-2024.parquet", "aime24", "aime25")})
    with pytest.raises(DataError, match=r"all 30 problems are in a benchmark too \(30 in aime24\)"):
        load_problems(spec.task)


@needs_data
def test_what_leaks_is_left_out_and_reported_beside_the_data(tmp_path):
    aime = load_benchmark(benchmark("aime24"), folder=DATA).problems
    reworded = aime[1].text.replace(" the ", " its ", 1)
    pairs = [*ENGLISH, (aime[0].text, aime[0].answer), (reworded, aime[1].answer), CHINESE[0]]
    (tmp_path / "own.yaml").write_text(
        "source: {path: own.parquet}\ncolumns: {problem: [asked(prompt)], "
        "answer: [reward_model.ground_truth]}\nlanguage: english\n"
    )
    dapo(tmp_path / "own.parquet", pairs)
    spec = RunSpec.model_validate({"task": task(tmp_path / "own.yaml", "aime24", "olympiadbench")})
    prepared = prepare_data(spec, tmp_path / "home")
    assert [p.text for p in read_problems(prepared.train)] == [text for text, _ in ENGLISH]
    report = json.loads((prepared.train.parent / "data.json").read_text())
    train, aime24, olympiad = report["sources"]
    assert (train["rows"], train["distinct"], train["kept"]) == (18, 6, 3)
    assert train["dropped"] == {"language": 1, "leaked": 2}
    assert (aime24["rows"], aime24["kept"], olympiad["kept"]) == (960, 30, 675)
    assert aime24["digest"] == "135dfe56efc9aaf7"
    dropped = [json.loads(line) for line in (prepared.train.parent / "dropped.jsonl").open()]
    assert len(dropped) == 3
    leaked = {one["text"]: one["detail"] for one in dropped if one["reason"] == "leaked"}
    assert leaked[aime[0].text] == f"100% the same as {aime[0].id}"
    assert leaked[reworded].endswith(aime[1].id)
    assert not leaked[reworded].startswith("100%")


@needs_data
@pytest.mark.parametrize(
    ("name", "pairs"), [("aime24", 0), ("amc23", 0), ("minerva_math", 22), ("olympiadbench", 58)]
)
def test_near_duplicates_within_a_benchmark_are_known(name, pairs):
    problems = load_benchmark(benchmark(name), folder=DATA).problems
    found = near_duplicates(problems)
    assert len(found) == pairs
    assert len({frozenset(pair[:2]) for pair in found}) == pairs


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Whatever the width was when another test first imported the console."""
    monkeypatch.setattr("rpg.cli.app.console.width", 200)


def told(home, *arguments):
    """What `rpg data` prints."""
    ended = CliRunner().invoke(load(), ["data", *map(str, arguments), "--home", str(home)])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@needs_data
def test_rpg_data_reports_what_was_left_out_and_why(tmp_path):
    dapo(tmp_path / "own.parquet", [*ENGLISH, (ENGLISH[0][0].replace("$n$", "n"), "7")])
    run = tmp_path / "run.yaml"
    run.write_text(f"task: {json.dumps(task('own.parquet', 'aime24', 'minerva_math'))}\n")
    [(digest, report)] = json.loads(told(tmp_path / "home", run, "--json")).items()
    assert Path(report["folder"]).name == digest
    assert report["sources"][0]["kept"] == 2
    assert len(report["near_duplicates"]) == 22
    text = told(tmp_path / "home", run)
    assert "2 two answers" in text
    assert "22 pairs" in text
    assert digest in text
    assert "135dfe56efc9aaf7" in text


@pytest.mark.component
def test_the_command_for_data_that_is_made_by_code(tmp_path):
    assert "chain-hard" in told(tmp_path, CHAIN)
    [report] = tmp_path.glob("cache/data/*/data.json")
    now = json.loads(report.read_text())
    report.write_text(
        json.dumps({key: now[key] for key in ("files", "problems")})
    )  # as before it said more
    assert "chain-hard" in told(tmp_path, CHAIN)
