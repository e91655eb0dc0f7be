"""rpg adopt: from somebody's problems to files that train, saying all that is left out."""

import json
import shlex
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from rpg.cli import load
from rpg.errors import UserError
from rpg.tasks import load_problems
from tests.interop.adopting.folders import adopt, adopted, gsm8k, rows_of, write


def test_ordinary_data_becomes_a_sweep_and_all_that_is_left_out_is_said(home):
    gsm8k(home / "My sums #1.jsonl")
    said = adopt("My sums #1.jsonl", "--no-samples").output
    folder = home / "My sums #1"
    left_out = (folder / "left-out.txt").read_text()
    for line, why in (
        (6, "not JSON"),
        (7, "got nan"),
        (9, "contains no '####'"),
        (0, "repeated: line"),
    ):
        assert why in left_out and why in said and (not line or f"line {line}: " in left_out)
    assert len(left_out.splitlines()) == 4
    spec = adopted(folder)
    splits = load_problems(spec.task)
    assert (len(splits.train), len(splits.benchmarks["held-out"])) == (54, 6)
    assert {problem.answer for problem in splits.train} <= {str(n + 7) for n in range(60)}
    assert (spec.task.verifier.match, spec.task.verifier.marker) == ("number", "####")
    [command] = [line for line in said.splitlines() if line.startswith("next: ")]
    words = shlex.split(command.removeprefix("next: "))
    assert words[-2:] == ["sweep", "My sums #1/sweep.yaml"]
    shown = CliRunner().invoke(load(), ["show", words[-1]], catch_exceptions=False)
    assert shown.exit_code == 0 and "6 runs" in shown.output
    with pytest.raises(UserError, match="already exists"):
        adopt("My sums #1.jsonl")


def test_of_a_folder_the_files_are_told_apart_and_overlaps_left_out(home):
    (home / "sums").mkdir()
    gsm8k(home / "sums/train.jsonl")
    rows = [f"Ann has {n} pens and gets 7. How many?,#### {n + 7}" for n in (5, 99)]
    (home / "sums/test.csv").write_text("\n".join(["question,answer", rows[0], "torn", rows[1]]))
    said = adopt("sums", "--into", "lab", "--model", "org/some-model", "--no-samples").output
    assert "test.csv: line 3: 2 columns are named" in said and "leaked: train-00006" in said
    task = adopted(home / "lab").task
    assert (
        load_problems(task)
        .benchmarks["held-out"][0]
        .prompt.endswith('should be "####" and the answer.')
    )


def test_facts_are_put_before_the_question_and_other_text_is_named_first(home):
    rows = [
        {
            "Context": f"A shop has {n} red and 4 blue cups.",
            "Question": "How many cups are there?",
            "hint": f"Count the {n} red ones first",
            "Answer": f"{n + 4} (cups)",
        }
        for n in range(30)
    ]
    write(home / "shop.jsonl", rows)

    said = adopt("shop.jsonl", "--no-samples").output

    prompts = {row["adopted_prompt"] for row in rows_of(home / "shop")}
    assert "A shop has 7 red and 4 blue cups.\n\nHow many cups are there?" in prompts
    assert "the prompt is Context and Question, a paragraph each" in said
    assert said.index("not used, with text: hint") < said.index("prompt is adopted_prompt")
    assert said.count("--- prompt ") == 8
    assert said.count("How many cups are there?") >= 8
    assert adopted(home / "shop").task.verifier.type == "math", "which reads the unit"
    assert "not used, with text: hint" in (home / "shop/run.yaml").read_text()


def test_the_input_of_an_instruction_follows_it(home):
    rows = [
        {"instruction": "Add the numbers.", "input": f"{n}, 5", "output": str(n + 5)}
        for n in range(30)
    ]
    write(home / "add.jsonl", rows)

    adopt("add.jsonl", "--no-samples")

    prompts = {row["adopted_prompt"] for row in rows_of(home / "add")}
    assert len(prompts & {f"Add the numbers.\n\n{n}, 5" for n in range(30)}) == 27


CITIES = ["Rome", "Oslo", "Lima", "Bern"]


@pytest.mark.parametrize(
    ("choices", "answers"),
    [
        ({"choices": CITIES}, [0, 1, 2, 3]),
        ({"options": CITIES}, [1, 2, 3, 4]),
        ({"options": CITIES}, "ABCD"),
        ({"choices": {"text": CITIES, "label": ["1", "2", "3", "4"]}}, "1234"),
        ({"endings": json.dumps(CITIES)}, CITIES),
        (dict(zip("ABCD", CITIES, strict=True)), "abcd"),
    ],
)
def test_choices_follow_the_question_with_letters(home, choices, answers):
    rows = [
        {"question": f"Which city has number {n}?", "answer": answers[n % 4]} | choices
        for n in range(40)
    ]
    write(home / "cities.jsonl", rows)

    said = adopt("cities.jsonl", "--model", "org/m", "--no-samples").output

    written = rows_of(home / "cities") + rows_of(home / "cities", "held-out")
    by_prompt = {row["adopted_prompt"]: row["adopted_answer"] for row in written}
    listed = "A. Rome\nB. Oslo\nC. Lima\nD. Bern"
    assert by_prompt[f"Which city has number 6?\n\n{listed}"] == "C"
    assert "the answer is the letter of the choice that answer names" in said
    task = adopted(home / "cities").task
    assert (task.verifier.type, task.verifier.match) == ("marker", "exact")
    assert "letter of the right choice" in task.template


