"""Runs trained elsewhere: what is read from their logs, where it stands, and what is said to be
missing."""

import json
import math
from pathlib import Path

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import Shape, write_sweep
from flows.monitor import Watch
from rpg.cli import load
from rpg.config.errors import ConfigError
from rpg.interop.importing import read, take_over
from rpg.interop.importing.trainer_logs import VERL, LogError
from rpg.report import tables
from rpg.report.summary import summarise
from rpg.report.sweep_report import score_curves
from rpg.store import Layout, StoreError, queries
from rpg.store.current import current_runs, is_imported
from rpg.store.database import build, connect
from rpg.store.run_folder import pending_evaluations

APP = load()
HERE = Path(__file__).parent
# Of trainings that knew nothing of us, made by benchmarks/elsewhere and trimmed by its trim.py.
TRL, VERL_FILE, VERL_CONSOLE = HERE / "trainer_state.json", HERE / "verl.jsonl", HERE / "verl.log"
LETTERS = "eval_chain-{}_rewards/right/mean"
WANDB = (
    'Step,"lucky-1 - train/reward","lucky-1 - train/reward__MIN","lucky-1 - '
    'mine"\n1,0.5,0.4,7\n3,0.75,,8\n'
)


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_every_number_of_a_trl_log_is_imported():
    """Every number of the file: of optimizer steps, and of the two sets it was evaluated on, whose
    names TRL confounds."""
    history = json.loads(TRL.read_text())["log_history"]
    scores = {f"chain-{name}": LETTERS.format(name) for name in ("easy", "medium")}
    log = read("trl", TRL, scores=scores)
    trained = [row for row in history if "reward" in row]
    assert (
        [row["step"] for row in log.steps]
        == [row["step"] for row in trained]
        == list(range(4, 81, 4))
    )
    for ours, theirs in zip(log.steps, trained, strict=True):
        assert ours == {
            "step": theirs["step"],
            "optimizer_step": theirs["step"],
            "reward": theirs["reward"],
            "loss": theirs["loss"],
            "reward_right": theirs["rewards/right/mean"],
            "kl_policy_to_ref": theirs["kl"],
            "grad_norm": theirs["grad_norm"],
            "learning_rate": 1e-4,
            "entropy": theirs["entropy"],
            "response_length": theirs["completions/mean_length"],
            "truncation_rate": theirs["completions/clipped_ratio"],
            "clip_fraction": theirs["clip_ratio/region_mean"],
            "clip_fraction_lower": theirs["clip_ratio/low_mean"],
            "clip_fraction_upper": theirs["clip_ratio/high_mean"],
            "seconds_step": 4 * theirs["step_time"],
        }
    for name, found in log.scores.items():
        rows = [row for row in history if f"eval_{name}_runtime" in row]
        assert found == {row["step"]: row["eval_rewards/right/mean"] for row in rows}
    assert log.scores["chain-easy"] != log.scores["chain-medium"]
    assert log.offered == [] and read("trl", TRL).offered == list(scores.values())


def test_cells_that_are_no_numbers_are_named(tmp_path):
    table = 'step,train/reward,train/loss\n1,0.5,1\n2,n/a,2\n3,,3\n4,NaN,4\n5,"0,7",5\n'

    log = read("wandb", written(tmp_path, "w.csv", table), {"reward": "train/reward"})

    sentence = (
        "train/reward: 2 of 4 cells are not numbers and were left out, the first at step 2: 'n/a'"
    )
    assert log.unread == [sentence]
    assert [row.get("reward") for row in log.steps if row["step"] == 1] == [0.5]


