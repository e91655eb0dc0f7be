"""Two small sweeps, trained: metrics, graded samples and weights, and the manifests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet

from benchmarks.golden.commands import stable, started, write_json
from benchmarks.kill_resume import SWEEP

HOME = Path("trained")
QUICKSTART = """\
name: short
base: quickstart
set: {}
"""


def dump(folder: Path) -> None:
    Path("kills.yaml").write_text(SWEEP)
    _train(folder, "kills.yaml", "--name", "kills", "--set", "training.steps=6")
    _train(
        folder,
        "quickstart",
        "--name",
        "short",
        "--axis",
        "seed=[0]",
        "--set",
        "training.steps=3",
        "--set",
        "evaluation.every=3",
        "--set",
        "task.benchmark_problems=8",
    )
    for run in sorted((HOME / "runs").glob("*/*/manifest.json")):
        _write_run(folder / run.parent.parent.name / run.parent.name, run.parent)


def _train(folder: Path, file: str, *options: str) -> None:
    started("sweep", file, "--home", str(HOME), "--workers", "1", *options)


def _write_run(folder: Path, run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest.pop("sha256", None)  # its own digest, times included
    write_json(folder / "manifest.json", manifest)
    rows = [json.loads(line) for line in (run / "metrics-1.jsonl").read_text().splitlines()]
    (folder / "metrics.txt").write_text("".join(f"{stable(row)}\n" for row in rows))
    for evaluation in sorted((run / "evals").rglob("*.parquet")):
        table = pyarrow.parquet.read_table(evaluation).to_pylist()
        name = f"{evaluation.parent.name}-{evaluation.stem}.txt"
        (folder / name).write_text("".join(f"{row}\n" for row in table))
    digests = [
        f"{file.relative_to(run)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for file in sorted((run / "checkpoints").rglob("*.safetensors"))
    ]
    (folder / "weights.txt").write_text("".join(digests))
