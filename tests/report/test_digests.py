"""A night says that bits changed, in which run, at which step, by which metric, and what may have done it."""

import json

import pytest

from rpg.report.nightly_bands import band, compare, judge
from rpg.report.run_digests import compare_digests, environment, run_digest, verdict
from rpg.store import Layout
from rpg.store.run_writer import append_metrics, write_manifest
from rpg.store.samples import write_eval

PINS = {"torch": "2.9.0", "processor": "A"}


def digest(**changes):
    metrics = {"reward": "aaaaaaaabbbbbbbb", "grad_norm": "ccccccccdddddddd"}
    same = {"spec": "s", "steps": [1, 2], "weights": "w", "samples": {"b at step 2": "x"}}
    return same | {"metrics": metrics} | changes


def night(name, digests, code="c0", pins=PINS, **more):
    bare = {"revision": "0123456789abcdef", "values": {}, "failed": {}, "bits": False}
    return {"night": name, "code": code, "environment": pins, "digests": digests} | bare | more


def test_the_earliest_step_and_its_metric_are_named():
    later = {"reward": "aaaaaaaabbbbbbbb", "grad_norm": "ccccccccXXXXXXXX"}
    early = {"reward": "aaaaaaaabbbbbbbb", "grad_norm": "XXXXXXXXXXXXXXXX"}
    before = {name: digest() for name in ("a", "b", "c")}
    change = compare_digests({"a": digest(metrics=later), "b": digest(metrics=early), "c": digest()}, before)
    assert str(change) == "2 of 3 runs, first at step 1, metric grad_norm (b)"
    assert compare_digests(before, dict(before)) is None
    assert "first: weights" in str(compare_digests({"a": digest(weights="v")}, before))
    other = {"a": digest(samples={"b at step 2": "y"})}
    assert "samples of b at step 2" in str(compare_digests(other, before))
    shorter = {"a": digest(steps=[1], metrics={"reward": "aaaaaaaa", "grad_norm": "cccccccc"})}
    assert "first at step 2" in str(compare_digests(shorter, before)), "a step that is missing is a change"


def test_a_change_is_red_until_it_is_accepted_or_taken_back():
    good, bad = {"a": digest()}, {"a": digest(weights="v")}
    nights = [night("1", good)]
    said, red = verdict(night("2", bad, code="c1"), nights)
    assert red and "the code" in said
    assert said.startswith("bits changed since commit 0123456789 code c0: 1 of 1 runs")
    nights.append(night("2", bad, code="c1", bits=True))
    assert verdict(night("3", bad, code="c1"), nights)[1], "not accepted"
    assert not verdict(night("3", good, code="c2"), nights)[1], "taken back"
    nights[-1]["accepted"] = {"why": "meant"}
    assert not verdict(night("3", bad, code="c1"), nights)[1]
    assert verdict(night("3", good, code="c2"), nights)[1]


def test_other_pins_or_another_processor_change_bits_by_right_and_nothing_else_does():
    good, bad = {"a": digest()}, {"a": digest(weights="v")}
    said, red = verdict(night("2", bad, pins=PINS | {"torch": "2.10.0"}), [night("1", good)])
    assert not red and "torch (2.9.0 to 2.10.0)" in said and "the code" not in said
    said, red = verdict(night("2", bad), [night("1", good)])
    assert red and "not deterministic" in said
    said, red = verdict(night("2", {"a": digest(weights="v", spec="t")}), [night("1", good)])
    assert red and "the configuration" in said
    here = environment({"torch": "1", "prefect": "3"}, {"processor": "A", "host": "h"})
    assert here == {"torch": "1", "processor": "A"}


def test_a_night_whose_runs_failed_is_no_reference():
    broken = night("2", {}, failed={"a": "no space"})
    assert not verdict(night("3", {"a": digest()}), [night("1", {"a": digest()}), broken])[1]
    assert verdict(night("3", {"a": digest(weights="v")}), [night("1", {"a": digest()}), broken])[1]


def test_a_band_is_as_wide_as_seeds_scatter_and_begins_anew_when_a_change_is_accepted():
    low, high = band("reward", [1.0], [0.1])
    assert (low, high) == pytest.approx((1 - 4 * 0.1 * 2**0.5, 1 + 4 * 0.1 * 2**0.5))
    name = "s / v / reward"
    assert not compare({name: 1.4}, [{name: 1.0}], [{name: 0.1}])[0].red
    assert compare({name: 1.6}, [{name: 1.0}], [{name: 0.1}])[0].red
    nights = [night(str(i), {}, values={name: 0.0}, spread={name: 0.01}) for i in range(5)]
    nights.append(night("6", {}, values={name: 1.0}, spread={name: 0.01}, bits=True))
    tonight = night("7", {}, values={name: 1.0})
    assert judge(tonight, nights)[0][0].red
    nights[-1]["accepted"] = {"why": "meant"}
    assert not judge(tonight, nights)[0][0].red


def test_the_digest_of_a_run_sees_numbers_weights_and_samples_and_no_clock(tmp_path):
    def run(name, reward=0.5, seconds=1.0, weights="w", correct=True):
        folder = Layout.at(tmp_path).run("s", name)
        write_manifest(folder, {"run_id": name, "variant": "v", "algorithm": "grpo", "seed": 0, "spec": {},
                               "created": 0, "steps": 1, "benchmarks": ["b"]})  # fmt: skip
        clock = {"seconds_step": seconds, "tokens_per_second": seconds}
        append_metrics(folder, 1, {"step": 1, "reward": reward} | clock)
        end = folder.checkpoint(1)
        end.mkdir(parents=True)
        files = {"model.safetensors": {"sha256": weights}}
        (end / "checkpoint.json").write_text(json.dumps({"files": files}))
        row = {"problem_id": "p", "sample": 0, "problem": "1+1", "answer": "2", "response": "2", "extracted": "2",
               "correct": correct, "reason": "", "tokens": 1, "truncated": False}  # fmt: skip
        write_eval(folder, "b", 1, [row])
        return run_digest(folder)

    first = run("one")
    assert run("two", seconds=9.0) == first and json.loads(json.dumps(first)) == first
    for number, changes in enumerate(({"reward": 0.5 + 2**-50}, {"weights": "v"}, {"correct": False})):
        assert compare_digests({"r": run(f"other-{number}", **changes)}, {"r": first}) is not None