def test_numbers_that_are_stored_as_text_are_read(tmp_path):
    lines = '{"_step": 1, "train/reward": "0.25"}\n{"_step": 2, "train/reward": "Infinity"}\n'

    log = read("wandb", written(tmp_path, "w.jsonl", lines))

    assert [row["reward"] for row in log.steps] == [0.25, math.inf]
    assert log.unread == []


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b"])
def test_a_text_with_a_line_separator_is_one_row(tmp_path, separator):
    rows = [
        {"_step": step, "train/reward": float(step), "completion": f"a{separator}b"}
        for step in (1, 2)
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    log = read("wandb", written(tmp_path, "history.jsonl", text), {"reward": "train/reward"})

    assert [step["reward"] for step in log.steps] == [1.0, 2.0]


def test_optimizer_steps_become_rollouts(tmp_path):
    scores = {"chain-easy": LETTERS.format("easy")}
    each, rollouts = read("trl", TRL, scores=scores), read("trl", TRL, scores=scores, updates=4)
    assert [row["step"] for row in rollouts.steps] == list(range(1, 21))
    assert [row["optimizer_step"] for row in rollouts.steps] == list(range(4, 81, 4))
    assert rollouts.scores["chain-easy"] == {
        s // 4: v for s, v in each.scores["chain-easy"].items()
    }
    rows = [{"step": s, "reward": s / 8, "step_time": 2.0} for s in (1, 2, 3, 4, 7)]
    log = read("trl", written(tmp_path, "every.json", {"log_history": rows}), updates=4)
    assert log.steps == [
        {"step": 1, "optimizer_step": 4, "reward": 2.5 / 8, "seconds_step": 8.0},
        {"step": 2, "optimizer_step": 7, "reward": 7 / 8, "seconds_step": 6.0},
    ]


def test_a_step_that_diverged_stays(tmp_path):
    losses = (1.0, math.nan, math.inf, -math.inf)
    rows = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    path = written(tmp_path, "diverged.json", {"log_history": rows})
    log = read("trl", path)
    assert [row["step"] for row in log.steps] == [1, 2, 3, 4]
    assert math.isnan(log.steps[1]["loss"]) and log.steps[2]["loss"] == math.inf
    first, second = read("trl", path, updates=2).steps
    assert math.isnan(first["loss"]) and math.isnan(second["loss"])


def test_verl_by_its_console_and_by_its_file(tmp_path):
    """What verl writes to its file it prints as well, among other things."""
    name = "val-core/chain-medium/acc/mean@4"
    scores = {"chain-medium": name}
    by_file, by_console = (read("verl", path, scores=scores) for path in (VERL_FILE, VERL_CONSOLE))
    lines = [json.loads(line) for line in VERL_FILE.read_text().splitlines()]
    expected = {row["step"]: row["data"][name] for row in lines if name in row["data"]}
    assert by_file.scores == {"chain-medium": expected}
    assert list(by_file.scores["chain-medium"]) == [0, 5, 10, 15, 20]
    assert [row["step"] for row in by_file.steps] == list(range(1, 21))
    assert all(
        row["reward"] == r["data"]["critic/rewards/mean"]
        for row, r in zip(by_file.steps, lines[1:], strict=True)
    )
    assert set(by_file.steps[0]) == {"step", *VERL.values()}
    assert by_console.steps == by_file.steps[:3] and by_console.scores == {
        "chain-medium": {0: 0.234375}
    }
    assert read("verl", VERL_FILE).offered == ["val-core/chain-easy/acc/mean@4", name]
    cut = written(tmp_path, "killed.jsonl", VERL_FILE.read_text()[:-40])
    assert read("verl", cut).steps == by_file.steps[:-1]
    odd = (
        "{'actor': 1}\n(Task pid=7) step:2 - actor/entropy:nan - critic/score/mean:-5e-01 - "
        "critic/rewards/mean:-2 - a:b\n"
    )
    [step] = read("verl", written(tmp_path, "odd.log", odd)).steps
    assert math.isnan(step.pop("entropy")) and step == {"step": 2, "reward": -0.5}


def test_wandb_by_its_page_and_by_its_history(tmp_path):
    log = read("wandb", written(tmp_path, "a.csv", WANDB), {"accuracy": "mine"})
    first, second = log.steps
    assert first == {"step": 1, "reward": 0.5, "accuracy": 7}
    assert second == {"step": 3, "reward": 0.75, "accuracy": 8}
    history = [{"_step": 1, "train/reward": 0.5}, {"_step": 2, "train/reward": None}]
    assert read("wandb", written(tmp_path, "a.json", history)).steps == [{"step": 1, "reward": 0.5}]
    # As transformers logs: records are counted apart from steps, which come again after a kill.
    steps = [(0, 10, 0.5), (1, None, None), (2, 20, 0.75), (3, 20, 0.25)]
    history = [
        {"_step": record, "train/global_step": step, "train/reward": r} for record, step, r in steps
    ]
    log = read("wandb", written(tmp_path, "b.json", history), {"again": "train/reward"})
    assert [tuple(row.values()) for row in log.steps] == [(10, 0.5, 0.5), (20, 0.25, 0.25)]


@pytest.mark.parametrize(
    ("kind", "text", "options", "words"),
    [
        ("trl", "{}", {}, "field log_history is missing"),
        ("trl", "[", {}, "not JSON"),
        ("verl", "nothing", {}, "contains no step; expected lines of verl's file logger"),
        (
            "wandb",
            "Step,a - reward,b - reward\n1,0,1\n",
            {},
            "columns of several runs, a, b; export each",
        ),
        ("csv", "a,b\n1,2\n", {}, "row 1: no step: it has none of the columns step, global_step"),
        ("csv", "step,b\n1.5,2\n", {}, "row 1: step is 1.5; expected a whole number"),
        (
            "csv",
            "step,reword\n1,2\n",
            {},
            "say which column holds what: --map reward=COLUMN. There are: reword",
        ),
        (
            "csv",
            "step,reword\n1,2\n",
            {"mapping": {"reward": "reward"}},
            "no column 'reward'; did you mean 'reword'?",
        ),
        (
            "csv",
            "step,a\n1,2\n",
            {"mapping": {"step": "a"}},
            "--map step: this name is reserved; give the column another",
        ),
        (
            "csv",
            "step,a\n1,x\n",
            {"mapping": {"reward": "a"}},
            "column 'a' has no number (row 1: 'x')",
        ),
        ("csv", "step,a\n1,\n2,\n", {"scores": {"b": "a"}}, "column 'a' has no number (row 1: '')"),
        (
            "csv",
            "step,a,a\n1,2,3\n",
            {"mapping": {"reward": "a"}},
            "several columns have the same name: a",
        ),
        ("csv", "step,a\n1,2\n1,3\n", {"mapping": {"reward": "a"}}, "step 1: a is both 2 and 3"),
        ("trl", '{"log_history": [{"step": 1, "loss": null}]}', {}, "no number in loss"),
        (
            "csv",
            "step,acc\n1,20\n",
            {"scores": {"a": "acc"}},
            "step 1: acc is 20; expected an accuracy from 0 to 1",
        ),
    ],
)
def test_a_file_that_is_no_log_is_named_with_the_reason(tmp_path, kind, text, options, words):
    with pytest.raises(LogError) as error:
        read(kind, written(tmp_path, "log", text), **options)
    assert words in str(error.value)
    assert str(error.value).startswith((str(tmp_path / "log"), "--map"))


def test_a_score_of_several_sets_is_told_with_their_names():
    words = "'eval_rewards/right/mean'; there is one for each set: eval_chain-easy_rewards"
    with pytest.raises(LogError, match=words):
        read("trl", TRL, scores={"easy": "eval_rewards/right/mean"})


def rpg_import(kind, log, *words, **options):
    """`rpg import KIND LOG --option value ...`; an option with a list is given several times."""
    given = (
        (f"--{name}", value) for name, values in options.items() for value in np.atleast_1d(values)
    )
    arguments = ["import", kind, log, *words, *(part for option in given for part in option)]
    return CliRunner().invoke(
        APP, [*map(str, arguments)], catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """A finished sweep of ours with a run of TRL's and one of verl's in it."""
    folder = tmp_path_factory.mktemp("imported")
    write_sweep(folder / "data", "quickstart", ("grpo", "rpg-reinforce-urkl"))
    own = Layout.at(folder / "data").read_sweep("quickstart")["benchmarks"]
    common = {"sweep": "quickstart", "home": str(folder / "data")}
    scores = {
        "eval": [f"{name}={LETTERS.format('easy')}" for name in own],
        "axis": "algorithm=grpo",
    }
    for seed in (0, 1):
        rpg_import("trl", TRL, variant="TRL GRPO", seed=seed, **scores, **common)
    rpg_import("verl", VERL_CONSOLE, variant="verl DAPO", **common)
    return Layout.at(folder / "data")


def test_they_stand_beside_ours_and_nothing_is_owed(layout):
    folders = current_runs(layout, "quickstart")
    imported = [folder for folder in folders if is_imported(folder)]
    assert [folder.read_manifest()["variant"] for folder in imported] == [
        "TRL GRPO",
        "TRL GRPO",
        "verl DAPO",
    ]
    assert all(
        folder.state() == "done" and pending_evaluations(folder) == [] for folder in imported
    )
    build(layout)
    with connect(layout) as db:
        summary = summarise(db, "quickstart")
        of = "variant = 'TRL GRPO' AND seed = 0 AND metric = 'reward'"
        curve = db.execute(f"SELECT step, value FROM curves WHERE {of}")
        assert curve.fetchall()[:3] == [(4, 0.25390625), (8, 0.33984375), (12, 0.3984375)]
    rows = summary.table.set_index(["variant", "benchmark"])
    assert {"grpo", "TRL GRPO"} <= set(summary.table["variant"])
    row = rows.loc["TRL GRPO", summary.benchmarks[0]]
    assert (row["first"], row["last"], row["seeds"], row["verdict"]) == (
        0.234375,
        0.96484375,
        2,
        "",
    )
    assert math.isnan(row["low"]) and math.isnan(row["p"])
    notes = " ".join(summary.notes)
    assert "TRL GRPO (2 seeds) was trained elsewhere, imported from trl" in notes
    assert "without samples there is no paired test" in notes
    assert "not a finite number" not in notes, "what is not in a log is no NaN"
    names = [folder.name for folder in imported]
    assert not any(
        "which code" in note and name in note for note in summary.notes for name in names
    )
    assert "TRL GRPO" in tables.markdown(summary) and "k = 0" not in tables.markdown(summary)


@pytest.mark.parametrize(("kind", "log"), [("trl", TRL), ("verl", VERL_FILE)], ids=["trl", "verl"])
def test_health_says_what_a_log_cannot_tell(tmp_path, kind, log):
    """In the report and while it is watched; of the rules that the log can tell it is silent."""
    layout = Layout.at(tmp_path)
    take_over(layout, read(kind, log), kind=kind, source=log, sweep="s", variant="v", seed=0)
    [view] = Watch(current_runs(layout, "s")).views()
    build(layout)
    with connect(layout) as db:
        health = summarise(db, "s").health
    for said in (view.health[-1], health[-1]):
        assert (
            "not measured: no groups left needs column groups_kept; KL exploding needs column "
            "kl_policy_to_old; ratio exploding needs column ratio_max"
        ) in said
        assert "no answers, one answer, unread, reward apart need the samples" in said
        for rule in ("all truncated", "entropy collapsed", "not finite", "reward constant"):
            assert f"{rule} needs" not in said


def test_health_of_an_imported_run_is_judged_by_the_same_rules(tmp_path):
    """A log of verl in which every response is cut off."""
    lines = [json.loads(line) for line in VERL_FILE.read_text().splitlines()]
    for line in lines:
        if "response_length/clip_ratio" in line["data"]:
            line["data"]["response_length/clip_ratio"] = 1.0
    steps = [line for line in lines if line["step"] > 0]
    longer = [
        json.dumps({**steps[n % len(steps)], "step": n + 1}) for n in range(max(len(steps), 12))
    ]
    log = written(tmp_path, "ill.jsonl", "\n".join(longer) + "\n")
    layout = Layout.at(tmp_path / "data")
    take_over(layout, read("verl", log), kind="verl", source=log, sweep="s", variant="v", seed=0)
    build(layout)
    with connect(layout) as db:
        health = summarise(db, "s").health
    assert "v (1 of 1 runs): every response of the last 8 steps was cut off" in health[0]


def test_variant_seed_and_axes_are_those_of_the_options(tmp_path):
    about = {
        "sweep": "other",
        "variant": "TRL GRPO",
        "seed": 3,
        "axis": ["algorithm=grpo", "algorithm.beta=0.1"],
    }
    score = f"easy={LETTERS.format('easy')}"
    rpg_import("trl", TRL, **about, eval=score, updates=4, home=str(tmp_path / "data"))
    [folder] = current_runs(Layout.at(tmp_path / "data"), "other")
    manifest = folder.read_manifest()
    assert (manifest["variant"], manifest["seed"], manifest["benchmarks"]) == (
        "TRL GRPO",
        3,
        ["easy"],
    )
    assert manifest["axes"] == {"algorithm.beta": 0.1, "algorithm": "grpo"}
    assert manifest["steps"] == 20
    with pytest.raises(ConfigError, match="--sweep and --variant: both are needed"):
        rpg_import("trl", TRL, sweep="other")


def test_fewer_or_other_benchmarks_than_ours_take_no_number_from_anybody(tmp_path):
    """A baseline that was evaluated on one of two benchmarks, and one on a third: each stands where
    it has a score, the mean is over ours, and what ours say is what it was."""
    shape = Shape(benchmarks=("easy", "hard"))
    layout = write_sweep(tmp_path / "data", "demo", ("grpo", "rpg-urkl"), (0, 1, 2), shape)
    build(layout)
    series = [queries.Series("demo", variant) for variant in ("grpo", "rpg-urkl")]
    with connect(layout) as db:
        before, lines = summarise(db, "demo"), score_curves(db, series, ["mean"])
    benchmarks = {"less": ["easy"], "all": ["easy", "hard", "gsm8k"], "other": ["gsm8k"]}
    for variant, names in benchmarks.items():
        scores = [f"{name}={LETTERS.format('easy')}" for name in names]
        about = {"variant": variant, "eval": scores, "sweep": "demo", "home": str(layout.home)}
        said = rpg_import("trl", TRL, **about).output
    assert "! gsm8k: the sweep's own runs are not evaluated on it. Theirs: easy, hard" in said
    with connect(layout) as db:
        after = summarise(db, "demo")
        means = db.execute(
            "SELECT DISTINCT variant FROM scores WHERE benchmark = 'mean'"
        ).fetchall()
        pandas.testing.assert_frame_equal(score_curves(db, series, ["mean"]), lines)
    assert after.benchmarks == ["easy", "hard", "gsm8k"]
    ours = after.table[after.table["variant"].isin(before.variants)]
    pandas.testing.assert_frame_equal(ours.reset_index(drop=True), before.table, check_dtype=False)
    found = {v: set(part["benchmark"]) for v, part in after.table.groupby("variant")}
    assert found["less"] == {"easy"} and found["other"] == {"gsm8k"}
    assert found["all"] == {"easy", "hard", "gsm8k", "mean"}
    assert {variant for (variant,) in means} == {"grpo", "rpg-urkl", "all"}
    assert "less: no score on hard, so it has no mean" in after.notes


def test_again_is_once_and_a_newer_file_replaces(layout, tmp_path):
    before = len(current_runs(layout, "quickstart"))
    known = json.loads(TRL.read_text())
    more = {**known, "log_history": [*known["log_history"], {"step": 84, "reward": 2.0}]}
    state = written(tmp_path, "trainer_state.json", more)
    rpg_import("trl", state, variant="TRL GRPO", seed=1, sweep="quickstart", home=str(layout.home))
    assert len(current_runs(layout, "quickstart")) == before
    imported = filter(is_imported, current_runs(layout, "quickstart"))
    [folder] = [folder for folder in imported if folder.read_manifest()["seed"] == 1]
    assert folder.read_metrics()[-1]["reward"] == 2.0


@pytest.mark.parametrize("options", [{"map": "reward=reward"}, {"map": ["acc=acc", "acc=reward"]}])
def test_what_holds_no_number_or_two_leaves_the_former_run_alone(tmp_path, options):
    given = {"sweep": "keep", "variant": "v", "home": tmp_path / "data"}
    good = written(tmp_path, "a.csv", "step,reward,acc\n1,0.5,0.2\n2,0.6,1.4\n")
    assert rpg_import("csv", good, map="reward=reward", **given).exit_code == 0
    bad = written(tmp_path, "b.csv", "step,reward,acc\n1,x,0.2\n")
    with pytest.raises((LogError, ConfigError)):
        rpg_import("csv", bad, **options, **given)
    [run] = current_runs(Layout.at(tmp_path / "data"), "keep")
    assert [row["reward"] for row in run.read_metrics()] == [0.5, 0.6]


def test_a_sweep_started_again_keeps_them(layout, tmp_path):
    from flows.sweep.conductor import register
    from rpg.config.sweep_spec import load_sweep
    from rpg.store.run_writer import write_manifest

    for folder in layout.run_folders("quickstart"):
        if not is_imported(folder):  # made-up runs have no identity, which would be format 1
            identity = {"settings": {}, "data": "d"}
            write_manifest(folder, {**folder.read_manifest(), "identity": identity})
    (tmp_path / "q.yaml").write_text("name: quickstart\naxes: {algorithm: [grpo], seed: [0]}\n")
    register(load_sweep(tmp_path / "q.yaml", {}, lambda spec: "d"), layout)
    assert sum(map(is_imported, current_runs(layout, "quickstart"))) == 3


def test_it_does_not_take_the_place_of_a_run_of_ours(tmp_path):
    write_sweep(tmp_path / "data", "quickstart", ("grpo",))
    words = "was trained here and has variant 'grpo' and seed 0; give this run another variant"
    with pytest.raises(LogError, match=words):
        rpg_import("trl", TRL, variant="grpo", sweep="quickstart", home=str(tmp_path / "data"))


def test_a_damaged_record_of_a_sweep_is_said_and_stays_as_it_is(tmp_path):
    """An import into a sweep whose sweep.json cannot be read writes nothing: what is left of it may
    be mended by hand."""
    layout = write_sweep(tmp_path / "data", "demo", ("grpo",))
    record = layout.sweep_folder("demo") / "sweep.json"
    record.write_text(record.read_text()[:-20])
    before, runs = record.read_bytes(), sorted(one.name for one in record.parent.iterdir())
    with pytest.raises(StoreError, match=r"sweep\.json"):
        take_over(
            layout,
            read("trl", TRL),
            kind="trl",
            source=TRL,
            sweep="demo",
            variant="TRL GRPO",
            seed=0,
        )
    assert (
        record.read_bytes() == before
        and sorted(one.name for one in record.parent.iterdir()) == runs
    )


def test_the_pages_say_what_was_trained_elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("streamlit")
    from tests.dashboard.driver import show

    monkeypatch.setenv("RPG_HOME", str(tmp_path))
    monkeypatch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
    shape = Shape(6, 3, 5, 3, benchmarks=("easy",))
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0,), shape)
    score = f"gsm8k={LETTERS.format('easy')}"
    rpg_import("trl", TRL, variant="TRL GRPO", sweep="demo", eval=score, home=str(tmp_path))
    build(layout)
    texts = lambda app: " ".join(element.value for element in app.text)  # noqa: E731
    assert "Trained elsewhere: TRL GRPO." in texts(show("compare", sweeps="demo"))
    [name] = (folder.name for folder in layout.run_folders("demo") if is_imported(folder))
    assert f"trained elsewhere, imported from trl: {TRL}" in texts(
        show("run", sweep="demo", run=name)
    )
