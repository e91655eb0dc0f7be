"""A comparison shows the runs of the sweep's newest file and no others, in every view; older ones
are named."""

import json
import shutil

import pytest

from benchmarks.synthetic import Shape, write_run, write_sweep
from flows.monitor import Watch
from rpg.config.identity import identities
from rpg.config.sweep_spec import load_file
from rpg.report.summary import summarise
from rpg.store import Layout, queries
from rpg.store.current import (
    RECORDED,
    NotComparable,
    current_runs,
    flat,
    how_it_came,
    imported_runs,
    require_comparable,
    scores_of,
    superseded,
    why_superseded,
)
from rpg.store.database import build, connect
from rpg.store.run_folder import IMPORTED
from rpg.store.run_writer import write_manifest
from rpg.store.samples import read_eval
from tests.config.pin_identities import shipped_sweeps

SHAPE = Shape(steps=4, eval_every=2, problems=6, samples=2, benchmarks=("easy", "hard"), metrics=3)
VARIANTS = ("grpo", "rpg-urkl")
WHY = "training.optimizer.learning_rate=0.0001, now 0.02"


@pytest.fixture
def twice(tmp_path):
    """A sweep, and the same name again with another learning rate: its old runs were good, its new
    ones are not."""
    layout = write_sweep(tmp_path, "demo", VARIANTS, (0, 1), SHAPE)
    first = layout.read_sweep("demo")
    for name in first["runs"]:
        _rate(layout.run("demo", name), 0.0001)
    renewed = []
    for name in first["runs"]:
        variant, _, seed = name.rpartition("-seed")
        run = layout.run("demo", f"new-{name}")
        write_run(run, variant, int(seed), 0.0, SHAPE, "grpo")
        _rate(run, 0.02)
        renewed.append(run.name)
    layout.write_sweep(first | {"runs": renewed})
    return layout


def _rate(run, rate):
    manifest = run.read_manifest()
    manifest["spec"]["training"]["optimizer"] = {"learning_rate": rate}
    write_manifest(run, manifest)


def test_every_view_shows_the_newest_runs_only_and_the_older_ones_are_named(twice):
    new = {f"new-{variant}-seed{seed}" for variant in VARIANTS for seed in (0, 1)}
    assert {folder.name for folder in current_runs(twice, "demo")} == new
    assert {view.name for view in Watch(current_runs(twice, "demo")).views()} == new
    build(twice)
    with connect(twice) as db:
        for view in ("curves", "scores", "last_best"):
            assert {
                run for (run,) in db.execute(f"SELECT DISTINCT run FROM {view}").fetchall()
            } == new, view
        pairs = db.execute("SELECT count(DISTINCT seed), count(*) FROM paired").fetchall()
        assert pairs == [(2, 2 * 2 * 6)]
        assert set(queries.runs(db, "demo")["run"]) == new
        assert queries.sweeps(db)[["runs", "done", "superseded"]].to_numpy().tolist() == [[4, 4, 4]]
        assert set(queries.variants(db, ["demo"])["variant"]) == set(VARIANTS)
        summary = summarise(db, "demo")
        [older] = db.execute(
            "SELECT min(variant) FROM runs WHERE superseded IS NOT NULL"
        ).fetchall()
        curves = queries.metric_curves(db, [queries.Series("demo", "grpo")], ["reward"])
        means = {
            (variant, name): mean
            for variant, name, mean in db.execute(
                "SELECT variant, benchmark, avg(accuracy) FROM scores WHERE step = 4 GROUP BY ALL"
            ).fetchall()
        }
    assert set(summary.table["variant"]) == set(VARIANTS)
    assert set(summary.table["seeds"]) == {2}
    assert list(superseded(twice, "demo").values()) == [WHY] * 4
    assert older == ("grpo [training.optimizer.learning_rate=0.0001]",)
    assert f"4 older runs of this sweep superseded, and not included here: {WHY}" in summary.notes
    assert set(curves["seeds"]) == {2}, "an old run was averaged in as a further seed"
    for row in summary.table.itertuples():
        assert row.last == pytest.approx(means[row.variant, row.benchmark])
        numbers = [
            _accuracy(twice, f"new-{row.variant}-seed{seed}", row.benchmark) for seed in (0, 1)
        ]
        assert row.last == pytest.approx(sum(numbers) / 2)


