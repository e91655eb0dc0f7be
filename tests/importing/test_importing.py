"""Runs trained elsewhere: what is read from their logs, where it stands, and what is said to be missing."""

import json
import math

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import write_sweep
from rpg.cli import load
from rpg.importing import read, take_over
from rpg.importing.logs import LogError
from rpg.report import tables
from rpg.report.summary import summarise
from rpg.store import Layout, StoreError
from rpg.store.current import current_runs, is_imported
from rpg.store.database import build, connect
from rpg.store.pending import pending_evaluations

APP = load()
TRL = {
    "global_step": 4,
    "log_history": [
        {"step": s, "epoch": 0.1, "loss": 0.1 * s, "reward": s / 4, "rewards/unique/mean": s / 8, "kl": 0.01,
         "completions/mean_length": 20.0, "completions/clipped_ratio": 0.5, "grad_norm": 1.0, "frac_reward_zero_std": 0}
        for s in (1, 2, 3, 4)
    ] + [{"step": 2, "eval_rewards/unique/mean": 0.25}, {"step": 4, "eval_rewards/unique/mean": 0.5},
         {"step": 4, "train_runtime": 3.0}],
}  # fmt: skip
VERL_CONSOLE = """\
(TaskRunner pid=7) some other line step 3
(TaskRunner pid=7) step:1 - global_seqlen/min:10 - actor/entropy:0.5 - critic/rewards/mean:np.float64(0.25) - actor/lr:1e-06
(TaskRunner pid=7) step:2 - actor/entropy:nan - critic/rewards/mean:-0.5 - val-core/gsm8k/acc/mean@1:0.75
"""
VERL_FILE = "".join(
    json.dumps({"step": s, "data": {"critic/rewards/mean": s / 4, "actor/grad_norm": 2.0, "text": "x"}})
    + "\n"
    for s in (1, 2)
)
WANDB = (
    'Step,"lucky-1 - train/reward","lucky-1 - train/reward__MIN","lucky-1 - mine"\n1,0.5,0.4,7\n3,0.75,,8\n'
)


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_trl(tmp_path):
    path = written(tmp_path, "trainer_state.json", TRL)
    log = read("trl", path, scores={"letters": "eval_rewards/unique/mean"})
    assert log.steps[1] == {
        "step": 2, "loss": 0.2, "reward": 0.5, "reward_unique": 0.25, "kl_policy_to_ref": 0.01, "grad_norm": 1.0,
        "response_length": 20.0, "truncation_rate": 0.5,
    }  # fmt: skip
    assert [row["step"] for row in log.steps] == [1, 2, 3, 4]
    assert log.scores == {"letters": {2: 0.25, 4: 0.5}}
    assert log.others == ["epoch", "frac_reward_zero_std", "train_runtime"]


def test_verl_by_its_console_and_by_its_file(tmp_path):
    log = read(
        "verl", written(tmp_path, "a.log", VERL_CONSOLE), scores={"gsm8k": "val-core/gsm8k/acc/mean@1"}
    )
    assert log.steps == [
        {"step": 1, "entropy": 0.5, "reward": 0.25, "learning_rate": 1e-6}, {"step": 2, "reward": -0.5}
    ]  # fmt: skip
    assert log.scores == {"gsm8k": {2: 0.75}} and log.others == ["global_seqlen/min"]
    log = read("verl", written(tmp_path, "a.jsonl", VERL_FILE))
    assert log.steps == [{"step": s, "reward": s / 4, "grad_norm": 2.0} for s in (1, 2)]


def test_wandb_by_its_page_and_by_its_history(tmp_path):
    log = read("wandb", written(tmp_path, "a.csv", WANDB), {"accuracy": "mine"})
    assert log.steps == [
        {"step": 1, "reward": 0.5, "accuracy": 7},
        {"step": 3, "reward": 0.75, "accuracy": 8},
    ]
    history = [{"_step": 1, "train/reward": 0.5}, {"_step": 2, "train/reward": None}]
    assert read("wandb", written(tmp_path, "a.json", history)).steps == [{"step": 1, "reward": 0.5}]


