"""Every value of a configuration is a number, a choice, a name, a path, an address or code, or it is refused."""

import re

import pytest

from rpg.config.capabilities import VERL, capability, reached
from rpg.config.errors import models_in
from rpg.config.run_spec import RunSpec
from rpg.config.section import ADDRESS, CHOICE, CODE, NAME, NUMBER, PATH
from rpg.config.verl_keys import _schema

TRUSTED = (NUMBER, CHOICE, NAME, PATH)
REACHES = re.compile(
    r"(path|file|dir|url|uri|host|address|endpoint|lib|module|cls|class|function|hook|cmd|executable|runtime_env|"
    r"template|source|server|backend|tokenizer|project|plugin|callback|custom|interaction|tool)"
)
"""Words in the names of settings by which verl, Ray, vLLM, transformers and data sets find files, hosts and code."""


def fields(model, where=""):
    for name, field in model.model_fields.items():
        dotted = f"{where}.{name}" if where else name
        inner = models_in(field.annotation)
        yield from (
            [(dotted, field)] if not inner else (leaf for each in inner for leaf in fields(each, dotted))
        )


def test_every_text_of_the_schema_is_declared():
    undeclared = {
        dotted
        for dotted, _ in fields(RunSpec)
        for _, reach, _ in reached(RunSpec, dotted, "x")
        if reach is None
    }
    assert undeclared == {".".join(VERL)}, "give it NAME, PATH, ADDRESS or CODE (rpg/config/section.py)"


def test_no_text_whose_name_says_that_it_is_opened_or_run_passes_as_a_name():
    names = {
        dotted for dotted, _ in fields(RunSpec)
        for _, reach, _ in reached(RunSpec, dotted, "x")
        if reach is NAME and REACHES.search(dotted.rpartition(".")[2])
    }  # fmt: skip
    assert names == {"task.template"}, "the text around a problem: {prompt} is replaced, nothing is evaluated"


def test_the_kinds_of_a_section_are_taken_at_their_worst():
    assert [
        reach for _, reach, _ in reached(RunSpec, "reward", [{"type": "python", "function": "os:system"}])
    ] == [
        CHOICE,
        CODE,
    ]
    assert [reach for _, reach, _ in reached(RunSpec, "track", [{"type": "wandb", "entity": "me"}])] == [
        ADDRESS
    ] * 2
    teacher = {"name": "rpg-urkl", "reference": {"type": "model", "path": "/etc"}}
    assert [reach for _, reach, _ in reached(RunSpec, "algorithm", [teacher])] == [NAME, NAME, PATH]
    assert next(reached(RunSpec, "no.such.field", "x"))[1] is None
    assert capability(dict[str, float]) is NUMBER and capability(str | None) is None


@pytest.mark.parametrize("value", ["evil", "pkg://evil.mod", ["evil"], {"evil": "evil"}])
def test_no_key_of_verl_takes_a_text_from_a_form(value):
    schema = _schema()
    assert len(schema) > 900
    for key in [*schema, *(f"+{key}" for key in schema), "+anything.at.all"]:
        for way in (
            reached(RunSpec, "backend.verl", {key: value}),
            reached(RunSpec, f"backend.verl.{key}", value),
        ):
            assert {reach for _, reach, _ in way}.isdisjoint(TRUSTED), key


def test_of_verl_s_switches_those_that_let_code_in_are_code():
    """After an upgrade of verl: whoever adds a name to `looked_at` has read what the switch does."""
    switches = {key for key, default in _schema().items() if isinstance(default, bool)}
    code = {
        key
        for key in switches
        for _, reach, _ in reached(RunSpec, "backend.verl", {key: True})
        if reach is CODE
    }
    assert {key.rpartition(".")[2] for key in code} == {"trust_remote_code"}
    suspicious = re.compile(r"remote|_code|code_|exec|eval|plugin|hook|import|unsafe|pickle")
    looked_at = {"finish_hook_all_ranks"}  # on which ranks a command runs; the command itself is a text
    names = {key.rpartition(".")[2] for key in switches - code}
    assert {name for name in names if suspicious.search(name)} == looked_at
    assert [
        reach
        for _, reach, _ in reached(RunSpec, "backend.verl", {"actor_rollout_ref.rollout.max_num_seqs": 4})
    ] == [NUMBER]