def _accuracy(layout, run, benchmark):
    names = SHAPE.benchmarks if benchmark == "mean" else [benchmark]
    shares = [
        read_eval(layout.run("demo", run), name, 4).to_pandas()["correct"].mean() for name in names
    ]
    return sum(shares) / len(shares)


def test_an_incremental_build_marks_and_unmarks(twice):
    new = twice.read_sweep("demo")
    build(twice)
    twice.write_sweep(new | {"runs": [name.removeprefix("new-") for name in new["runs"]]})
    build(twice)
    with connect(twice) as db:
        assert set(queries.runs(db, "demo")["run"]) == {
            name.removeprefix("new-") for name in new["runs"]
        }
        variants = set(queries.runs(db, "demo", superseded=True)["variant"])
    assert "grpo [training.optimizer.learning_rate=0.02]" in variants
    assert len(variants) == 4


@pytest.mark.parametrize(
    ("old", "kept", "why"),
    [
        (["rpg-urkl-seed0", "rpg-urkl-seed1"], 2, r"differ in training\.optimizer\.learning_rate"),
        (["grpo-seed0"], 4, "count twice"),
    ],
)
def test_runs_that_cannot_stand_in_one_table_are_refused(twice, old, kept, why):
    new = twice.read_sweep("demo")
    twice.write_sweep(
        new | {"runs": new["runs"][:kept] + old}
    )  # a fault of ours, or a file edited by hand
    build(twice)
    with connect(twice) as db, pytest.raises(NotComparable, match=why):
        summarise(db, "demo")


def manifest(spec, seed=0, variant="grpo", axes=None, data="d", identified=True, **settings):
    """Of a run whose settings are its spec, flat, or else `settings`; `identified` as since format
    2."""
    record = {"settings": settings or flat(spec), "data": data} if identified else None
    return {"variant": variant, "seed": seed, "axes": axes, "spec": spec, "identity": record}


def rewards(*digests):
    settings = {f"reward.{number}.digest": digest for number, digest in enumerate(digests)}
    return manifest(
        {"reward": [{"type": "python", "digest": digest} for digest in digests]}, **settings
    )


@pytest.mark.parametrize(
    ("old", "current", "why"),
    [
        (
            manifest({"beta": 1}, 7),
            [manifest({"beta": 2}, 0), manifest({"beta": 3}, 1)],
            "beta=1, now 2",
        ),
        (
            manifest({"beta": 1}, 1),
            [manifest({"beta": 2}, 0), manifest({"beta": 3}, 1)],
            "beta=1, now 3",
        ),
        (manifest({"beta": 1}), [manifest({"beta": 2}, variant="rloo")], "not in the newest file"),
        (manifest({"beta": 1}), [manifest({"beta": 1})], "not in the newest file"),
        (manifest({"beta": 1}), [manifest({"beta": 2}, identified=False)], "beta=1, now 2"),
        (manifest({"seed": 0, "name": "a"}), [manifest({"seed": 1, "name": "b"})], "name=a, now b"),
        (
            manifest({"clip": {"low": 2}}),
            [manifest({"clip": None})],
            'clip={"low": 2}, now null; clip.low=2, now null',
        ),
        (
            rewards("c655", "f1"),
            [rewards("65c0")],
            "reward.0.digest=c655, now 65c0; reward.1.digest=f1, now null",
        ),
        (manifest({"a": 1}), [manifest({"a": 1}, data="e")], "other data"),
        (
            manifest({"verl": {"a.b": 1}}, **{"verl.a.b": 1}),
            [manifest({"verl": {"a.b": 2}}, **{"verl.a.b": 2})],
            "verl.a.b=1, now 2",
        ),
    ],
)
def test_why_a_run_is_superseded(old, current, why):
    """The run of its seed in the newest file is what it is compared with, else the first of its
    variant."""
    assert why_superseded({"old": old}, current) == {"old": why}


def test_one_run_with_an_axis_is_enough_and_imported_runs_are_none_of_the_file(tmp_path):
    plain = manifest({"beta": 1})
    varied = manifest({"beta": 2}, variant="b", axes={"beta": 2})
    require_comparable({"a": plain, "b": varied})
    require_comparable({"b": varied, "a": plain})
    layout = write_sweep(tmp_path, "demo", VARIANTS, (0,), SHAPE)
    (layout.run("demo", "grpo-seed0").path / IMPORTED).touch()
    assert imported_runs(layout, "demo") == ["grpo-seed0"]


