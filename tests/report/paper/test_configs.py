"""The paper's experiments as files: each expands, stands for the rows it says, and costs what the
page says."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rpg
from rpg.cli import load
from rpg.config.sweep_spec import load_sweep
from rpg.planning.gpu_estimate import GB, H100, Assumptions, estimate
from rpg.planning.model_shapes import KNOWN
from rpg.report.paper import published
from tests.specs import load_run

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "configs/papers/rpg").glob("*.yaml"))
PAGE = (ROOT / "docs/paper.md").read_text()
CONTEXT = {"2K": 2048, "4K": 4096, "8K": 8192}
BENCHMARKS = {"Minerva-Math": "minerva_math", "OlympiadBench": "olympiadbench"}


def expand(path):
    return load_sweep(path, {}, lambda spec: "data")


def cells(line):
    return [cell.strip().strip("`") for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_file_expands_on_the_recipe(path):
    sweep = expand(path)
    assert sweep.spec.name == f"paper-{path.stem}" and sweep.spec.description
    assert sweep.baseline in {None, *(run.variant for run in sweep.runs)}
    assert (sweep.baseline is None) == path.stem.startswith("released")
    folders, variants = {run.folder for run in sweep.runs}, {run.variant for run in sweep.runs}
    assert len(folders) == len(variants) == len(sweep.runs)
    for run in sweep.runs:
        t, r = run.spec.training, run.spec.rollout
        assert (t.steps, t.prompts_per_step, t.mini_batch_prompts, r.group_size) == (
            400,
            512,
            32,
            16,
        )
        assert (t.optimizer.weight_decay, t.max_grad_norm, r.temperature) == (0.1, 1.0, 1.0)
        assert t.optimizer.warmup_steps == 10 * t.updates_per_step
        assert t.optimizer.learning_rate == 1e-6 or path.stem.startswith("released")
        assert (t.checkpoint_every, run.spec.evaluation.every) == (20, 10)


def index():
    rows = [cells(line) for line in PAGE.splitlines() if re.match(r"\| Table \d", line)]
    return {(table, row): (config, run) for table, row, config, run in rows}


def test_the_index_has_every_row_of_the_paper_and_no_other():
    assert set(index()) == {(entry.table, entry.row) for entry in published()}
    files = {ROOT / config for config, _ in index().values()}
    assert files == {path for path in FILES if path.stem.startswith("table")}


@pytest.mark.parametrize(
    "entry", sorted({e[:4] for e in published()}), ids=lambda e: f"{e[0]} {e[3]}"
)
def test_a_row_is_the_run_that_the_index_names(entry):
    table, model, context, row = entry
    config, name = index()[table, row]
    [run] = [run for run in expand(ROOT / config).runs if run.variant == name]
    assert run.spec.algorithm == rpg.algorithm(name) and rpg.algorithm(name).display_name == row
    assert f"{table}: {row}" in run.spec.algorithm.paper_rows
    assert run.spec.model.path == f"Qwen/{model}"
    assert (
        run.spec.rollout.max_response_tokens
        == run.spec.rollout.max_prompt_tokens
        == CONTEXT[context]
    )
    of_row = {e.benchmark for e in published() if (e.table, e.row) == (table, row)}
    assert set(run.spec.benchmarks()) == {BENCHMARKS.get(b, b.lower()) for b in of_row}


def test_sweeps_hold_no_run_that_is_in_no_row():
    for path in FILES:
        if path.stem.startswith("table"):
            named = {run for config, run in index().values() if config.endswith(path.name)}
            assert {run.variant for run in expand(path).runs} == named


def test_ablations_change_what_they_say():
    expected = {
        "clip": {(0.2, 0.28), (0.1, 0.1)},
        "beta": {1e-4, 1e-3},
        "reference": {"old", "fixed"},
        "optimizer": {"adamw", "schedule_free"},
    }
    read = {
        "clip": lambda s: (s.algorithm.clip.low, s.algorithm.clip.high),
        "beta": lambda s: s.algorithm.beta,
        "reference": lambda s: s.algorithm.reference.type,
        "optimizer": lambda s: s.training.optimizer.type,
    }
    for name, values in expected.items():
        runs = expand(ROOT / f"configs/papers/rpg/ablation-{name}.yaml").runs
        assert {read[name](run.spec) for run in runs} == values
        per_algorithm = [run.spec.algorithm.name for run in runs]
        assert all(per_algorithm.count(one) == 2 for one in per_algorithm)


# --------------------------------------------------------------------------------------------------
# ------
# cost


@pytest.mark.component
def test_the_page_says_what_the_estimate_says():
    rows = {
        cells(line)[0]: cells(line)[1:]
        for line in PAGE.splitlines()
        if re.match(r"\| `[a-z0-9-]+.yaml` \| \d", line)
    }
    assert set(rows) == {path.name for path in FILES}
    for path in FILES:
        specs = [run.spec for run in expand(path).runs]
        usual = [estimate(spec) for spec in specs]
        longest = [estimate(spec, Assumptions(response_share=1.0)) for spec in specs]
        each = sorted(
            {f"{e.gpu_hours:,.0f}" for e in usual}, key=lambda text: float(text.replace(",", ""))
        )
        memory = max(max(e.memory_rollout, e.memory_update) for e in usual)
        assert memory < H100.memory
        assert rows[path.name] == [
            str(len(specs)),
            " to ".join(dict.fromkeys((each[0], each[-1]))),
            f"{sum(e.gpu_hours for e in usual):,.0f}",
            f"{sum(e.gpu_hours for e in longest):,.0f}",
            f"{memory / GB:.0f} GB",
            f"{max(e.disk_bytes for e in usual) / GB:.0f} GB",
        ]


@pytest.mark.component
def test_show_tells_the_cost_before_the_data_is_here(tmp_path, monkeypatch):
    monkeypatch.delenv("RPG_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    show = ["show", str(ROOT / "configs/papers/rpg/table6.yaml"), "--home", str(tmp_path)]
    shown = CliRunner().invoke(load(), show)
    assert shown.exit_code == 0, shown.output
    [spec, *_] = [run.spec for run in expand(ROOT / "configs/papers/rpg/table6.yaml").runs]
    assert f"{estimate(spec).gpu_hours:,.0f}" in shown.stdout and "not measured" in shown.stdout
    assert "in all (refills of dynamic sampling not counted)" in " ".join(shown.stdout.split())
    assert shown.stderr.count("the data are not here") == 1
    refused = CliRunner().invoke(load(), [*show, "--set", "task.train=dapo-math-17k"])
    assert "did you mean 'dapo-math-17k-en'" in str(refused.exception), "a mistake is no absence"


def test_the_estimate_moves_the_right_way():
    recipe = ROOT / "configs/runs/paper.yaml"
    base = estimate(load_run(recipe))

    def change(**fields):
        return estimate(
            load_run(recipe, {name.replace("__", "."): value for name, value in fields.items()})
        )

    two = change(backend__nodes=2, backend__ray={"type": "address", "address": "auto"})
    assert two.hours < base.hours and two.memory_update < base.memory_update and two.gpus == 16
    assert change(backend__rollout__gpu_memory_utilization=0.3).memory_rollout < base.memory_rollout
    assert change(backend__max_tokens_per_gpu=8192).memory_update < base.memory_update
    assert change(backend__sequence_parallel=2).memory_update < base.memory_update
    alone, shared = (
        change(model__path="Qwen/QwQ-32B", backend__rollout__tensor_parallel=n) for n in (1, 4)
    )
    assert shared.hours < alone.hours / 10, "weights leave no room for responses on one GPU"
    assert change(backend__offload=True).memory_rollout < base.memory_rollout
    away = change(evaluation__place={"type": "ray", "gpus": 1})
    assert away.memory_rollout == base.memory_rollout and away.gpu_hours < base.gpu_hours, (
        "other GPUs"
    )
    assert change(algorithm="grpo").memory_rollout == base.memory_rollout, (
        "a reference waits in host memory"
    )
    assert change(backend__gradient_checkpointing=False).memory_update > 2 * base.memory_update
    assert (
        estimate(load_run(recipe), Assumptions(packed=False)).memory_update
        > 1.1 * base.memory_update
    )
    assert change(training__steps=800).gpu_hours == pytest.approx(2 * base.gpu_hours, rel=0.01)
    repeated = base.hours - change(backend__gradient_checkpointing=False).hours
    referred = (
        change(algorithm="grpo").hours
        - change(algorithm={"name": "grpo", "reference": "old"}).hours
    )
    assert referred == pytest.approx(repeated), "another pass"
    assert change(algorithm__dynamic_sampling=False).hours < base.hours, "no refills"
    moments = (
        12 * KNOWN[load_run(recipe).model.path].parameters / base.gpus
    )  # and gradients, of adapters only
    assert base.memory_update - change(model__lora={"rank": 16}).memory_update > 0.95 * moments
    greedy, one = change(evaluation__temperature=0), change(evaluation__samples_per_problem=1)
    assert greedy.evaluation_hours == one.evaluation_hours < base.evaluation_hours
    rows = [
        change(evaluation__engine={"type": "local", "rows": n}).evaluation_hours for n in (1, 64)
    ]
    assert rows[1] < rows[0] / 10, "the trainer's own decoder takes many at a time"
    assert estimate(load_run(ROOT / "configs/runs/chain.yaml")) is None
    assert change(model__path="someone/unknown") is None
