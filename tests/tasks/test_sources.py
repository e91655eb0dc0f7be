"""One's own data in all their forms: sources, columns, mixtures, conversations; and how a model is
given them."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from rpg.config.errors import ConfigError
from rpg.config.load import resolve
from rpg.config.task import FileTask
from rpg.tasks import DataError, kind_of, load_problems
from rpg.tasks.preparation import prepare_data, read_problems
from tests.specs import load_run
from tests.tasks.fake_hub import ask_here, card, fake_hub, json_lines

HELD = [{"prompt": "held", "answer": "0"}]
GSM8K = [
    {"question": f"Question {i}?", "answer": f"So it is <<{i}*1={i}>>{i:,}.\n#### {i:,}"}
    for i in (1, 2000, 3)
]


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def task(folder, train, **fields):
    held = jsonl(folder / "held.jsonl", fields.pop("held", HELD))
    fields.setdefault("benchmarks", {"held": {"path": held, "columns": {}}})
    return FileTask.model_validate({"type": "file", "train": train, **fields})


def test_columns_are_named_or_taken_out_of_text(tmp_path):
    rows = [
        {"q": "a", "s": r"so \boxed{\frac{1}{2}}", "meta": {"gold": 7}, "w": "x = 3; y = 4"},
        {"q": "b", "s": r"\boxed{2} no, \boxed{5}", "meta": {"gold": 8.5}, "w": "y = 6"},
    ]
    train = jsonl(tmp_path / "train.jsonl", rows)
    answers = {
        "boxed(s)": [r"\frac{1}{2}", "5"],
        "meta.gold": ["7", "8.5"],
        'regex("y = (\\d)", w)': ["4", "6"],
        "after('y =', w)": ["4", "6"],
        "w": ["x = 3; y = 4", "y = 6"],
    }
    for column, expected in answers.items():
        for verifier in ({"type": "marker"}, {"type": "reward", "at_least": 1}):
            files = task(
                tmp_path, train, columns={"prompt": "q", "answer": column}, verifier=verifier
            )
            found = load_problems(files).train
            assert [one.answer for one in found] == expected
            assert [one.text for one in found] == [
                "a",
                "b",
            ]
    assert found[0].columns == rows[0]


def test_csv_and_parquet_and_json_lines_hold_the_same(tmp_path):
    lines = "two\nlines" * 20_000  # longer than Python's csv takes by itself
    rows = [{"prompt": 'say "a", b', "answer": 1.0}, {"prompt": lines, "answer": 2.0}]
    (tmp_path / "a.csv").write_text(f'prompt,answer,,\n"say ""a"", b",1,,\n"{lines}",2,,\n')
    (tmp_path / "a.tsv").write_text(f'prompt\tanswer\n"say ""a"", b"\t1\n"{lines}"\t2\n')
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(rows), tmp_path / "a.data"
    )  # known by its content
    jsonl(tmp_path / "a.jsonl", rows)
    expected = [(row["prompt"], str(int(row["answer"]))) for row in rows]
    for ending in ("csv", "tsv", "data", "jsonl"):
        found = load_problems(task(tmp_path, tmp_path / f"a.{ending}")).train
        assert [(one.text, one.answer) for one in found] == expected, ending


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prompt,answer\na\n", "line 2: 2 columns are named, but the row has a different number"),
        ("prompt,answer\na,b,c\n", "line 2: 2 columns are named"),
        ("prompt,answer,answer\na,b,c\n", "line 1: column answer is named twice"),
        ('prompt,answer\n"a,b\n', "not CSV (unexpected end of data)"),
        ("question,answer\na,b\n", "field prompt is missing. Found: question, answer"),
    ],
)
def test_what_is_no_csv_is_told_with_its_line(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError) as error:
        load_problems(task(tmp_path, tmp_path / "a.csv"))
    assert words in str(error.value)
    assert str(tmp_path / "a.csv") in str(error.value)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """GSM8K's form on a hub on loopback, read by the real client."""
    pytest.importorskip("datasets", reason="datasets is not installed (pip install '.[math]')")
    files = {"main.jsonl": json_lines(GSM8K), "README.md": card({"main": {"train": "main.jsonl"}})}
    with fake_hub("someone/gsm8k", "c" * 40, files) as server:
        ask_here(monkeypatch, server, tmp_path)
        yield server


