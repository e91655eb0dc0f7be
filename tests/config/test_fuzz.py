"""Whatever stands in a configuration: it is used, or refused with a sentence that names the file.
Never a traceback."""

import copy

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rpg.config.sweep_spec import load_file
from rpg.errors import UserError
from rpg.tasks.preparation import data_digest

VALID = yaml.safe_load("""
name: fuzz
description: words
run:
  task: {type: chain, tiers: {easy: 2, medium: 3}, train_problems: 100, benchmark_problems: 4}
  model: {type: tiny, hidden_size: 32, warm_start: {target_accuracy: 0.5, behaviour_steps: 5}}
  algorithm: {name: rpg-urkl, beta: 0.001, clip: {low: 0.1, high: 0.2, c: 3.0},
              reference: {type: every_k, k: 4},
              kl: {type: objective, divergence: urkl}, advantage: {type: group, std: false}}
  training: {steps: 4, prompts_per_step: 8, mini_batch_prompts: 4,
             optimizer: {type: adamw, learning_rate: 0.001}}
  rollout: {group_size: 4, temperature: 1.0}
  evaluation: {every: 2, samples_per_problem: 2, engine: {type: local}, place: {type: here}}
  backend: {type: local}
axes: {algorithm: [grpo, {name: rpg-urkl, beta: 0.01}], seed: [0, 1], training.steps: [2, 4]}
zip: [[seed, training.steps]]
set: {rollout.group_size: 4}
exclude: [{algorithm: grpo, seed: 1}]
baseline: grpo
""")
RUN = VALID["run"]
# What YAML can say that Python's dump would not: written into the text in place of a marker.
RAW = [
    "2026-01-01",
    "2026-01-01 10:00:00",
    "!!binary aGVsbG8=",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "!!timestamp 2026-01-01",
    "!!float .nan",
    "!!float .inf",
    ".nan",
    "-.inf",
    "1e999",
    "1e-999",
    "!!int 7",
    "0x7f",
    "0o17",
    "1_000",
    "12:30:45",
    "!!python/object/apply:os.system [true]",
    "!foo bar",
    "? [a, b]",
    "&a [*a]",
    "*nobody",
    "<<",
    "=",
    "~",
    "yes",
    "''",
    "{[a, b]: 1}",
    "{? {a: 1} : 2}",
    "{1: 2}",
    "{a: 1, a: 2}",
    "[" * 60 + "]" * 60,
    '"\\ud800"',
    '"\\0"',
    "|\n  text",
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 60,
    "1.5e308",
    "!!str 3",
    "!!null x",
    "!!bool maybe",
    "!!int x",
    "!!float x",
    "@x",
]
WORDS = st.sampled_from(
    [
        *"grpo rpg-urkl local verl type name none ../../etc/passwd \u202e ☃".split(),
        "",
        " ",
        "a" * 5000,
    ]
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 3),
    st.sampled_from([10**9, 10**18, 2**63, 2**64, 10**30, -1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12).filter(lambda s: s.isprintable()),
    WORDS,
)
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


def places(value, at=()):
    """Every path in a nested value."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], (*at, index))


def put(value, at, new, rename):
    if not at:
        return new
    value = copy.copy(value)
    if len(at) == 1 and rename and isinstance(value, dict):
        moved = value.pop(at[0])
        value[str(new)] = moved
    else:
        value[at[0]] = put(value[at[0]], at[1:], new, rename)
    return value


@st.composite
def texts(draw):
    """A configuration with one to three things in it changed, as text."""
    value = draw(st.sampled_from([VALID, RUN]))
    raw = {}
    for number in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(value))[1:] or [()]))
        marker = f"MARKER{number}"
        kind = draw(st.sampled_from(["plain", "plain", "raw", "rename"]))
        if kind == "raw":
            raw[marker] = draw(st.sampled_from(RAW))
        value = put(value, at, marker if kind == "raw" else draw(NESTED), kind == "rename")
        if not isinstance(value, dict):
            break
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True)
    for marker, instead in raw.items():
        text = text.replace(marker, instead)
    return text


def bomb(depth):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    return "\n".join(lines)


ALWAYS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@pytest.mark.system
@settings(max_examples=1000, **ALWAYS)
@given(texts())
def test_a_thousand_random_files_end_in_a_sweep_or_in_a_sentence(tmp_path_factory, text):
    check(tmp_path_factory, text)


@pytest.mark.component
@settings(max_examples=60, **ALWAYS)
@given(texts())
@example("name: x\naxes: {algorithm.name: [[grpo]]}\n")
@example("algorithm: {name: [grpo]}\n")
@example("name: x\naxes: {seed: [2026-01-01]}\n")
@example("name: x\naxes: {seed: [!!binary aGVsbG8=]}\n")
@example("name: x\naxes: {algorithm.beta: [1e999]}\n")
@example(bomb(9))
@example("a: " + "[" * 200_000)
@example("a: " + "{b: " * 100_000)
def test_a_configuration_is_used_or_refused_with_a_sentence(tmp_path_factory, text):
    check(tmp_path_factory, text)


def check(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    message = "accepted"
    try:
        load_file(path, {}, data_digest)
    except UserError as error:
        message = str(error)
    assert message.strip() and len(message) < 20_000, message[:300]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\naxes: {seed: [!!binary aGVsbG8=]}\n", "binary"),
        ("algorithm: {name: grpo, beta: 1e999}\n", "beta"),
        (bomb(9), "aliases"),
    ],
)
def test_the_command_ends_with_2_and_a_sentence(tmp_path, command_line, text, said):
    (tmp_path / "x.yaml").write_text(text)
    code, _, errors = command_line("show", tmp_path / "x.yaml")
    assert code == 2
    assert said in errors
