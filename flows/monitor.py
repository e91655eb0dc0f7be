"""What a sweep is doing, read from its files: one row a run, for the terminal."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rpg.report import format as written
from rpg.report.diagnostics import OFTEN, not_measured, of_training
from rpg.store import RunFolder, StoreError
from rpg.store.current import how_it_came
from rpg.store.damage import notes_of
from rpg.store.live_status import clock
from rpg.store.notes import marked, titled
from rpg.store.run_folder import UNREADABLE, parse_row

LINE_SECONDS = 60.0
"""Without a terminal, a line about the whole is printed this often within a phase."""
STYLES = {
    "done": "green",
    "running": "cyan",
    "evaluating": "blue",
    "failed": "bold red",
    UNREADABLE: "bold red",
    "interrupted": "yellow",
    "queued": "magenta",
    "pending": "dim",
}


@dataclass(frozen=True)
class RunView:
    """A run at one moment. `rate` is steps per second of its last steps; `reward` the last step's
    mean reward."""

    name: str
    variant: str
    state: str
    seed: int = 0
    step: int = 0
    steps: int = 0
    reward: float | None = None
    accuracy: float | None = None
    rate: float | None = None
    evals: int = 0
    evals_due: int = 0
    error: str | None = None
    """What went wrong, what a queued run waits for, or where else it is running."""
    health: tuple[str, ...] = ()
    """What is noticed about its training, each with its evidence and what to do
    (rpg.report.diagnostics)."""
    now: str | None = None
    """Where it is within a step that takes long, or which checkpoint is being evaluated
    (rpg.store.live_status)."""


class Watch:
    """Reads the runs of a sweep; manifests and finished runs are read once, metrics by their last
    few kilobytes."""

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self._folders = list(folders)
        self._manifests: dict[str, dict[str, Any]] = {}
        self._settled: dict[str, tuple[int, RunView]] = {}
        """Runs that are done or pending, with the time of their folders: of 1,000 runs, most of the
        time most."""
        self._damage: dict[str, dict[str, str]] = {}

    def damage(self) -> list[str]:
        """A sentence for each damaged file that the last views met."""
        return [line for run, damage in self._damage.items() for line in notes_of(run, damage)]

    def views(self) -> list[RunView]:
        return [self._view(folder) for folder in self._folders]

    def share(self) -> float:
        """Of all steps, those that are trained."""
        views = self.views()
        steps = sum(view.steps for view in views)
        return sum(view.step for view in views) / steps if steps else 0.0

    def _view(self, folder: RunFolder) -> RunView:
        try:
            changed = folder.path.stat().st_mtime_ns
        except OSError:  # removed by hand, or never written: a rerun begins it
            self._damage.pop(folder.name, None)
            return RunView(folder.name, folder.name, folder.state())
        at, settled = self._settled.get(folder.name, (0, None))
        if settled and at == changed:
            return settled
        try:
            manifest = self._manifests.get(folder.name) or folder.read_manifest()
        except StoreError as error:
            if isinstance(error.__cause__, PermissionError):
                return RunView(folder.name, folder.name, UNREADABLE, error=str(error))
            self._damage[folder.name] = folder.damage()
            by_files = folder.state()
            begins = by_files == "pending" and not folder.manifest_path.exists()
            why = None if begins else str(error)
            return RunView(folder.name, folder.name, by_files, error=why)
        self._manifests[folder.name] = manifest
        state, message = _state(folder, manifest)
        tail = folder.last_metrics()
        last = tail[-1] if tail else {}
        rate = None
        if state == "running" and tail and (seconds := tail[-1]["time"] - tail[0]["time"]) > 0:
            rate = (tail[-1]["step"] - tail[0]["step"]) / seconds
        results = folder.inspect(manifest_is_sound=True)
        self._damage[folder.name] = results.damage
        due = len(manifest.get("eval_steps", [])) * len(manifest.get("benchmarks", []))
        steps = results.evaluations.steps
        evals = sum(len(steps.get(name, [])) for name in manifest.get("benchmarks", []))
        name = titled(manifest["variant"], marked(folder.path)[0])
        rows = [*first_metrics(folder), *tail]
        findings = of_training(rows)
        if "imported" in manifest:
            findings += not_measured(rows, with_samples=any(steps.values()))
        view = RunView(
            folder.name,
            name,
            state,
            manifest["seed"],
            int(last.get("step", 0)),
            manifest["steps"],
            last.get("reward"),
            last.get("accuracy"),
            rate,
            evals,
            due,
            message,
            tuple(str(finding) for finding in findings),
            folder.now() if state in ("running", "evaluating") else None,
        )
        if state in ("done", "pending"):
            self._settled[folder.name] = (changed, view)
        return view


def _state(folder: RunFolder, manifest: dict[str, Any]) -> tuple[str, str | None]:
    """The state of a run as the table shows it, and what there is to say about it."""
    state: str = folder.state()
    if state == "interrupted" and folder.checkpoint(manifest["steps"]).exists():
        state = "evaluating"  # trained; DONE.json comes with the last evaluation
    if state != "done" and (
        why := folder.waiting()
    ):  # for a slot, another sweep, or space on the disk
        return "queued", why
    if state == "running":
        return state, folder.elsewhere()
    if state == "failed":
        try:
            return state, (folder.read_failed() or {}).get("error")
        except StoreError as unreadable:
            return state, str(unreadable)
    return state, how_it_came(manifest["imported"]["from"]) if "imported" in manifest else None


def first_metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """The first steps of the first attempt, for what is compared with how it began."""
    lines: list[bytes] = []
    for attempt in folder.attempts()[:1]:
        with folder.metrics_path(attempt).open("rb") as file:
            lines = file.read(8_192).split(b"\n")[:-1]
    return [row for line in lines if (row := parse_row(line)) is not None and row["step"] <= OFTEN]


def time_left(views: Sequence[RunView], began: float, at_start: int) -> float | None:
    """Seconds until all steps are done at the sweep's own pace since training began; None before
    there is a pace."""
    done = sum(v.step for v in views) - at_start
    left = sum(v.steps - v.step for v in views if v.state != "failed")
    elapsed = time.monotonic() - began
    return left * elapsed / done if done > 0 and left > 0 and elapsed > 3 else None


def table(views: Sequence[RunView], most: int = 30) -> Group:
    """One row a run; in a large sweep, those that are running or failed first. Notes go below the
    table: a long line would squeeze its columns."""
    out = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for name in ("run", "seed", "state", "", "step", "reward", "train acc", "evals", "left"):
        out.add_column(
            name, justify="left" if name in ("run", "state", "") else "right", no_wrap=True
        )
    order = (
        "running",
        "failed",
        UNREADABLE,
        "evaluating",
        "interrupted",
        "queued",
        "pending",
        "done",
    )
    shown = (
        list(views)
        if len(views) <= most
        else sorted(views, key=lambda v: order.index(v.state))[:most]
    )
    said: dict[tuple[str, str], list[str]] = {}
    for v in shown:
        bar = ProgressBar(total=max(v.steps, 1), completed=v.step, width=16)
        number = written.reward(v.reward)
        accuracy = written.accuracy(v.accuracy)
        left = (v.steps - v.step) / v.rate if v.rate else None
        evals = f"{v.evals}/{v.evals_due}" if v.evals_due else str(v.evals or "")
        out.add_row(
            Text(v.variant[:44]),
            str(v.seed),
            Text(v.state, style=STYLES.get(v.state, "")),
            bar,
            f"{v.step}/{v.steps}",
            number,
            accuracy,
            evals,
            "" if left is None else clock(left),
        )
        notes = [(v.now, "dim"), *((f"! {finding}", "yellow") for finding in v.health)]
        for note, style in (*notes, (v.error, "red" if v.state == "failed" else "dim")):
            if note:
                said.setdefault((note, style), []).append(f"{v.variant} seed {v.seed}")
    if len(shown) < len(views):
        out.add_row(Text(f"... and {len(views) - len(shown)} more", style="dim"))
    return Group(
        out, *(Text(f"{', '.join(runs)}: {note}", style) for (note, style), runs in said.items())
    )


def headline(title: str, views: Sequence[RunView], phase: str, left: float | None) -> Text:
    counts = {state: sum(v.state == state for v in views) for state in STYLES}
    parts = [f"{n} {state}" for state, n in counts.items() if n]
    rate = sum(v.rate or 0 for v in views)
    text = Text.assemble((title, "bold"), f"  {phase}  ", (" · ".join(parts), "dim"))
    if rate:
        text.append(f"  {rate:.1f} steps/s", style="dim")
    if left is not None:
        text.append(f"  about {clock(left)} left", style="bold")
    return text


class Progress:
    """Shows a sweep while it is entered: a live table on a terminal, a line per change
    elsewhere."""

    def __init__(self, console: Console, title: str, folders: Sequence[RunFolder]) -> None:
        self.console = console
        self.title = title
        self.watch = Watch(folders)
        self.phase = "starting"
        self.note = ""
        self.began = time.monotonic()
        self._at_start = sum(v.step for v in self.watch.views())
        self._states: dict[str, str] = {}
        self._noticed: dict[str, set[str]] = {}
        self._said_phase = ""
        self._said_at = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=10)

    def _draw(self) -> None:
        if self.console.is_terminal:
            with Live(console=self.console, get_renderable=self.render, refresh_per_second=2):
                self._over.wait()
            return
        while not self._over.wait(1.0):
            self.lines()
        self.lines()

    def tell(self, line: str) -> None:
        """A line about the phase that changes often."""
        self.note = line

    def render(self) -> Group:
        views = self.watch.views()
        left = time_left(views, self.began, self._at_start)
        note = [Text(self.note, style="dim")] if self.note else []
        return Group(headline(self.title, views, self.phase, left), table(views), *note)

    def lines(self) -> None:
        """For logs and pipes: one line when a run changes state, and one about the whole when the
        phase changes, else once a minute."""
        views = self.watch.views()
        for v in views:
            if self._states.get(v.name, "pending") != v.state:
                extra = f"  step {v.step}/{v.steps}" if v.state != "running" else ""
                self._print(f"{v.state:>11}  {v.variant} seed {v.seed}{extra}")
                if v.error:
                    self._print(f"             {v.error}")
            self._states[v.name] = v.state
            for finding in set(v.health) - self._noticed.get(v.name, set()):
                self._print(f"           ! {v.variant} seed {v.seed}: {finding}")
            self._noticed.setdefault(v.name, set()).update(v.health)
        now = time.monotonic()
        if self.phase != self._said_phase or now - self._said_at > LINE_SECONDS:
            self._said_phase = self.phase
            self._said_at = now
            self._say_all(views)

    def _say_all(self, views: Sequence[RunView]) -> None:
        """A line about the sweep, and one for each run that is within a long step."""
        left = time_left(views, self.began, self._at_start)
        phase = f"{self.phase}: {self.note}" if self.note else self.phase
        phase += f", {clock(time.monotonic() - self.began)}"
        self.console.print(headline(self.title, views, phase, left), soft_wrap=True)
        still = not any(v.now for v in views)  # what all queued runs wait for is then the news
        for v in views:
            now = v.now or (v.error if still and v.state == "queued" else "")
            if now:
                self._print(f"             {v.variant} seed {v.seed}: {now}")

    def _print(self, line: str) -> None:
        """A whole line, however long: a log has no width."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