def test_a_data_set_of_the_hub_by_config_and_split(tmp_path, hub):
    source = {"hub": "someone/gsm8k", "config": "main", "split": "train[:2]", "revision": "c" * 40}
    chosen = task(
        tmp_path, source, columns={"prompt": "question", "answer": 'after("####", answer)'}
    )
    problems = [(one.text, one.answer) for one in load_problems(chosen).train]
    assert problems == [("Question 1?", "1"), ("Question 2000?", "2,000")]
    same = task(tmp_path, {**source, "limit": 2}, columns=chosen.columns.model_dump())
    assert kind_of(chosen).data(chosen)["train"] == kind_of(same).data(same)["train"]["content"]
    with pytest.raises(DataError, match=r"task.train: cannot read someone/gsm8k"):
        load_problems(task(tmp_path, {**source, "split": "validation"}))


def test_a_mixture_asks_every_problem_and_keeps_the_weights(tmp_path):
    few = jsonl(tmp_path / "few.jsonl", [{"prompt": f"few {i}", "answer": "1"} for i in range(3)])
    many = jsonl(
        tmp_path / "many.jsonl", [{"prompt": f"many {i}", "answer": "1"} for i in range(10)]
    )
    found = load_problems(task(tmp_path, [{"path": few, "weight": 3}, str(many)])).train
    names = [one.text.split()[0] for one in found]
    assert names.count("few") == 30
    assert names.count("many") == 10
    assert len({one.text for one in found}) == 13
    assert {one.id for one in found} == {
        one.id for one in found if one.id[:8] in ("train-1-", "train-2-")
    }
    with pytest.raises(DataError, match="with these weights one pass has"):
        load_problems(task(tmp_path, [{"path": few, "weight": 1e7}, str(many)]))


def chats(folder):
    rows = [
        {"prompt": [{"role": "user", "content": "hi"}], "answer": "1"},
        {
            "prompt": [
                {"role": "system", "content": "own"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "user", "content": "hi"},
            ],
            "answer": "2",
        },
        {
            "prompt": [
                {"role": "user", "content": "last"},
                {"role": "assistant", "content": "a demonstration"},
            ],
            "answer": "3",
        },
    ]
    return jsonl(folder / "chats.jsonl", rows)


CHAT = {
    "system": "Be good.",
    "examples": [{"prompt": "0", "response": "zero"}],
    "prefix": "Well, 😀",
    "options": {"quiet": False, "times": 2, "word": "so"},
    "template": "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}{{ (word ~ '!') * times if quiet is defined and quiet is "
    "false }}>{% endif %}",
}


def test_conversations_keep_their_own_system_message_and_get_the_examples(tmp_path):
    chosen = task(tmp_path, chats(tmp_path), template="Q {prompt}", chat=CHAT)
    first, second, third = load_problems(chosen).train
    shown = [("user", "0"), ("assistant", "zero")]
    roles = lambda one: [(m["role"], m["content"]) for m in one.messages]  # noqa: E731
    assert roles(first) == [("system", "Be good."), *shown, ("user", "Q hi")]
    asked = [("user", "one"), ("assistant", "two"), ("user", "Q hi")]
    assert roles(second) == [("system", "own"), *shown, *asked]
    assert third.demonstration == "a demonstration"
    assert third.text == "last"
    assert first.text == "hi" != second.text
    assert first.chat
    assert first.asked() == list(first.messages)
    rows = jsonl(tmp_path / "p.jsonl", [{"prompt": "x", "answer": "1"}])
    plain = load_problems(task(tmp_path, rows, chat=CHAT)).train[0]
    assert plain.asked() == "x"
    assert plain.given()[-1] == {"role": "user", "content": "x"}


def test_what_was_prepared_is_what_was_read(tmp_path):
    spec = resolve(
        {"task": task(tmp_path, chats(tmp_path), chat=CHAT).model_dump(mode="json")}, "x"
    )
    prepared = prepare_data(spec, tmp_path / "home")
    assert read_problems(prepared.train) == load_problems(spec.task).train
    (row,) = pyarrow.parquet.read_table(prepared.benchmarks["held"]).to_pylist()  # as verl reads it
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "user"]


