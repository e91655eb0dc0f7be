"""A night says that bits changed, in which run, at which step, by which metric, and what may have
done it."""

import json

import pytest

from benchmarks.synthetic import Shape, write_sweep
from rpg import stats
from rpg.report import selection, tables
from rpg.report.nightly_bands import band, compare, judge
from rpg.report.run_digests import compare_digests, environment, run_digest, verdict
from rpg.report.statistics_digests import statistics
from rpg.report.summary import summarise
from rpg.store import Layout, database, measured
from rpg.store.run_writer import append_metrics, write_done, write_manifest
from rpg.store.samples import write_eval

PINS = {"torch": "2.9.0", "processor": "A"}


def digest(**changes):
    metrics = {"reward": "aaaaaaaabbbbbbbb", "grad_norm": "ccccccccdddddddd"}
    same = {"loss": "grpo", "back end": "local", "spec": "s", "weights": "w"}
    same |= {"steps": [1, 2], "samples": {"b at step 2": "x"}}
    return same | {"metrics": metrics} | changes


def night(name, digests, code="c0", pins=PINS, **more):
    bare = {"revision": "0123456789abcdef", "values": {}, "failed": {}, "bits": False}
    return {"night": name, "code": code, "environment": pins, "digests": digests} | bare | more


AS_BEFORE = {"a": digest()}
CHANGED = {"a": digest(weights="v")}


def is_red(tonight, nights):
    _, red = verdict(tonight, nights)
    return red


def test_the_earliest_step_and_its_metric_are_named():
    later = {"reward": "aaaaaaaabbbbbbbb", "grad_norm": "ccccccccXXXXXXXX"}
    early = {"reward": "aaaaaaaabbbbbbbb", "grad_norm": "XXXXXXXXXXXXXXXX"}
    before = {name: digest() for name in ("a", "b", "c")}
    change = compare_digests(
        {"a": digest(metrics=later), "b": digest(metrics=early), "c": digest()}, before
    )
    assert str(change) == "2 of 3 runs differ, first at step 1, metric grad_norm (b)"
    assert compare_digests(before, dict(before)) is None
    assert "first: weights" in compare_digests({"a": digest(weights="v")}, before)
    other = {"a": digest(samples={"b at step 2": "y"})}
    assert "samples of b at step 2" in str(compare_digests(other, before))
    shorter = {"a": digest(steps=[1], metrics={"reward": "aaaaaaaa", "grad_norm": "cccccccc"})}
    assert "first at step 2" in str(compare_digests(shorter, before)), (
        "a step that is missing is a change"
    )


def test_a_change_is_red_until_it_is_accepted_or_taken_back():
    nights = [night("1", AS_BEFORE)]

    said, red = verdict(night("2", CHANGED, code="c1"), nights)
    assert red
    assert "the code" in said
    assert said.startswith("results changed since commit 0123456789 (code c0): 1 of 1 runs differ")

    nights.append(night("2", CHANGED, code="c1", bits=True))
    assert is_red(night("3", CHANGED, code="c1"), nights), "not accepted"
    assert not is_red(night("3", AS_BEFORE, code="c2"), nights), "taken back"

    nights[-1]["accepted"] = {"why": "meant"}
    assert not is_red(night("3", CHANGED, code="c1"), nights)
    assert is_red(night("3", AS_BEFORE, code="c2"), nights)


def test_other_pins_or_another_processor_are_named_and_excuse_no_change():
    other = PINS | {"torch": "2.10.0"}
    nights = [night("1", AS_BEFORE)]

    said, red = verdict(night("2", CHANGED, pins=other), nights)
    assert red
    assert "torch (2.9.0 to 2.10.0)" in said
    assert "the code" not in said
    assert not is_red(night("2", AS_BEFORE, pins=other), nights)


def test_a_change_without_a_cause_is_called_not_deterministic():
    said, red = verdict(night("2", CHANGED), [night("1", AS_BEFORE)])
    assert red
    assert "not deterministic" in said


def test_a_change_of_the_configuration_is_named():
    configured = {"a": digest(weights="v", spec="t")}
    said, red = verdict(night("2", configured), [night("1", AS_BEFORE)])
    assert red
    assert "the configuration" in said


