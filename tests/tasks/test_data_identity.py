"""Data are known by their content: not by the order of fields, nor by classes and modules."""

import json

import pytest
from pydantic import create_model

from rpg.config.section import Section
from rpg.config.sweep_spec import single_run
from rpg.tasks.preparation import data_digest, older_data_digests, take_over

TASKS = {
    "chain": {"type": "chain"},
    "chain with all fields": {
        "type": "chain",
        "tiers": {"hard": 3, "easy": 2},
        "train_problems": 400,
        "benchmark_problems": 8,
        "data_seed": 3,
    },
    "words": {"type": "words", "largest": 12},
    "operators": {"type": "operators", "operations": 3},
    "file": {
        "type": "file",
        "train": "t.jsonl",
        "benchmarks": {"b": "b.jsonl", "a": "a.jsonl"},
        "verifier": {"type": "math", "fallback": "boxed"},
        "chat": {"system": "s", "options": {"z": 1, "a": 2}},
        "columns": {"answer": "answer", "prompt": "prompt"},
        "template": "x {prompt}",
    },
    "file from two sources": {
        "type": "file",
        "train": [
            {
                "path": "t.jsonl",
                "weight": 2.0,
                "limit": 5,
                "columns": {"answer": "answer", "prompt": "prompt"},
            },
            "a.jsonl",
        ],
        "benchmarks": {"b": {"path": "b.jsonl", "limit": 3}},
    },
    "math": {"type": "math", "train": "t.jsonl", "benchmarks": ["own.yaml"]},
    "environment": {
        "type": "environment",
        "train": "t.jsonl",
        "benchmarks": {"b": "b.jsonl"},
        "factory": "e:E",
    },
}
PINNED = {
    "chain": "ad4fe9598ba8a77a",
    "chain with all fields": "2e37ac0f1275e937",
    "words": "3a0f20e4ce39a442",
    "operators": "702503f9aedff5be",
    "file": "2aa9fa21a41805d4",
    "file from two sources": "70b6f5b218cbdf4f",
    "math": "bd46200ff026320c",
    "environment": "adb8258af6d30d04",
}
"""Digests that version 0f49a536 gave."""
OLDER = {"chain": "bbbd530274f6ba93", "chain with all fields": "7bcdfd023493726e"}
"""Digests that version 8cf41bd2 gave, where they differ."""


@pytest.fixture
def spec_of(tmp_path):
    """From a section `task` to the specification of a run on small files."""
    for name in "tab":
        rows = [
            {"prompt": f"{name}{i} plus {i} is what number", "answer": str(i)} for i in range(20)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "e.py").write_text("class E:\n    pass\n")
    (tmp_path / "own.yaml").write_text("source: {path: b.jsonl}\ncolumns: {problem: [prompt]}\n")

    def spec(task):
        file = tmp_path / "run.yaml"
        file.write_text(json.dumps({"task": task, "model": {"type": "tiny", "warm_start": None}}))
        return single_run(file, {}, lambda spec: "data").runs[0].spec

    return spec


def reordered(section):
    """The same section as an instance of a class of another module, its fields in reverse."""
    fields = {}
    values = {}
    for name, field in reversed(type(section).model_fields.items()):
        value = getattr(section, name)
        inside = isinstance(value, Section)
        values[name] = reordered(value) if inside else value
        fields[name] = (type(values[name]) if inside else field.annotation, field)
    kind = create_model("Renamed", __module__="elsewhere", __base__=Section, **fields)
    return kind.model_construct(**values)


@pytest.mark.parametrize("name", TASKS)
def test_digests_stay_what_they_were(spec_of, name):
    assert data_digest(spec_of(TASKS[name])) == PINNED[name]


@pytest.mark.parametrize("name", TASKS)
def test_neither_class_nor_module_nor_the_order_of_fields_counts(spec_of, name):
    spec = spec_of(TASKS[name])

    other = spec.model_copy(update={"task": reordered(spec.task)})

    assert list(type(other.task).model_fields) != list(type(spec.task).model_fields)
    assert data_digest(other) == data_digest(spec)


@pytest.mark.parametrize(
    ("name", "field"), [("chain with all fields", "tiers"), ("file", "benchmarks")]
)
def test_the_order_of_tiers_and_benchmarks_counts(spec_of, name, field):
    task = TASKS[name]

    other = {**task, field: dict(reversed(task[field].items()))}

    assert data_digest(spec_of(other)) != data_digest(spec_of(task))


@pytest.mark.parametrize("name", OLDER)
def test_older_digests_of_the_same_content_are_known(spec_of, name):
    assert older_data_digests(spec_of(TASKS[name])) == (OLDER[name],)


def test_a_cache_of_an_older_version_is_used(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "data.json").write_text("{}")

    take_over(tmp_path / "new", ["absent", "old"])

    assert (tmp_path / "new" / "data.json").exists()
    assert not (tmp_path / "old").exists()
