"""Commands that compute: sweep, train, evaluate."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from rpg.cli.app import Home, Set, app, console, error_console


def default_workers(planned) -> int:
    """One training per core this process may use; one at a time when a run is on verl, which fills what it is given."""
    if any(run.spec.backend.type == "verl" for run in planned.runs):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Workers = Annotated[
    int | None,
    typer.Option("--workers", "-w", min=1, help="Trainings at a time; default: one per core (one on verl)."),
]


@app.command(epilog="Example: rpg sweep configs/sweeps/stress.yaml --set training.steps=10")
def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file (YAML).")],
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
    workers: Workers = None,
) -> int:
    """Run a sweep: train, evaluate, aggregate, report. Run it again and it does only what is missing."""
    from rpg.config.load import parse_assignments
    from rpg.config.sweep import load_sweep
    from rpg.data import data_digest

    planned = load_sweep(file, parse_assignments(set_), data_digest)
    return execute(planned, home, workers)


@app.command(
    epilog="Example: rpg train configs/runs/chain.yaml --set algorithm=rpg-reinforce-urkl --set seed=3"
)
def train(
    file: Annotated[Path, typer.Argument(help="Run file (YAML).")],
    set_: Set = [],  # noqa: B006 - typer copies it
    home: Home = None,
) -> int:
    """Run a single training, evaluated and reported like a sweep of one."""
    from rpg.config.load import parse_assignments
    from rpg.config.sweep import single_run
    from rpg.data import data_digest

    return execute(single_run(file, parse_assignments(set_), data_digest), home, 1)


@app.command(
    epilog="Example: rpg evaluate Qwen/Qwen3-4B --benchmarks aime24,amc23 --engine vllm --device cuda"
)
def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(help="A Hugging Face model: a folder (any checkpoint of a run) or a hub id.")
    ],
    benchmarks: Annotated[
        str, typer.Option("--benchmarks", "-b", help="Names or YAML files, separated by commas.")
    ] = "aime24,aime25,amc23",
    engine: Annotated[str, typer.Option(help="local, huggingface or vllm.")] = "local",
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Samples per problem; default: the benchmark's own.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy, with one sample.")] = 1.0,
    max_response_tokens: Annotated[int, typer.Option(min=1)] = 2048,
    max_prompt_tokens: Annotated[int, typer.Option(min=1)] = 2048,
    data: Annotated[
        Path | None, typer.Option(help="Folder with local copies; default $RPG_DATA, then the hub.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: evaluations/ in the home.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    home: Home = None,
) -> int:
    """Grade a model on benchmarks: mean@k, pass@k, maj@k with errors over problems; every sample is kept."""
    from rich.table import Table

    from rpg.evaluation import evaluate as evaluate_model
    from rpg.store import Layout

    name = checkpoint.strip("/").replace("/", "--")
    results = evaluate_model(
        checkpoint,
        [part.strip() for part in benchmarks.split(",") if part.strip()],
        engine=engine,
        out=out or Layout.at(home).home / "evaluations" / name,
        data=data,
        samples_per_problem=k,
        temperature=temperature,
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=max_response_tokens,
        seed=seed,
        device=device,
        say=lambda line: error_console.print(line, markup=False, highlight=False),
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("benchmark", "problems", "k", "mean@k", "pass@k", "maj@k", "tokens", "cut off"):
        table.add_column(heading, justify="left" if heading == "benchmark" else "right")
    for result in results:
        s = result.summary
        shares = (
            f"{e.mean:.3f} ± {e.standard_error:.3f}" for e in (s.mean_at_k, s.pass_at_k, s.majority_at_k)
        )
        table.add_row(
            result.benchmark, str(s.problems), str(s.k), *shares,
            f"{s.response_tokens.mean:.0f}", f"{s.truncation_rate.mean:.1%}",
        )  # fmt: skip
    console.print(table)
    console.print("± is one standard error over problems.", style="dim")
    for result in results:
        console.print(
            f"samples: {result.samples}", markup=False, highlight=False, soft_wrap=True, style="dim"
        )
    return 0


def execute(planned, home: Path | None, workers: int | None) -> int:
    """Conduct a sweep in the foreground, showing its progress; returns the exit code."""
    from flows.live import Progress
    from flows.sweep import conduct, sweep_lock, unfinished
    from rpg.store import Layout

    layout = Layout.at(home)
    name, workers = planned.spec.name, workers or default_workers(planned)
    folders = [layout.run(name, run.folder) for run in planned.runs]
    again = f"rpg sweep {planned.path}" if planned.spec.axes else f"rpg train {planned.path}"
    try:
        with sweep_lock(layout, name):
            due = unfinished(folders)
            if due:
                console.print(
                    f"{name}: {len(due)} of {len(folders)} runs to do, {workers} at a time, in {layout.sweep_folder(name)}",
                    markup=False, highlight=False, soft_wrap=True,
                )  # fmt: skip
            progress = Progress(console, name, folders, workers)
            with _terminal(progress) if due else _nothing(), _sigterm_is_interrupt():
                outcome = conduct(planned, layout, workers, progress)
    except KeyboardInterrupt:
        error_console.print(f"\nstopped; every process has ended. Nothing finished is lost. Continue with: {again}",
                            markup=False, highlight=False, soft_wrap=True)  # fmt: skip
        return 130
    return _conclude(outcome, layout, planned, again)


def _conclude(outcome, layout, planned, again: str) -> int:
    from rpg.report import print_report
    from rpg.store import StoreError

    name = planned.spec.name
    if not outcome.trained:
        console.print(
            f"{name}: all {outcome.total} runs were already done; nothing was trained.",
            markup=False,
            highlight=False,
        )
    try:
        print_report(layout, name, console)
    except StoreError as error:
        outcome.error = outcome.error or str(error)
    lines = [f"failed: {run}: {error}" for run, error in outcome.failed.items()]
    if outcome.error and not outcome.failed:
        lines.append(f"error: {outcome.error}")
    if lines:
        left = f"{len(outcome.failed)} of {outcome.total} runs failed" if outcome.failed else "not finished"
        lines.append(f"{left}; try again with: {again}")
    for line in lines:
        error_console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if lines else 0


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class _terminal:
    """Draws the progress from a thread of its own: a live table on a terminal, lines elsewhere."""

    def __init__(self, progress) -> None:
        self.progress, self._over = progress, threading.Event()
        self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=10)

    def _draw(self) -> None:
        if not console.is_terminal:
            while not self._over.wait(1.0):
                self.progress.lines()
            self.progress.lines()
            return
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=False) as live:
            while not self._over.wait(0.5):
                live.update(self.progress.render(), refresh=True)
            live.update(self.progress.render(), refresh=True)


class _sigterm_is_interrupt:
    """SIGTERM stops a sweep the way Ctrl-C does, so that a service manager's stop ends the children too."""

    def __enter__(self) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        self._before = signal.signal(signal.SIGTERM, interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