def test_the_environment_is_what_changes_bits():
    versions = {"torch": "1", "prefect": "3"}
    machine = {"processor": "A", "host": "h"}
    assert environment(versions, machine) == {"torch": "1", "processor": "A"}


GRPO = digest(spec="0")
RLOO = digest(spec="1", loss="rloo")
FULL = {"s / grpo / seed 0": GRPO, "s / rloo / seed 0": RLOO}
REPORTED = {"s / table": {"p": "1", "verdict": "2"}}


def without_metric(run, name):
    kept = {metric: value for metric, value in run["metrics"].items() if metric != name}
    return run | {"metrics": kept}


LESS = {
    "a run and its loss": (
        {"digests": {"s / grpo / seed 0": GRPO}},
        "missing runs: s / rloo / seed 0; missing losses: rloo",
    ),
    "every run": (
        {"digests": {"t / a": digest(spec="2"), "t / b": digest(spec="2")}},
        "compared: 0 of 2 runs",
    ),
    "everything": (
        {"digests": {}},
        "compared: 0 of 2 runs, 0 of 2 metrics, 0 of 2 losses, 0 of 1 back ends",
    ),
    "a metric": (
        {"digests": {name: without_metric(run, "grad_norm") for name, run in FULL.items()}},
        "missing metrics: grad_norm",
    ),
    "a statistic": (
        {"statistics": {"s / table": {"p": "1"}}},
        "missing report statistics: s / table: verdict",
    ),
}
"""What a night no longer has -> its fields, and how it is named."""


@pytest.mark.parametrize("lost", LESS)
def test_a_night_that_compares_less_is_red(lost):
    fields, named = LESS[lost]
    tonight = night("2", FULL, statistics=REPORTED) | fields

    said, red = verdict(tonight, [night("1", FULL, statistics=REPORTED)])

    assert red
    assert "results missing since commit 0123456789" in said
    assert named in said


@pytest.mark.parametrize("lost", LESS)
def test_a_night_that_compared_less_is_no_reference_until_it_is_accepted(lost):
    fields, _ = LESS[lost]
    less = night("2", FULL, statistics=REPORTED) | fields
    nights = [night("1", FULL, statistics=REPORTED), less | {"bits": True}]

    said, _ = verdict(night("3", FULL, statistics=REPORTED), nights)
    assert said.startswith("every number is bit for bit as in night 1")

    nights[-1]["accepted"] = {"why": "meant"}
    compares_nothing = not less["digests"]
    assert is_red(less | {"night": "3"}, nights) == compares_nothing


def test_new_runs_metrics_and_tables_are_noted_and_do_not_make_a_night_red():
    more = {
        name: run | {"metrics": run["metrics"] | {"brand_new": "ffff"}}
        for name, run in FULL.items()
    }
    more["new / grpo / seed 0"] = digest()
    reported = {"s / table": {**REPORTED["s / table"], "new": "3"}, "new / table": {}}

    said, red = verdict(
        night("2", more, statistics=reported), [night("1", FULL, statistics=REPORTED)]
    )

    assert not red
    assert "2 of 2 runs, 2 of 2 metrics, 2 of 2 losses, 1 of 1 back ends, 2 of 2 report" in said
    assert "new runs: new / grpo / seed 0; " in said
    assert "new metrics: brand_new; " in said
    assert "new report statistics: s / table: new" in said


def test_a_report_statistic_that_changed_is_red():
    changed = {"s / table": {"p": "X", "verdict": "2"}}
    said, red = verdict(
        night("2", FULL, statistics=changed), [night("1", FULL, statistics=REPORTED)]
    )
    assert red
    assert said.startswith("report statistics changed since")
    assert "s / table: p" in said


