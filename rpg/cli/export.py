"""The commands `rpg sql`, `rpg export` and `rpg import`: the results database as tables and files,
or sent to trackers; and runs that were trained elsewhere.
"""

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.text import Text

from rpg.cli.app import Home, app, columns, complain, console, layout_at, refuse, require_named, say
from rpg.cli.recorded import result
from rpg.errors import visible
from rpg.store import Layout, atomic_path

Rows = Annotated[int, typer.Option(min=1)]
_LONGEST = 2_000
"""Characters of a text in the printed table of `rpg sql`; --out and --json have all of it."""
_COLUMNS = 12  # unused columns of an imported log that are listed; verl logs more than a hundred


@app.command()
def sql(query: str, out: Path | None = None, rows: Rows = 50, home: Home = None) -> None:
    """Query the results database. It is updated first; queries cannot change it.

    Args:
        query: DuckDB SQL (docs/database.md).
        out: Write the whole result to a file (.csv, .parquet or .json).
        rows: Number of rows to print.
    """
    from concurrent.futures import ThreadPoolExecutor

    import duckdb

    from rpg.store.database import build, connect
    from rpg.store.sample_texts import add_texts

    if out is not None and out.suffix not in (".csv", ".parquet", ".json"):
        refuse(f"--out {out}: the name must end in .csv, .parquet or .json")
    layout = layout_at(home)
    build(layout)
    with connect(layout) as db, ThreadPoolExecutor(1) as thread:
        add_texts(db, layout)

        def fetch() -> tuple[list[str], Any]:  # DuckDB computes rows while they are fetched
            found = db.execute(query)
            names = [column[0] for column in (found and found.description) or ()]
            return names, names and (found.df() if out else found.fetchall())

        asked = thread.submit(fetch)
        try:
            names, lines = asked.result()
        except KeyboardInterrupt:  # of which DuckDB itself hears between the parts of a query only
            db.interrupt()
            raise
        except duckdb.Error as error:
            said, _, _ = str(error).partition(
                "\n\nLINE "
            )  # the query, with a mark under a part of it
            refuse(f"sql: {' '.join(said.split())}")
        if not names:
            refuse(f"sql: {query!r} has no result; expected a query, e.g. 'SELECT * FROM scores'")
        if out is not None:
            _write(lines, out)
            result(rows=len(lines), out=out)
            say(f"wrote {len(lines):,} rows to {out}")
            return
    result(columns=names, rows=lines[:rows], more=max(0, len(lines) - rows))
    table = columns(*(escape(str(name)) for name in names))
    for line in lines[:rows]:
        table.add_row(*(Text(_shown(value)) for value in line))
    console.print(table)
    if len(lines) > rows:
        console.print(
            f"... {len(lines) - rows:,} more rows; --rows N or --out FILE shows them", style="dim"
        )


def _shown(value: Any) -> str:
    """A value in the printed table: a long text is cut, and its control characters are escaped."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "..."
    return visible(text)


def _write(rows: Any, out: Path) -> None:
    """Write a frame as the file's ending says."""
    import duckdb

    from rpg.report.csv_text import without_formulas

    with atomic_path(out.absolute()) as temporary:
        if out.suffix == ".json":
            rows.to_json(temporary, orient="records", default_handler=str)  # a UUID is no JSON
        elif out.suffix == ".parquet":
            duckdb.from_df(rows).write_parquet(str(temporary))
        else:  # pandas writes a long list as numpy prints it, without its middle
            duckdb.from_df(without_formulas(rows)).write_csv(str(temporary))


Target = Literal["parquet", "csv", "tensorboard", "wandb", "mlflow", "inspect"]