@pytest.mark.parametrize(
    "kind, text, options, words",
    [
        ("trl", "{}", {}, "field log_history is missing"),
        ("trl", "[", {}, "not JSON"),
        ("verl", "nothing", {}, "holds no step; expected lines of verl's file logger"),
        ("csv", "a,b\n1,2\n", {}, "row 1: no step: none of the columns step, _step"),
        ("csv", "step,b\n1.5,2\n", {}, "row 1: step is 1.5; expected a whole number"),
        ("csv", "step,reword\n1,2\n", {}, "say which columns are what: --map reward=COLUMN. There are: reword"),
        ("csv", "step,reword\n1,2\n", {"mapping": {"reward": "reward"}}, "no column 'reward'; did you mean 'reword'?"),
        ("csv", "step,acc\n1,20\n", {"scores": {"a": "acc"}}, "step 1: acc is 20; expected an accuracy from 0 to 1"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_told(tmp_path, kind, text, options, words):
    with pytest.raises(LogError) as error:
        read(kind, written(tmp_path, "log", text), **options)
    assert words in str(error.value) and str(error.value).startswith(str(tmp_path / "log"))


def rpg(*words):
    return CliRunner().invoke(
        APP, [str(word) for word in words], catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """A finished sweep of ours with a run of TRL's and one of verl's in it."""
    folder = tmp_path_factory.mktemp("imported")
    write_sweep(folder / "data", "quickstart", ("grpo", "rpg-reinforce-urkl"))
    state = written(folder, "trainer_state.json", TRL)
    own = Layout.at(folder / "data").read_sweep("quickstart")["benchmarks"]
    scores = [word for name in own for word in ("--eval", f"{name}=eval_rewards/unique/mean")]
    common = ("--sweep", "quickstart", "--home", folder / "data")
    for seed in (0, 1):
        rpg(
            "import",
            "trl",
            state,
            "--variant",
            "TRL GRPO",
            "--seed",
            seed,
            "--axis",
            "algorithm=grpo",
            *scores,
            *common,
        )
    rpg("import", "verl", written(folder, "a.log", VERL_CONSOLE), "--variant", "verl DAPO", *common)
    return Layout.at(folder / "data")


def test_they_stand_beside_ours_and_nothing_is_owed(layout):
    folders = current_runs(layout, "quickstart")
    imported = [folder for folder in folders if is_imported(folder)]
    assert [folder.read_manifest()["variant"] for folder in imported] == ["TRL GRPO", "TRL GRPO", "verl DAPO"]
    assert all(folder.state() == "done" and pending_evaluations(folder) == [] for folder in imported)
    build(layout)
    with connect(layout) as db:
        summary = summarise(db, "quickstart")
        curve = db.execute(
            "SELECT step, value FROM curves WHERE variant = 'TRL GRPO' AND seed = 0 AND metric = 'reward'"
        )
        assert curve.fetchall() == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    rows = summary.table.set_index(["variant", "benchmark"])
    assert {"grpo", "TRL GRPO"} <= set(summary.table["variant"])
    row = rows.loc["TRL GRPO", summary.benchmarks[0]]
    assert (row["first"], row["last"], row["seeds"], row["verdict"]) == (0.25, 0.5, 2, "")
    assert math.isnan(row["low"]) and math.isnan(row["p"])
    assert any(
        "TRL GRPO (2 seeds) was trained elsewhere and imported from trl" in note for note in summary.notes
    )
    assert any("without samples there is no paired test" in note for note in summary.notes)
    assert not any("not a finite number" in note for note in summary.notes), "what is not in a log is no NaN"
    names = [folder.name for folder in imported]
    assert not any("which code" in note and name in note for note in summary.notes for name in names)
    assert "TRL GRPO" in tables.markdown(summary) and "k = 0" not in tables.markdown(summary)


def test_variant_seed_and_axes_come_from_a_file_and_options_go_over_it(tmp_path):
    state = written(tmp_path, "trainer_state.json", TRL)
    text = "sweep: other\nvariant: TRL GRPO\nseed: 1\naxes: {algorithm.beta: 0.1}\neval: {easy: eval_rewards/unique/mean}\n"
    told = written(tmp_path, "trl.yaml", text)
    rpg(
        "import",
        "trl",
        state,
        "--as",
        told,
        "--seed",
        3,
        "--axis",
        "algorithm=grpo",
        "--home",
        tmp_path / "data",
    )
    [folder] = current_runs(Layout.at(tmp_path / "data"), "other")
    manifest = folder.read_manifest()
    assert (manifest["variant"], manifest["seed"], manifest["benchmarks"]) == ("TRL GRPO", 3, ["easy"])
    assert manifest["axes"] == {"algorithm.beta": 0.1, "algorithm": "grpo"}
    for text, words in (
        ("variant: x\n", "trl.yaml: sweep: this field is required"),
        ("sweep: a\nvariant: b\nsed: 1\n", "trl.yaml:3: sed: unknown field; did you mean 'seed'?"),
        (
            "sweep: a\nvariant: b\nseed: -1\n",
            "trl.yaml:3: seed: input should be greater than or equal to 0 (got -1)",
        ),
    ):
        told.write_text(text)
        said = CliRunner().invoke(APP, ["import", "trl", str(state), "--as", str(told)])
        assert words in str(said.exception)


def test_again_is_once_and_a_newer_file_replaces(layout, tmp_path):
    before = len(current_runs(layout, "quickstart"))
    more = {**TRL, "log_history": [*TRL["log_history"], {"step": 5, "reward": 2.0}]}
    state = written(tmp_path, "trainer_state.json", more)
    rpg(
        "import",
        "trl",
        state,
        "--variant",
        "TRL GRPO",
        "--seed",
        1,
        "--sweep",
        "quickstart",
        "--home",
        layout.home,
    )
    assert len(current_runs(layout, "quickstart")) == before
    (folder,) = (
        f for f in current_runs(layout, "quickstart") if is_imported(f) and f.read_manifest()["seed"] == 1
    )
    assert folder.read_metrics().rows[-1]["reward"] == 2.0


def test_a_sweep_started_again_keeps_them(layout, tmp_path):
    from flows.register import register
    from rpg.config.sweep import load_sweep

    (tmp_path / "q.yaml").write_text("name: quickstart\naxes: {algorithm: [grpo], seed: [0]}\n")
    register(load_sweep(tmp_path / "q.yaml", {}, lambda spec: "d"), layout)
    assert sum(map(is_imported, current_runs(layout, "quickstart"))) == 3


def test_it_does_not_take_the_place_of_a_run_of_ours(tmp_path):
    write_sweep(tmp_path / "data", "quickstart", ("grpo",))
    state = written(tmp_path, "trainer_state.json", TRL)
    with pytest.raises(
        LogError, match="was trained here and has variant 'grpo' and seed 0; give the imported run"
    ):
        rpg("import", "trl", state, "--variant", "grpo", "--sweep", "quickstart", "--home", tmp_path / "data")


def test_a_damaged_record_of_a_sweep_is_said_and_stays_as_it_is(tmp_path):
    """An import into a sweep whose sweep.json cannot be read writes nothing: what is left of it may be mended by hand."""
    layout = write_sweep(tmp_path / "data", "demo", ("grpo",))
    record = layout.sweep_folder("demo") / "sweep.json"
    record.write_text(record.read_text()[:-20])
    before, runs = record.read_bytes(), sorted(one.name for one in record.parent.iterdir())
    state = written(tmp_path, "trainer_state.json", TRL)
    with pytest.raises(StoreError, match=r"sweep\.json"):
        take_over(
            layout, read("trl", state), kind="trl", source=state, sweep="demo", variant="TRL GRPO", seed=0
        )
    assert record.read_bytes() == before and sorted(one.name for one in record.parent.iterdir()) == runs
