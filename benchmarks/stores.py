"""The results database beside MLflow's SQLite store and TensorBoard's reader, on the same
measurements, in one run.

    # in an environment of its own, with duckdb and pandas
    pip install mlflow-skinny sqlalchemy alembic tensorboard
    python -m benchmarks.stores [--runs 30] [--steps 400] [--metrics 30]

Three times each, the median printed:
  load   from what a trainer wrote to what can be asked: our build from JSON lines; MLflow's import
         of the same values (`log_batch`, 1,000 at a time, as its documentation recommends);
         TensorBoard's reader over its event files
  ask    every seed's curve of one metric, all runs: the question behind one panel of a comparison
Every store must give the same values, or this stops.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from duckdb import DuckDBPyConnection

from benchmarks.aggregate import make
from benchmarks.synthetic import Shape
from rpg.store import Layout
from rpg.store.database import build, connect

METRIC = "reward"
Curves = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--metrics", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rpg-stores-") as folder:
        layout = Layout.at(Path(folder) / "ours")
        make(
            layout, options.runs, 3, Shape(options.steps, options.steps, 1, 1, (), options.metrics)
        )
        rows = {
            f"{run.sweep}/{run.name}": [json.loads(line) for line in run.metrics_path(1).open()]
            for sweep in layout.sweeps()
            for run in layout.run_folders(sweep)
        }
        names = list(next(iter(rows.values()))[0])[4:]
        values = sum(map(len, rows.values())) * len(names)
        print(f"{len(rows)} runs, {options.steps} steps, {len(names)} metrics: {values:,} values")
        write_events(Path(folder) / "events", rows, names)
        times: dict[str, list[float]] = {"ours": [], "TensorBoard": [], "MLflow": []}
        for turn in range(3):
            tracking = Path(folder) / f"mlflow-{turn}.sqlite"
            found = {
                "ours": timed(times["ours"], lambda: load_ours(layout), ask_ours),
                "TensorBoard": timed(
                    times["TensorBoard"], lambda: load_events(Path(folder) / "events"), ask_events
                ),
                "MLflow": timed(
                    times["MLflow"],
                    lambda path=tracking: load_mlflow(path, rows, names),
                    ask_mlflow,
                ),
            }
            agree(found)
    ours = [statistics.median(column) for column in zip(*times["ours"], strict=True)]
    for name, pairs in times.items():
        load, ask = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = (
            "" if name == "ours" else f"   {load / ours[0]:.2g} x and {ask / ours[1]:.2g} x ours"
        )
        print(f"{name:12} load {load:7.2f} s   ask {ask * 1000:8.1f} ms{ratio}")


def timed(times: list, load: Callable, ask: Callable) -> Curves:
    begin = time.perf_counter()
    store = load()
    middle = time.perf_counter()
    curves = ask(store)
    times.append((middle - begin, time.perf_counter() - middle))
    return curves


def agree(found: dict[str, Curves]) -> None:
    """TensorBoard keeps single precision; MLflow double."""
    for name, curves in found.items():
        if curves.keys() != found["ours"].keys():
            raise SystemExit(f"{name} holds other runs")
        for run, curve in curves.items():
            if not np.allclose(curve, found["ours"][run], rtol=1e-6, atol=1e-7):
                raise SystemExit(f"{name} gives other values for {run}")


def load_ours(layout: Layout) -> DuckDBPyConnection:
    for path in layout.analytics.glob("*"):
        path.unlink()
    build(layout)
    return connect(layout)


def ask_ours(db: DuckDBPyConnection) -> Curves:
    columns = db.execute(
        f"SELECT sweep || '/' || run AS run, {METRIC} FROM metrics ORDER BY sweep, run, step"
    ).fetchnumpy()
    db.close()
    starts = np.flatnonzero(np.r_[True, columns["run"][1:] != columns["run"][:-1]])
    parts = np.split(columns[METRIC], starts[1:])
    return {columns["run"][start]: part for start, part in zip(starts, parts, strict=True)}


def write_events(folder: Path, rows: dict[str, list[dict]], names: list[str]) -> None:
    """Not timed: what a trainer would have written instead of JSON lines."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run, steps in rows.items():
        writer = EventFileWriter(str(folder / run))
        for row in steps:
            values = [Summary.Value(tag=name, simple_value=row[name]) for name in names]
            writer.add_event(
                Event(wall_time=row["time"], step=row["step"], summary=Summary(value=values))
            )
        writer.close()


def load_events(folder: Path) -> dict:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    found = {}
    for path in sorted(folder.glob("*/*")):
        reader = EventAccumulator(str(path), size_guidance={SCALARS: 0})
        reader.Reload()
        found[f"{path.parent.name}/{path.name}"] = reader
    return found


def ask_events(readers: dict) -> Curves:
    return {
        run: np.array([event.value for event in reader.Scalars(METRIC)])
        for run, reader in readers.items()
    }


def load_mlflow(path: Path, rows: dict[str, list[dict]], names: list[str]) -> tuple:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{path}")
    experiment = client.create_experiment("sweeps")
    ids = {}
    for run, steps in rows.items():
        ids[run] = client.create_run(experiment).info.run_id
        metrics = [
            Metric(name, row[name], round(1000 * row["time"]), row["step"])
            for row in steps
            for name in names
        ]
        for start in range(0, len(metrics), 1000):
            client.log_batch(ids[run], metrics[start : start + 1000])
    return client, ids


def ask_mlflow(store: tuple) -> Curves:
    client, ids = store
    return {
        run: np.array(
            [
                one.value
                for one in sorted(client.get_metric_history(id, METRIC), key=lambda m: m.step)
            ]
        )
        for run, id in ids.items()
    }


if __name__ == "__main__":
    main()