def test_numbered_choices_without_a_first_are_refused(home):
    rows = [{"question": f"Which, {n}?", "choices": CITIES, "answer": 1 + n % 3} for n in range(20)]
    write(home / "some.jsonl", rows)

    with pytest.raises(UserError, match="whether the first choice is 0 or 1 is not known"):
        adopt("some.jsonl")


def test_an_answer_that_names_no_choice_is_left_out(home):
    rows = [
        {"question": f"Which, {n}?", "choices": CITIES, "answer": CITIES[n % 4]} for n in range(20)
    ]
    write(home / "odd.jsonl", [*rows, {"question": "And?", "choices": CITIES, "answer": "Paris"}])

    assert "'Paris' names none of the choices" in adopt("odd.jsonl", "--no-samples").output


@pytest.mark.parametrize(
    ("golds", "verifier", "match"),
    [
        ([f"\\frac{{{n}}}{{{n + 1}}}" for n in range(1, 40)], "math", None),
        ([f"x^2+{n}" for n in range(2, 40)], "math", None),
        ([f"{n},000" for n in range(1, 40)], "marker", "number"),
        ([f"${n}.50" for n in range(1, 40)], "marker", "number"),
        ([f"{n} apples" for n in range(1, 40)], "math", None),
        ([["yes", "no", "Oslo"][n % 3] for n in range(40)], "marker", "exact"),
    ],
)
def test_the_verifier_fits_the_form_of_the_answers(home, golds, verifier, match):
    write(home / "a.jsonl", [{"prompt": f"{n}?", "answer": g} for n, g in enumerate(golds)])

    adopt("a.jsonl", "--no-samples")

    chosen = adopted(home / "a").task.verifier
    assert chosen.type == verifier
    assert getattr(chosen, "match", None) == match


def test_numbers_of_any_length_are_answers(home):
    golds = ["3" * 390 + str(n) for n in range(10, 30)]
    lines = [f'{{"prompt": "{gold[-2:]}?", "answer": {gold}}}' for gold in golds]
    (home / "long.jsonl").write_text("\n".join(lines))

    adopt("long.jsonl", "--no-samples")

    problems = load_problems(adopted(home / "long").task).train
    assert {problem.answer for problem in problems} < set(golds)


@pytest.mark.parametrize("dump", [json.dumps, str])
def test_conversations_that_are_stored_as_text_are_read(home, dump):
    rows = [
        {
            "prompt": dump([{"role": "user", "content": f"What is {n} + 1?"}]),
            "reward_model": dump({"ground_truth": str(n + 1)}),
        }
        for n in range(30)
    ]
    write(home / "talk.jsonl", rows)

    said = adopt("talk.jsonl", "--no-samples").output

    problems = load_problems(adopted(home / "talk").task).train
    assert {"What is 4 + 1?", "What is 5 + 1?"} & {problem.text for problem in problems}
    assert "column prompt: JSON that was stored as text is read" in said


def test_a_list_in_a_file_and_decimals_and_bytes_of_parquet_are_read(home):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": f"{n} + 1?", "answer": str(n + 1)} for n in range(30)]
    (home / "list.json").write_text(json.dumps(rows, indent=1))
    table = pyarrow.table(
        {
            "prompt": [f"{n} / 2?".encode() for n in range(30)],
            "answer": pyarrow.array([Decimal(n) / 2 for n in range(30)]),
        }
    )
    pyarrow.parquet.write_table(table, home / "halves.parquet")

    adopt("list.json", "--no-samples")
    adopt("halves.parquet", "--no-samples")

    assert len(rows_of(home / "list")) == 27
    problems = load_problems(adopted(home / "halves").task).train
    answers = {problem.text: problem.answer for problem in problems}
    assert {answers.get("7 / 2?"), answers.get("9 / 2?")} & {"3.5", "4.5"}


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        (
            "a.jsonl",
            '{"x": 1}\nbroken',
            "no column holds prompts; .*columns: x\n  a.jsonl: line 2: not JSON",
        ),
        ("a.jsonl", '{"prompt": "1"}', "no column holds answers, and no function gives rewards"),
        (
            "a.jsonl",
            '{"prompt": "1", "answer": "1"}',
            "0 rows to train on, 1 to hold out; at least one each",
        ),
        (
            "a.sh",
            "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
            "data.train_files=$D/a.parquet",
            "names no data(.|\n)*data.train_files",
        ),
        ("a.py", "import", "could not be read"),
        ("a.txt", "", "does not exist, or is of another kind; expected .jsonl"),
    ],
)
def test_what_cannot_be_adopted_is_said_in_a_sentence(home, file, text, why):
    (home / file).write_text(text)
    with pytest.raises(UserError, match=why):
        adopt(file)
    assert not (home / "a").exists()


@pytest.mark.component
def test_samples_before_any_training_say_what_the_model_can_do(home):
    rows = [json.dumps({"prompt": f"{n}+1?", "answer": str(n + 1)}) for n in range(40)]
    (home / "sums.jsonl").write_text("\n".join(rows))
    said = adopt("sums.jsonl").output
    assert "before any training: 0 of 64 responses end with an answer, 0 with the right one" in said
    assert "the reward has no spread in 8 of 8 groups, which teach nothing" in said
