"""What is wrong with a study file is said with the file, the field, the value and what would be
accepted."""

import json
from pathlib import Path

import pytest
import yaml

from rpg.config.errors import ConfigError
from rpg.config.shipped import SHIPPED
from rpg.study.plans import decided, portions
from rpg.study.proposals import propose
from rpg.study.spec import Range, load_study
from rpg.study.tuning import Trial, equal_settings, pruned_and_due, remarks, winner
from tests.study.stand_ins import RATE, run, study_file


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("studies/*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_load(path):
    study = load_study(path)
    assert study.spec.name == path.stem
    assert study.spec.question
    assert len(study.variants) > 1


@pytest.mark.parametrize(
    "mistake", yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))
)
def test_a_mistake_is_explained(tmp_path, mistake):
    path = study_file(tmp_path, **mistake["changes"])
    with pytest.raises(ConfigError, match=mistake["message"]) as error:
        load_study(path)
    assert str(error.value).startswith(str(path))


def test_problems_that_are_tuned_on_cannot_be_reported_under_another_name(tmp_path):
    rows = [{"prompt": f"p{n}", "answer": str(n), "demonstration": f"#{n}"} for n in range(30)]
    for name, part in {"train": rows[:20], "held": rows[20:26], "tune": rows[25:]}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    path = study_file(tmp_path)
    content = yaml.safe_load(path.read_text())
    files = {"held": str(tmp_path / "held.jsonl"), "tune": str(tmp_path / "tune.jsonl")}
    content["run"]["task"] = {
        "type": "file",
        "train": str(tmp_path / "train.jsonl"),
        "benchmarks": files,
    }
    content["tune"]["objective"] = {"benchmarks": ["tune"]}
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"a problem of tune is also in held"):
        run(tmp_path / "data", path)


def of(number, *outcomes, rate=1e-3):
    return Trial(number, {RATE: rate}, outcomes)


def test_the_better_half_goes_on_and_a_pruned_trial_cannot_win():
    first = (0.5, 0.9, 0.7, 0.7, float("nan"))
    batch = [of(number, value, None) for number, value in enumerate(first)]
    trials, due = pruned_and_due(batch, True)
    assert due == [(1, 1), (2, 1)]  # of equal ones the earlier
    ended = [
        of(0, 0.5, None),
        of(1, 0.9, 0.1),
        of(2, 0.7, 0.5),
        of(3, 0.7, None),
        of(4, float("nan"), None),
    ]
    trials, due = pruned_and_due(ended, True)
    assert due == []
    assert [one.state for one in trials] == ["pruned", "finished", "finished", "pruned", "failed"]
    assert winner(trials).number == 2
    assert pruned_and_due(batch, False)[1] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert winner([of(0, None), of(1, float("nan"))]) is None


def test_a_reader_is_told_where_a_search_ends_at_its_edge_and_what_is_equal():
    space = {RATE: Range(log=(1e-4, 1e-2))}
    inside = [of(n, 0.5 + n / 100) for n in range(5)]
    assert list(remarks("one", space, [inside])) == []
    at_end = [*inside, of(5, 0.9, rate=9.5e-3)]
    [edge] = remarks("one", space, [inside, at_end])
    where = "the largest you allowed in 1 of 2 searches (0.0001 to 0.01): a wider space"
    assert f"one: the best {RATE} is {where}" in edge
    [short] = remarks("one", space, [inside[:2]])
    assert "one: a search with 2 finished trials for 1 field is short" in short
    [equal] = equal_settings({"one": ["a", "b"], "two": ["a", "b"], "three": ["c", "d"]})
    assert equal == "two and one are the same runs: their settings are equal, so they cannot differ"


def test_proposals_follow_from_seed_and_earlier_trials_alone():
    space = {
        RATE: Range(log=(1e-4, 1e-2)),
        "layers": Range(linear=(1, 4)),
        "clip": Range(choices=(None, {"low": 0.1})),
    }
    first = propose(space, [], 12, 7)
    assert first == propose(space, [], 12, 7) != propose(space, [], 12, 8)
    layers = {one["layers"] for one in first}
    assert set(map(type, layers)) == {int}
    assert layers <= {1, 2, 3, 4}
    assert all(one["clip"] in (None, {"low": 0.1}) and 1e-4 <= one[RATE] <= 1e-2 for one in first)
    # After many trials that are the better the smaller the rate, small rates are proposed.
    earlier = [Trial(n, one, (-one[RATE],)) for n, one in enumerate(first)]
    later = propose(space, earlier, 8, 7)
    assert later == propose(space, earlier, 8, 7)
    assert sum(one[RATE] for one in later) / 8 < sum(one[RATE] for one in first) / 12


def test_looks_come_with_more_seeds_each_until_differences_are_decided():
    assert portions([0, 1, 2, 3, 4], 3) == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert portions([5, 6], 1) == [[5, 6]]

    def look(*results):
        return {json.dumps([str(n), "mean"]): one for n, one in enumerate(results)}

    assert decided(look((0.01, 0.2, "better"), (-0.02, 0.03, "within noise")), "mean", 0.03)
    assert not decided(look((0.01, 0.2, "better"), (-0.02, 0.04, "within noise")), "mean", 0.03)
    assert not decided({}, "mean", 0.03)