@app.command()
def export(
    where: Annotated[str | None, typer.Argument()] = None,
    to: Annotated[Target, typer.Option("--to", "--format")] = "parquet",
    sweep: list[str] = [],
    online: Annotated[bool, typer.Option("--online")] = False,
    home: Home = None,
) -> int:
    """Write the results database as files for other tools, or send finished sweeps to a tracker.

    Args:
        where: Folder (csv, parquet, inspect), address of the server (mlflow), or project (wandb,
            default: rpg).
        to: File format, or tracker.
        sweep: Sweep to send to a tracker, or to write as logs of Inspect AI (default there:
            evaluations by hand). Repeatable.
        online: wandb: upload directly instead of writing offline files.
    """
    if online and to != "wandb":
        refuse(f"--online: {to} has no such choice; it is for --to wandb")
    layout = layout_at(home)
    for name in sweep:
        require_named("sweep", name, layout.sweeps(), layout)
    if to in ("parquet", "csv", "inspect"):
        if where is None:
            refuse(f"WHERE: name a folder for the files, e.g. rpg export results --to {to}")
        if sweep and to != "inspect":
            refuse(
                f"--sweep: {to} files hold all sweeps; rpg sql QUERY --out FILE writes what "
                "you select"
            )
        if to == "inspect":
            _logs(layout, Path(where), sweep)
        else:
            _files(layout, Path(where), to)
        return 0
    return _send(layout, to, where, sweep, online)


def _files(layout: Layout, folder: Path, ending: str) -> None:
    from rpg.report.csv_text import select_without_formulas
    from rpg.store.database import build, connect
    from rpg.store.schema import TABLES, VIEWS

    build(layout)
    with connect(layout, external=True) as db:
        for name in (*TABLES, *VIEWS):
            with atomic_path(folder.absolute() / f"{name}.{ending}") as temporary:
                if ending == "parquet":
                    db.sql(f"SELECT * FROM {name}").write_parquet(str(temporary))
                else:
                    described = db.sql(f"DESCRIBE {name}").fetchall()
                    types = {column: kind for column, kind, *_ in described}
                    db.sql(select_without_formulas(name, types)).write_csv(str(temporary))
                say(f"{folder / name}.{ending}")
    result(files=[folder / f"{name}.{ending}" for name in (*TABLES, *VIEWS)])


def _logs(layout: Layout, folder: Path, sweeps: list[str]) -> None:
    from rpg.interop.integrations.inspect import export_logs

    path = None
    for path in export_logs(layout, folder, sweeps):
        say(str(path))
    if path is None:
        ways = "name a sweep with --sweep, or evaluate a model first: rpg evaluate"
        refuse(f"no graded samples to export; {ways}")
    say(f"view them with: inspect view --log-dir {shlex.quote(str(folder))}", "dim")


def _send(layout: Layout, to: Target, where: str | None, sweeps: list[str], online: bool) -> int:
    from rpg.config.tracking import tracker_of
    from rpg.interop.tracking.follower import Follower, tracking_folder

    if not sweeps:
        refuse(
            f"--sweep: name a sweep to send to {to}. There are: "
            f"{', '.join(layout.sweeps()) or 'none'}"
        )
    value = {"type": str(to)}
    if to == "wandb":
        value["mode"] = "online" if online else "offline"
        if where:
            value["project"] = where
    elif to == "mlflow":
        value["uri"] = where or ""
    elif where is not None:
        refuse(
            f"WHERE: {where!r}; tensorboard files go to {tracking_folder(layout) / 'tensorboard'}"
        )
    tracker = tracker_of(value)
    failed = 0
    for name in sweeps:
        follower = Follower(layout, name, complain, (tracker,), imported=True)
        count = follower.pass_over()
        follower.close()
        failed += bool(follower.failures)
        say(f"{name}: {count} steps and evaluations sent to {to}")
    return 1 if failed else 0