def test_a_sweep_whose_file_was_renamed_is_the_same_sweep_its_bands_included():
    def named(name, sweep, reward):
        digests = {f"{sweep} / {run.partition(' / ')[2]}": value for run, value in FULL.items()}
        reported = {f"{sweep} / table": REPORTED["s / table"]}
        values = {f"{sweep} / grpo / reward": reward}
        return night(name, digests, statistics=reported, values=values)

    nights = [named(str(number), "s", 0.5) for number in range(4)]
    numbers, said, red = judge(named("4", "renamed", 0.5), nights)
    assert not red and "compared: 2 of 2 runs" in said and not any(number.red for number in numbers)
    assert [number.red for number in judge(named("4", "renamed", 0.9), nights)[0]] == [True]


@pytest.fixture(scope="module")
def two_nights(tmp_path_factory):
    """The same sweep under the names of two nights, in two data folders, beside another sweep in
    one of them."""
    shape = Shape(steps=4, eval_every=4, problems=6, samples=4, benchmarks=("easy", "hard"))
    layouts = [
        write_sweep(tmp_path_factory.mktemp(name), name, ("grpo", "rpg-urkl"), (0, 1, 2), shape)
        for name in ("monday", "tuesday")
    ]
    beside = layouts[1].run("another", "run")
    fields = {"run_id": "r", "variant": "v", "algorithm": "grpo", "seed": 0, "spec": {}}
    write_manifest(beside, fields | {"created": 0, "steps": 1, "benchmarks": []})
    append_metrics(beside, 1, {"step": 1, "a_metric_of_another_sweep": 0.5})
    before, again = (statistics(layout, {"s": layout.sweeps()[-1]}) for layout in layouts)
    assert {"s / table", "s / view scores", "s / view paired", "s / curves", "s / notes"} <= set(
        before
    )
    assert again == before, "the name of a night is no part of its digests"
    return layouts[1], before


FAULTS = {
    "p-values": (stats.Family, "p_values", lambda real: lambda self, *at: real(self, *at) / 2),
    "intervals": (
        stats.Family,
        "intervals",
        lambda real: lambda self, level, *how: real(self, level / 2, *how),
    ),
    "the verdict's bound": (
        stats,
        "verdict",
        lambda real: lambda low, high: real(low - 1, high + 1),
    ),
    "the power of a design": (stats, "detectable", lambda real: lambda *a: real(*a) + 1e-6),
    "mean accuracy": (stats, "accuracy", lambda real: lambda a: real(a)._replace(mean=0.5)),
    "a curve's interval": (measured, "t_quantile", lambda real: lambda df: real(df) * 1.01),
    "a printed number": (tables, "accuracy", lambda real: lambda value: f"{value:.2f}"),
    "the last checkpoint": (
        selection,
        "_complete",
        lambda real: lambda *a: {0: max(real(*a).items())[1]},
    ),
    "rows that are read": (
        database,
        "ingest",
        lambda real: lambda db, at, runs, rest: real(db, at, runs[:-1], rest),
    ),
}


@pytest.mark.component
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_statistics_or_store_changes_a_digest(fault, two_nights, monkeypatch):
    tuesday, before = two_nights
    module, name, faulty = FAULTS[fault]
    monkeypatch.setattr(module, name, faulty(getattr(module, name)))
    if module is database:
        for path in tuesday.analytics.glob("*"):
            path.unlink()
    assert statistics(tuesday, {"s": "tuesday"}) != before
    if module is database:
        for path in tuesday.analytics.glob("*"):
            path.unlink()


@pytest.mark.component
def test_the_names_of_superseded_runs_are_no_part_of_the_digests(tmp_path):
    """They have other ones each night, by which their rows were put in order."""
    shape = Shape(steps=4, eval_every=4, problems=6, samples=4, benchmarks=("easy",))
    found = []
    for home, names in (("monday", "abc"), ("tuesday", "cab")):
        layout = write_sweep(tmp_path / home, "s", ("grpo", "rpg-urkl"), (0, 1, 2), shape)
        record = layout.read_sweep("s")
        old = [run for run in record["runs"] if run.startswith("rpg-urkl")]
        layout.write_sweep({**record, "runs": [run for run in record["runs"] if run not in old]})
        for run, name in zip(old, names, strict=True):
            layout.run("s", run).path.rename(layout.run("s", f"rpg-urkl-{name}").path)
        found.append(statistics(layout, {"s": "s"}))

    assert found[0] == found[1]