def test_template_options_and_prefix_are_part_of_the_tokenizer(tmp_path):
    from rpg.models.initial_policy import initial_policy, preview_prompts

    model = {"type": "tiny", "hidden_size": 16, "intermediate_size": 16, "warm_start": None}
    rollout = {"max_prompt_tokens": 200, "max_response_tokens": 8}
    section = task(tmp_path, chats(tmp_path), chat=CHAT).model_dump(mode="json")
    spec = resolve({"task": section, "model": model, "rollout": rollout}, "x")
    expected = "[system:Be good.][user:0][assistant:zero][user:hi]so!so!>Well, 😀"
    [(problem, *seen), *others] = preview_prompts(
        spec, tmp_path / "home"
    )  # no model is made for it
    assert not (tmp_path / "home/cache/warm").exists()
    assert seen == [expected, len(expected)]
    assert len(others) == 2
    tokenizer = initial_policy(spec, tmp_path / "home", say=lambda line: None).tokenizer
    messages = [dict(m) for m in problem.given()]
    tokenizer.save_pretrained(tmp_path / "saved")
    from transformers import AutoTokenizer

    saved = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert (
        saved.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == expected
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"columns": {"answer": "after(answer)"}},
            "task.columns.answer: expected a column, a.b for field b",
        ),
        ({"columns": {"answer": 'regex("(", a)'}}, "task.columns.answer: not a regular expression"),
        ({"columns": {"anser": "a"}}, "task.columns.anser: unknown field; did you mean 'answer'?"),
        (
            {"train": {"path": "a", "hub": "b/c"}},
            "give either a file (path) or a data set on the hub (hub)",
        ),
        (
            {"train": {"path": "a", "split": "test"}},
            "config, split and revision apply to a data set on the hub",
        ),
        (
            {"train": [{"path": "a", "weight": 0}]},
            "task.train.0.weight: must be greater than 0",
        ),
        ({"train": []}, "task.train: "),
        ({"chat": {"template": "none.jinja"}}, "neither a Jinja template nor a readable file"),
        ({"chat": {"options": {"a-b": 1}}}, "task.chat.options.a-b"),
        (
            {"chat": {"examples": [{"prompt": "a"}]}},
            "task.chat.examples.0.response: this field is required",
        ),
    ],
)
def test_a_mistake_names_field_and_what_would_be_accepted(tmp_path, fields, words):
    base = {"type": "file", "train": "t.jsonl", "benchmarks": {"held": "held.jsonl"}}
    (tmp_path / "run.yaml").write_text(json.dumps({"task": {**base, **fields}}))
    with pytest.raises(ConfigError) as error:
        load_run(tmp_path / "run.yaml")
    assert words.lower() in str(error.value).lower()
    assert str(tmp_path / "run.yaml") in str(error.value)


@pytest.mark.parametrize(
    ("row", "columns", "words"),
    [
        (
            {"prompt": "a", "answer": "b"},
            {"answer": "after('#', answer)"},
            "column answer: contains no '#': 'b'",
        ),
        (
            {"prompt": "a", "answer": "b"},
            {"answer": "regex('x', answer)"},
            "the pattern 'x' is not in 'b'",
        ),
        (
            {"prompt": "a", "answer": "b"},
            {"answer": "gold"},
            "task.columns.answer: field gold is missing",
        ),
        (
            {"prompt": [{"role": "bot", "content": "a"}], "answer": "b"},
            {},
            "role 'bot'; accepted: system, user, assistant",
        ),
        ({"prompt": [{"content": "a"}], "answer": "b"}, {}, "message 1: expected role and content"),
        ({"prompt": [{"role": "system", "content": "a"}], "answer": "b"}, {}, "must be a user's"),
        ({"prompt": [], "answer": "b"}, {}, "expected text or a list of messages, got []"),
        (
            {"prompt": [{"role": "user", "content": " "}], "answer": "b"},
            {},
            "must be a user's, with text",
        ),
        (
            {"prompt": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
            {},
            "tool_calls are not shown",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_told_with_its_line(tmp_path, row, columns, words):
    train = jsonl(tmp_path / "train.jsonl", [{"prompt": "first", "answer": "# x"}, row])
    with pytest.raises(DataError) as error:
        load_problems(task(tmp_path, train, columns=columns))
    assert words in str(error.value)
    assert "train.jsonl: line " in str(error.value)
