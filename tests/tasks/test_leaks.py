"""A benchmark problem in disguise is found in the training data; unrelated problems are not taken
for each other."""

import json
import re

import pytest

from rpg.config.run_spec import RunSpec
from rpg.config.task import RECIPE_TEMPLATE
from rpg.tasks.benchmarks import benchmark, load_benchmark
from rpg.tasks.checks import leaks
from rpg.tasks.preparation import prepare_data
from rpg.tasks.problems import Problem
from tests.data_sets import DATA, needs_data

ORIGINAL = (
    r"A tank holds $a^2 + 12$ liters of water when it is full. Each morning Maria takes out "
    r"$b$ liters, and each evening "
    r"her brother pours back half of what is missing, where $b \le a$ and both are positive "
    r"integers. After how many "
    r"evenings does the tank hold more than $\frac{3}{4}$ of its water for the first time? "
    r"Find the largest possible number."
)
OTHER = (
    "How many positive integers below 1000 have a digit sum of 7 and are not divisible by 3? " * 3
)


def changed(pattern, replacement):
    return re.sub(pattern, replacement, ORIGINAL)


FOUND = {
    "capitals, other line breaks and a word": ORIGINAL.upper()
    .replace("POSITIVE", "NEGATIVE")
    .replace(" ", "\n  "),
    "other commands": ORIGINAL.replace("\\frac", "\\dfrac"),
    "an instruction around it": "You are a careful assistant who explains each step of the "
    "solution to a student and who never skips one of them, however easy it may seem.\n\n"
    + ORIGINAL
    + "\n\nThink step by step, check the result twice, "
    "write the solution down in full sentences, and put the final answer within \\boxed{} "
    "on the last line.",
    "the recipe's prompt": RECIPE_TEMPLATE.replace("{prompt}", ORIGINAL),
    "with a second problem": f"(a) {ORIGINAL}\n\n(b) {OTHER}",
    "other delimiters": changed(r"\$([^$]+)\$", r"\\( \1 \\)"),
    "renamed variables": changed(
        r"(?<![A-Za-z\\])[ab](?![A-Za-z])", lambda m: {"a": "x", "b": "y"}[m[0]]
    ),
    "markdown": "## Task\n\n> " + changed(r"(\w+) (\w+) (\w+) ", r"**\1** *\2*\n> \3 "),
    "other numbers": changed(r"\d+", lambda m: str(int(m[0]) + 5)),
    "sentences in another order": " ".join(reversed(re.split(r"(?<=[.?!])\s+", ORIGINAL))),
    "other names and words": ORIGINAL.replace("Maria", "Tom")
    .replace("tank", "pool")
    .replace("liters", "cups"),
    "html and Unicode": "<p>"
    + ORIGINAL.replace("$", "").replace("^2", "²").replace(r"\le", "≤")
    + "</p>",
    "invisible characters": changed(" ", " \u200b").replace("er", "e\u00adr"),
    "a dialogue": f"User: {ORIGINAL}\nAssistant: {OTHER}",
}
NOT_FOUND = {
    "a paraphrase": "Some water is removed daily from a full reservoir and half the deficit is "
    "restored by night; when is it at least three quarters full?",
    "another language": "一个水箱装满时有 $a^2+12$ 升水。每天早上取出 $b$ 升，晚上补回缺少的一半。",
}


def problem(text, name="p"):
    return Problem(name, text, text, "1", "own")


def test_a_leaked_problem_is_found_in_every_listed_disguise():
    tiers = {
        name: leaks([problem(text, name)], {"own": [problem(ORIGINAL)]})
        for name, text in FOUND.items()
    }
    assert [name for name, pairs in tiers.items() if len(pairs) != 1] == []
    assert not leaks(
        [problem(OTHER), *map(problem, NOT_FOUND.values())], {"own": [problem(ORIGINAL)]}
    )


@needs_data
def test_unrelated_problems_are_told_apart():
    names = ("aime24", "aime25", "amc23", "minerva_math", "olympiadbench")
    one, two, three, *training = (
        load_benchmark(benchmark(name), folder=DATA).problems for name in names
    )
    assert leaks([*training[0], *training[1]], {"contests": [*one, *two, *three]}) == []
    assert {
        leak.training for leak in leaks(three, {"amc": three}) if leak.problem != leak.training
    } == set()


@needs_data
@pytest.mark.parametrize(("leave_out", "kept"), [(["similar"], 2), (["similar", "contained"], 1)])
def test_the_configuration_says_which_tier_leaves_out(tmp_path, leave_out, kept):
    aime = load_benchmark(benchmark("aime24"), folder=DATA).problems[0]
    rows = [(FOUND["an instruction around it"].replace(ORIGINAL, aime.text), "204"), (OTHER, "7")]
    lines = "".join(json.dumps({"problem": text, "answer": answer}) + "\n" for text, answer in rows)
    (tmp_path / "own.jsonl").write_text(lines)
    task = {
        "type": "math",
        "train": str(tmp_path / "own.jsonl"),
        "benchmarks": ["aime24"],
        "data": str(DATA),
    }
    plain = RunSpec.model_validate({"task": task})
    spec = RunSpec.model_validate({"task": {**task, "leaks": leave_out}})
    prepared = prepare_data(spec, tmp_path / "home")
    report = json.loads((prepared.train.parent / "data.json").read_text())
    assert report["sources"][0]["kept"] == kept
    assert any("1 contained" in note for note in report["notes"]) == (kept == 2)
    same = prepare_data(plain, tmp_path / "home").digest == prepared.digest
    assert same == (leave_out == ["similar"])
