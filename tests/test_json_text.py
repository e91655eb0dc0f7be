"""JSON of others: what is said twice is refused, wherever it is read."""

import json

import pytest

from rpg.errors import UserError
from rpg.interop.adopting.problem_columns import parsed_texts
from rpg.interop.compare.formats import read_file
from rpg.interop.compare.rows import Choice
from rpg.interop.importing.trainer_logs import read
from rpg.json_text import DuplicateKeyError, read_json
from rpg.tasks.rows import read_rows


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 1, "answer": 2}',
        '[{"x": 1}, {"answer": 1, "x": 2, "answer": 1}]',
        '{"x": {"y": [{"answer": 1, "answer": null}]}}',
        '{"answer": 1, "\\u0061nswer": 2}',
    ],
)
def test_a_key_given_twice_is_refused_by_name_at_any_depth(text):
    with pytest.raises(DuplicateKeyError, match="the key 'answer' is given twice in one object"):
        read_json(text)


def test_other_json_is_read_as_the_standard_library_reads_it():
    text = '{"a": {"a": [1.5, "\\u2028", null, true]}, "A": [{"a": 1}, {"a": 2}]}'
    assert read_json(text) == json.loads(text)
    assert read_json(text.encode()) == json.loads(text)


def test_brackets_in_one_another_are_no_crash():
    with pytest.raises(ValueError, match="too many brackets in one another"):
        read_json("[" * 100_000)


def written(folder, name, *lines):
    path = folder / name
    path.write_text("\n".join(lines), "utf-8")
    return path


ROWS = ('{"prompt": "3 + 4", "answer": "7"}', '{"prompt": "5", "answer": "1", "prompt": "9"}')
SCORES = ('{"problem": "a", "score": 1}', '{"problem": "b", "score": 0, "score": 1}')
STEPS = ('{"step": 1, "data": {"a": 1}}', '{"step": 2, "data": {"a": 1, "a": 3}}')
HISTORY = '{"log_history": [{"step": 1, "reward": 0.5, "reward": 0.75}]}'
NUMBERED = ('{"step": 1, "reward": 0.25}', '{"step": 2, "reward": 0.5, "reward": 0.25}')


@pytest.mark.parametrize(
    ("reader", "name", "lines", "message"),
    [
        (lambda file: list(read_rows(file)), "a.jsonl", ROWS, r"line 2: .*'prompt' is given twice"),
        (lambda file: list(read_rows(file)), "a.json", [f"[{', '.join(ROWS)}]"], "given twice"),
        (lambda file: read_file(file, Choice()), "a.jsonl", SCORES, r"line 2 .*'score' is given t"),
        (lambda file: read_file(file, Choice()), "a.json", [f"[{SCORES[1]}]"], "'score' is given"),
        (lambda file: read("verl", file), "a.jsonl", STEPS, r"line 2: .*'a' is given twice"),
        (lambda file: read("trl", file), "a.json", [HISTORY], r"'reward' is given twice"),
        (lambda file: read("wandb", file), "a.jsonl", NUMBERED, r"line 2: .*'reward' is given twi"),
    ],
)
def test_every_reader_of_json_names_the_file_and_the_key(tmp_path, reader, name, lines, message):
    with pytest.raises(UserError, match=rf"{name}.*{message}"):
        reader(written(tmp_path, name, *lines))


@pytest.mark.parametrize(
    "cell",
    [
        '[{"role": "user", "content": "3", "content": "4"}]',
        "[{'role': 'user', 'content': '3', 'content': '4'}]",
    ],
)
def test_conversations_stored_as_text_are_refused_with_their_column(cell):
    rows = [{"chat": '[{"role": "user", "content": "2 + 3"}]'}, {"chat": cell}]
    with pytest.raises(UserError, match=r"column chat: the key .*content.* is given twice"):
        parsed_texts(rows)
