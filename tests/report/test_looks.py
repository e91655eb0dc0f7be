"""What earlier looks at a growing sweep leave for the next one."""

import json
import shutil

import pytest

from rpg import stats
from rpg.report import earlier_looks, problem_scores
from rpg.report.summary import terms_of
from tests.report.sweeps import answered, demo, row, shown, summary


@pytest.fixture
def layout(tmp_path):
    return demo(tmp_path)


def test_a_report_of_the_same_runs_is_the_same_look_and_more_seeds_are_the_next(tmp_path):
    layout = demo(tmp_path)
    assert "This is look" not in shown(layout)
    shown(layout)
    [first] = layout.read_looks("demo")
    assert first["level"] == pytest.approx(0.05) and first["planned"] == 6
    record = layout.read_sweep("demo")
    layout.write_sweep(record | {"runs": [*record["runs"], "grpo-seed3", "rpg-urkl-seed3"]})
    again = summary(layout, terms=terms_of(layout, "demo")).look
    assert (again.level, again.planned) == (first["level"], 6), "as if no seeds had been added"
    demo(tmp_path, ("grpo", "rpg-urkl"), (0, 1, 2, 3))
    assert (
        "This is look 2 at these differences, with 8 finished runs (6 were planned at first)"
        in shown(layout)
    )
    assert shown(layout).count("This is look 2") == 1
    levels = {look["number"]: look["level"] for look in layout.read_looks("demo")}
    assert levels == pytest.approx({1: 0.05, 2: 0.01 * (1 - 6 / 8)})


def test_a_look_counts_also_where_one_benchmark_has_no_verdict(layout):
    for run in layout.run_folders("demo"):
        good = run.name.startswith("rpg")
        answered(run, 8, lambda problem, sample: problem % 2, benchmarks=["easy"])
        answered(run, 8, lambda problem, sample, good=good: problem % 2 or good, ["hard"])
    found = summary(layout)
    words = [row(found, "rpg-urkl", name)["verdict"] for name in ("easy", "hard")]
    assert words == ["too few problems move", "better"]
    assert found.look is not None


def test_runs_that_took_the_place_of_others_are_judged_by_themselves(tmp_path):
    """A setting of all was changed: the former runs' verdict stood beside the difference of the new
    ones."""
    layout, runs = demo(tmp_path), demo(tmp_path).read_sweep("demo")["runs"]
    for name in runs:
        shutil.copytree(layout.run("demo", name).path, layout.run("demo", f"{name}-new").path)
    for run in layout.run_folders("demo"):
        right = run.name.startswith("grpo") == run.name.endswith("new")
        answered(run, 8, lambda problem, sample, right=right: problem % 2 or right)
    assert "RPG-URKL is better than GRPO" in shown(layout)
    layout.write_sweep(layout.read_sweep("demo") | {"runs": [f"{name}-new" for name in runs]})
    assert "RPG-URKL is worse than GRPO" in (text := shown(layout)) and "This is look" not in text


def test_what_is_left_for_a_look_is_what_earlier_ones_at_its_data_left():
    """Whoever watched a training, or added a variant and seeds, had 5 % each time: verdicts were
    false in 27 and 17 %."""
    looks, found = [], {json.dumps(["a", "mean"]): (0.1, 0.3, "better")}

    def level(variants, seeds, step=8, finished=True, baseline="0", prefix=""):
        of = {
            v: problem_scores.at_step({s: f"{prefix}{v}{s}" for s in range(seeds)}, step)
            for v in "0" + variants
        }
        pairs = {v: (of[v], of["0"]) for v in variants}
        name = json.dumps([baseline, list(variants), [step], ["mean"]])
        runs = [run for side in of.values() for run, _ in side.values()] * finished
        earlier, _, left = stats.next_look(
            [*earlier_looks.grown(looks, name, pairs, {*runs})], name, runs, 9
        )
        looks.append(stats.Look(name, runs, 9, 1, left, (), None, found))
        return left, [look.results for look in earlier]

    assert [level("ab", 3, step, finished=False) for step in (2, 4)] == [(1e-6, [])] * 2
    assert level("ab", 3) == level("ab", 3, prefix="new ") == (0.05, []), (
        "what took its place is other data"
    )
    assert level("abcd", 4) == (pytest.approx(0.01 * (1 - 9 / 20)), [found])
    assert level("abc", 3) == level("abc", 3, baseline="a") == (0.05, []), (
        "nothing new; another question"
    )
    assert level("abcd", 4, step=9) == (1e-6, [{}] * 3), "found at another step"