@pytest.mark.component
def test_the_speed_of_runs_is_no_part_of_the_digests(tmp_path):
    """On a busy machine another variant is the fastest, and others are not measured at equal
    seconds."""
    shape = Shape(steps=4, eval_every=2, problems=6, samples=4, benchmarks=("easy",))
    found = []
    for home, slow in (("monday", "grpo"), ("tuesday", "dapo")):
        layout = write_sweep(tmp_path / home, "s", ("grpo", "dapo", "rpg-urkl"), (0, 1), shape)
        for folder in layout.run_folders("s"):
            folder.eval_path("easy", 0).unlink()
            folder.eval_path("easy", 2).unlink()
            rows = folder.read_metrics()
            for row in rows:
                row["seconds_step"] = 3.0 if folder.name.startswith(slow) else 1.0
            lines = [json.dumps(row) for row in rows]
            folder.metrics_path(1).write_text("\n".join(lines) + "\n")
            folder.done_path.unlink()
            write_done(folder, seconds=1.0, attempts=1)
        found.append(statistics(layout, {"s": "s"}))
        with database.connect(layout) as db:
            notes = summarise(db, "s").notes
        assert [note for note in notes if "at equal seconds" in note]

    assert found[0]["s / notes"] == found[1]["s / notes"]


def test_a_night_whose_runs_failed_is_no_reference():
    nights = [night("1", AS_BEFORE), night("2", {}, failed={"a": "no space"})]
    assert not is_red(night("3", AS_BEFORE), nights)
    assert is_red(night("3", CHANGED), nights)


REWARD = "s / v / reward"


def rewarded(name, value, **more):
    """A night with one number, whose seeds scatter by 0.01."""
    return night(name, {}, values={REWARD: value}, spread={REWARD: 0.01}, **more)


def test_a_band_is_as_wide_as_seeds_scatter():
    half = 4 * 0.1 * 2**0.5
    assert band("reward", [1.0], [0.1]) == pytest.approx((1 - half, 1 + half))

    def red(value):
        (number,) = compare({REWARD: value}, [{REWARD: 1.0}], [{REWARD: 0.1}])
        return number.red

    assert not red(1.4)
    assert red(1.6)


def test_a_band_begins_anew_when_a_change_is_accepted():
    nights = [rewarded(str(number), 0.0) for number in range(5)]
    nights.append(rewarded("6", 1.0, bits=True))

    def red():
        (number,), _, _ = judge(rewarded("7", 1.0), nights)
        return number.red

    assert red()
    nights[-1]["accepted"] = {"why": "meant"}
    assert not red()


def test_the_digest_of_a_run_sees_numbers_weights_and_samples_and_no_clock(tmp_path):
    def run(name, reward=0.5, seconds=1.0, weights="w", correct=True):
        folder = Layout.at(tmp_path).run("s", name)
        write_manifest(
            folder,
            {
                "run_id": name,
                "variant": "v",
                "algorithm": "grpo",
                "seed": 0,
                "spec": {},
                "created": 0,
                "steps": 1,
                "benchmarks": ["b"],
            },
        )
        clock = {"seconds_step": seconds, "tokens_per_second": seconds}
        append_metrics(folder, 1, {"step": 1, "reward": reward} | clock)
        end = folder.checkpoint(1)
        end.mkdir(parents=True)
        files = {"model.safetensors": {"sha256": weights}}
        (end / "checkpoint.json").write_text(json.dumps({"files": files}))
        row = {
            "problem_id": "p",
            "sample": 0,
            "problem": "1+1",
            "answer": "2",
            "response": "2",
            "extracted": "2",
            "correct": correct,
            "reason": "",
            "tokens": 1,
            "truncated": False,
        }
        write_eval(folder, "b", 1, [row])
        return run_digest(folder)

    first = run("one")
    assert run("two", seconds=9.0) == first and json.loads(json.dumps(first)) == first
    for number, changes in enumerate(
        ({"reward": 0.5 + 2**-50}, {"weights": "v"}, {"correct": False})
    ):
        assert compare_digests({"r": run(f"other-{number}", **changes)}, {"r": first}) is not None