@app.command("import")
def import_(
    kind: Literal["trl", "verl", "wandb", "csv", "inspect"],
    file: Path,
    sweep: str = "",
    variant: str = "",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    algorithm: str | None = None,
    axis: Annotated[list[str], typer.Option("--axis", "-a")] = [],
    map_: Annotated[list[str], typer.Option("--map", "-m")] = [],
    eval_: Annotated[list[str], typer.Option("--eval", "-e")] = [],
    updates: Annotated[int, typer.Option(min=1)] = 1,
    home: Home = None,
) -> None:
    """Import a run that was trained elsewhere: its curves and scores appear beside yours, marked as
    imported.

    It has no samples, so there is no interval over problems and no paired test for its scores; to
    get them, evaluate its checkpoints with `rpg evaluate CHECKPOINT --join SWEEP/RUN --step N`. An
    evaluation by Inspect AI has samples: it appears beside those of `rpg evaluate`, and no other
    option is needed.

    Args:
        kind: The kind of log; csv: any table with a column of steps; inspect: an evaluation by
            Inspect AI.
        file: The log file: trainer_state.json, JSON lines, console output or CSV.
        sweep: Sweep to add the run to; it may be new.
        variant: Name of the variant in tables and figures.
        seed: Seed of the run; seeds of a variant are averaged.
        algorithm: Name of the algorithm that trained it.
        axis: The run's value on an axis of the sweep, e.g. algorithm.beta=0.01. Repeatable.
        map_: Name of a metric here = its column in the log, e.g. reward=train/acc. Repeatable.
        eval_: Benchmark = the column with its accuracy (0 to 1). Repeatable.
        updates: Logged steps per rollout. TRL logs optimizer steps, so there it is
            steps_per_generation * num_iterations / gradient_accumulation_steps.
    """
    if kind == "inspect":
        _samples(file, home)
        return
    from rpg.config.errors import nearest
    from rpg.config.load import given_once, parse_assignments
    from rpg.interop.importing import Training, own_benchmarks, read, take_over
    from rpg.store.database import build

    if not sweep or not variant:
        refuse(
            "--sweep and --variant: both are needed, e.g. --sweep quickstart --variant 'TRL GRPO'"
        )
    layout = layout_at(home)
    axes = parse_assignments(axis, "--axis")
    expected = "name=column, e.g. reward=train/reward"
    columns_of = partial(given_once, expected=expected, read=lambda text, _: text)
    log = read(kind, file, columns_of(map_, "--map"), columns_of(eval_, "--eval"), updates)
    folder = take_over(
        layout,
        log,
        kind=kind,
        source=file,
        sweep=sweep,
        variant=variant,
        seed=seed,
        training=Training(algorithm, axes, updates),
    )
    build(layout)
    result(
        run=folder.path,
        steps=len(log.steps),
        scores=log.scores,
        offered=log.offered,
        unread=log.unread,
    )
    for sentence in log.unread:
        say(f"! {sentence}", "yellow")
    metrics = sorted({name for row in log.steps for name in row if name != "step"})
    last = f", the last is {log.steps[-1]['step']:,}" if log.steps else ""
    say(f"{folder.path}: {len(log.steps)} steps{last}: {', '.join(metrics)}")
    for name, scores in log.scores.items():
        say(f"{name}: {len(scores)} evaluations, without samples")
    theirs = own_benchmarks(layout, sweep)
    for name in log.scores:
        if theirs and name not in theirs:
            known = f"{nearest(name, theirs)} Theirs: {', '.join(theirs)}"
            say(f"! {name}: the sweep's own runs are not evaluated on it{known}", "yellow")
    if log.offered:
        how = "import one with --eval BENCHMARK=COLUMN"
        say(f"these columns look like scores: {', '.join(log.offered)}; {how}")
    left_out = [name for name in log.others if name not in log.offered]
    left_out.sort(key=lambda name: name.startswith(("eval", "val-")))  # training metrics first
    if left_out:
        more = f" and {len(left_out) - _COLUMNS} more" if len(left_out) > _COLUMNS else ""
        say(
            f"not imported: {', '.join(left_out[:_COLUMNS])}{more}; import one with --map "
            "NAME=COLUMN",
            "dim",
        )


def _samples(file: Path, home: Path | None) -> None:
    from rpg.interop.integrations.inspect import import_log
    from rpg.next_steps import command
    from rpg.store.database import build

    layout = layout_at(home)
    path = import_log(layout, file)
    build(layout)
    say(f"samples: {path}")
    again = command("evaluate", str(path.parent), "--regrade", "--rules", "default", layout=layout)
    say(f"grade them by our rules with: {again}", "dim")