def test_a_run_from_elsewhere_says_how_it_came_and_what_it_scored(tmp_path):
    folder = Layout(tmp_path).run("demo", "one")
    folder.path.mkdir(parents=True)
    assert scores_of(folder) == {}
    (folder.path / IMPORTED).write_text('{"scores": {"easy": {"2": 0.5}}}')
    assert scores_of(folder) == {"easy": {"2": 0.5}}
    assert how_it_came("trl") == "trained elsewhere, imported from trl"
    assert how_it_came(RECORDED) == "trained elsewhere, recorded live"


def test_an_axis_may_differ_and_so_may_all_fields_of_a_kind():
    spec = {"training": {"optimizer": {"type": "adamw", "betas": 1}}}
    other = {"training": {"optimizer": {"type": "schedule_free", "rate": 2}}}
    runs = {
        "a": {"variant": "a", "seed": 0, "axes": {"training.optimizer.type": 1}, "spec": spec},
        "b": {"variant": "b", "seed": 1, "axes": {"training.optimizer.type": 2}, "spec": other},
    }
    require_comparable(runs)
    runs["b"]["axes"] = runs["a"]["axes"] = {"seed": 0}
    with pytest.raises(NotComparable, match=r"optimizer\.betas, training\.optimizer\.rate"):
        require_comparable(runs)


def test_initial_models_may_differ_where_each_follows_its_seed():
    def table(*starts):
        specs = [{"model": {"warm_start": {"seed": start}}} for start in starts]
        return {
            str(seed): manifest(spec, seed, axes={"seed": seed}) for seed, spec in enumerate(specs)
        }

    require_comparable(table(0, 1, 2))
    require_comparable(table(0, 0, 0))
    with pytest.raises(NotComparable, match=r"model\.warm_start\.seed"):
        require_comparable(table(0, 1, 0))


def test_a_run_deleted_by_hand_is_pending_in_every_view(twice):
    gone = current_runs(twice, "demo")[0]
    shutil.rmtree(gone.path)
    build(twice)
    with connect(twice) as db:
        state = db.execute("SELECT state, error FROM runs WHERE run = ?", [gone.name]).fetchall()
        counted = queries.sweeps(db)[["pending", "failed"]].to_numpy().tolist()
        notes = summarise(db, "demo").notes
    view = next(
        view for view in Watch(current_runs(twice, "demo")).views() if view.name == gone.name
    )
    assert gone.state() == view.state == "pending"
    assert view.error is None
    assert state == [("pending", None)]
    assert counted == [[1, 0]]
    assert f"not started: {gone.name}" in notes


def test_without_a_readable_file_of_the_sweep_all_its_runs_are_current(twice):
    (twice.sweep_folder("demo") / "sweep.json").write_text("{torn")
    assert len(current_runs(twice, "demo")) == 8
    assert json.dumps(superseded(twice, "demo")) == "{}"


@pytest.mark.parametrize(
    "path",
    [path for path in shipped_sweeps() if "axes:" in path.read_text("utf-8")],
    ids=lambda path: path.stem,
)
def test_the_runs_of_each_shipped_sweep_stand_in_one_table(path):
    manifests = {
        f"{run.variant} {run.spec.seed}": {
            **identities(run.spec, run.data),
            "variant": run.variant,
            "seed": run.spec.seed,
            "axes": run.axes,
            "spec": run.spec.model_dump(mode="json"),
        }
        for run in load_file(path, {}, lambda spec: "data").runs
    }
    require_comparable(manifests)


def test_an_axis_of_the_only_part_of_a_reward_leaves_other_parts_alone():
    def manifest(number, *parts):
        return {
            "variant": f"v{number}",
            "seed": 0,
            "axes": {"reward.weight": number},
            "spec": {},
            "identity": {
                "settings": {f"reward.{i}.weight": weight for i, weight in enumerate(parts)},
                "data": "d",
            },
        }

    require_comparable({"a": manifest(1, 1.0), "b": manifest(2, 2.0)})
    with pytest.raises(NotComparable, match=r"differ in reward\.1\.weight"):
        require_comparable({"a": manifest(1, 1.0, 1.0), "b": manifest(2, 2.0, 3.0)})
