"""Every value of a configuration is a number, a choice, a name, a path, an address or code, or it
is refused."""

import re
from typing import get_args

import pytest

from rpg.catalogue.schema import models_in
from rpg.config.capabilities import VERL, capability, reached, sizes
from rpg.config.run_spec import RunSpec
from rpg.config.section import (
    ADDRESS,
    CHARACTERS,
    CHOICE,
    CODE,
    ENTRIES,
    NAME,
    NUMBER,
    PATH,
    ROUNDS,
)
from rpg.config.verl_keys import _schema

TRUSTED = (NUMBER, CHOICE, NAME, PATH)
REACHES = re.compile(
    r"(path|file|dir|url|uri|host|address|endpoint|lib|module|cls|class|function|hook|cmd|executable|runtime_env|"
    r"template|source|server|backend|tokenizer|project|plugin|callback|custom|interaction|tool)"
)
"""Words in the names of settings by which verl, Ray, vLLM, transformers and data sets find files,
hosts and code."""


def fields(model, where=""):
    for name, field in model.model_fields.items():
        dotted = f"{where}.{name}" if where else name
        inner = models_in(field.annotation)
        leaves = (leaf for each in inner for leaf in fields(each, dotted))
        yield from leaves if inner else [(dotted, field)]


def reaches(field, value):
    return [reach for _, reach, _ in reached(RunSpec, field, value)]


def test_every_text_of_the_schema_is_declared():
    undeclared = {dotted for dotted, _ in fields(RunSpec) if None in reaches(dotted, "x")}
    assert undeclared == {".".join(VERL)}, (
        "give it NAME, PATH, ADDRESS or CODE (rpg/config/section.py)"
    )


def test_no_text_whose_name_says_that_it_is_opened_or_run_passes_as_a_name():
    suspicious = {
        dotted for dotted, _ in fields(RunSpec) if REACHES.search(dotted.rpartition(".")[2])
    }
    names = {dotted for dotted in suspicious if NAME in reaches(dotted, "x")}
    assert names == {"task.template"}, (
        "the text around a problem: {prompt} is replaced, nothing is evaluated"
    )


def numbers(model, where=""):
    """(dotted field, annotation, metadata) of every number of a section."""
    for dotted, field in fields(model, where):
        types = {int, float} & set(_types(field.annotation))
        if types:
            yield dotted, types, field


def _types(annotation):
    inner = get_args(annotation)
    return [leaf for each in inner for leaf in _types(each)] if inner else [annotation]


def is_bounded(field):
    text = f"{field.annotation!r} {field.metadata!r}"
    return "le=" in text or "lt=" in text


def test_every_whole_number_says_what_a_large_one_takes():
    undeclared = {
        dotted
        for dotted, types, field in numbers(RunSpec)
        if int in types
        and not dotted.startswith("algorithm")  # its numbers weigh terms; the loss takes the same
        and not is_bounded(field)
        and [limit for _, limit, _ in sizes(RunSpec, dotted, 1)] == [NUMBER]
    }
    assert undeclared == {"task.chat.options"}, "give it one of rpg.config.section.SIZES"


@pytest.mark.parametrize("given", [7, "7", 7.0])
def test_a_number_has_its_limit_however_it_is_written(given):
    found = [(limit, size) for _, limit, size in sizes(RunSpec, "training.epochs", given)]
    assert (ROUNDS, 7) in found


def test_of_lists_and_texts_the_lengths_are_sizes():
    assert list(sizes(RunSpec, "task.benchmarks", ["aime24", "x"])) == [
        ("task.benchmarks", ENTRIES, 2),
        ("task.benchmarks.0", CHARACTERS, 6),
        ("task.benchmarks.1", CHARACTERS, 1),
    ]


def test_the_kinds_of_a_section_are_taken_at_their_worst():
    assert reaches("reward", [{"type": "python", "function": "os:system"}]) == [CHOICE, CODE]
    assert reaches("track", [{"type": "wandb", "entity": "me"}]) == [ADDRESS, ADDRESS]
    teacher = {"name": "rpg-urkl", "reference": {"type": "model", "path": "/etc"}}
    assert reaches("algorithm", [teacher]) == [NAME, NAME, PATH]
    assert reaches("no.such.field", "x") == [None]
    assert capability(dict[str, float]) is NUMBER
    assert capability(str | None) is None


@pytest.mark.parametrize("value", ["evil", "pkg://evil.mod", ["evil"], {"evil": "evil"}])
def test_no_key_of_verl_takes_a_text_from_a_form(value):
    schema = _schema()
    assert len(schema) > 900
    for key in [*schema, *(f"+{key}" for key in schema), "+anything.at.all"]:
        ways = *reaches("backend.verl", {key: value}), *reaches(f"backend.verl.{key}", value)
        assert {*ways}.isdisjoint(TRUSTED), key


def test_of_verl_s_switches_those_that_let_code_in_are_code():
    """After an upgrade of verl: whoever adds a name to `looked_at` has read what the switch
    does."""
    switches = {key for key, default in _schema().items() if isinstance(default, bool)}
    code = {key for key in switches if CODE in reaches("backend.verl", {key: True})}
    assert {key.rpartition(".")[2] for key in code} == {"trust_remote_code"}
    suspicious = re.compile(r"remote|_code|code_|exec|eval|plugin|hook|import|unsafe|pickle")
    looked_at = {
        "finish_hook_all_ranks"
    }  # on which ranks a command runs; the command itself is a text
    names = {key.rpartition(".")[2] for key in switches - code}
    assert {name for name in names if suspicious.search(name)} == looked_at
    assert reaches("backend.verl", {"actor_rollout_ref.rollout.max_num_seqs": 4}) == [NUMBER]
