"""What Prefect's pages show of a sweep: the flow run that its tasks belong to, tables, the figure,
links to the dashboard.

Imported only where Prefect is in use.
"""

import base64
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

import httpx
from prefect import Flow
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.context import hydrated_context
from prefect.logging.handlers import APILogHandler
from prefect.results import get_result_store
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from flows.prefect.flow_runs import DASHBOARD, FLOW_RUN, alive
from flows.prefect.reconcile import cancelled
from rpg.errors import UserError
from rpg.store import Layout

MOST_FIGURE_BYTES = 1_500_000
PROGRESS_SECONDS = 5.0
"""Between two moves of a progress artifact."""


def key(kind: str, name: str) -> str:
    """An artifact's key: lower-case letters, digits and dashes."""
    return f"{kind}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"[:120].strip("-")


def page(sweep: str) -> str:
    """Where the dashboard shows this sweep."""
    address = os.environ.get(DASHBOARD, "http://127.0.0.1:8501")
    return f"{address}/?sweep={quote(sweep)}"


def link(sweep: str) -> None:
    """A link to the dashboard's page."""
    create_link_artifact(
        page(sweep),
        link_text=f"{sweep} in the dashboard",
        key=key("dashboard", sweep),
        description=f"Verdict, curves, runs and samples of {sweep}",
    )


def report(layout: Layout, sweep: str) -> None:
    """The result table and the figure of a sweep, as far as there are any."""
    files = layout.reports(sweep)
    try:
        table = (files / "table.md").read_text(encoding="utf-8")
    except OSError:
        return
    parts = [links(layout, sweep), table]
    figure = files / "report.png"
    if figure.is_file() and figure.stat().st_size <= MOST_FIGURE_BYTES:
        data = base64.b64encode(figure.read_bytes()).decode()
        parts.append(f"![{sweep}](data:image/png;base64,{data})")
    create_markdown_artifact(
        "\n\n".join(parts), key=key("result", sweep), description=f"Result of {sweep}"
    )


def links(layout: Layout, sweep: str) -> str:
    """In Markdown: the dashboard's page, and the folder of the report's files."""
    return f"[In the dashboard]({page(sweep)}) · files: `{layout.reports(sweep)}`"


def verdict(layout: Layout, sweep: str) -> str:
    """What the sweep has found, in a sentence that the report wrote; "" without one. Shown as an
    artifact, too."""
    try:
        question, _, answer = (
            (layout.reports(sweep) / "verdict.txt").read_text("utf-8").rpartition("\n\n")
        )
    except OSError:
        return ""
    escaped = [re.sub(r"([\\`*_\[\]<>#|!])", r"\\\1", line) for line in (question, answer.strip())]
    body = "\n\n".join(filter(None, [escaped[0], f"**{escaped[1]}**", links(layout, sweep)]))
    create_markdown_artifact(body, key=key("verdict", sweep), description=f"Verdict of {sweep}")
    return answer.strip()


def text(kind: str, name: str, lines: Sequence[str]) -> None:
    """What a command printed last, as it was printed."""
    body = "\n".join(lines).replace("```", "'''")
    create_markdown_artifact(f"# {kind} of {name}\n\n```\n{body}\n```", key=key(kind, name))


def nightly(place: Path, name: str) -> None:
    """The table of the newest night kept there; `name` is that of the set, "" of the one that
    ships."""
    newest = max(place.glob("*.md"), key=lambda path: path.stat().st_mtime, default=None)
    if newest:
        table = newest.read_text(encoding="utf-8")
        create_markdown_artifact(table, key=key("nightly", name), description=newest.stem)


class TrainedShare:
    """How much of a sweep is trained, as a progress artifact that moves at most every few
    seconds."""

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep
        self._id: UUID | None = None
        self._shown_at = -math.inf

    def show(self, share: float) -> None:
        """Create or move it; an API that does not answer takes nothing from the sweep."""
        now = time.monotonic()
        if share < 1 and now - self._shown_at < PROGRESS_SECONDS:
            return
        self._shown_at = now
        percent = round(100 * share, 1)
        with suppress(httpx.HTTPError):
            if self._id is None:
                # Prefect decides by its context whether a call is asynchronous: here none is.
                self._id = cast(
                    UUID,
                    create_progress_artifact(
                        percent,
                        key=key("progress", self._sweep),
                        description=f"Steps of {self._sweep} that are trained",
                    ),
                )
            else:
                update_progress_artifact(self._id, percent)


class TaskOwner:
    """A flow run of this command's own; or that of the process which started this command, and
    waits for it."""

    def __init__(self, layout: Layout, sweep: str) -> None:
        self._layout = layout
        self._sweep = sweep
        adopted = os.environ.get(FLOW_RUN)
        self.adopted = adopted is not None
        self.id = UUID(adopted) if adopted else None
        self._log: logging.Logger | None = None
        self.trained = TrainedShare(sweep)

    def log(self, line: str) -> None:
        """A line for the log of a flow run of our own; a command that another one started prints
        its lines instead."""
        if self._log:
            self._log.info(line, extra={"flow_run_id": str(self.id)})

    def stopped(self) -> None:
        """Say that the sweep was stopped on purpose. An adopted flow run's state is its own
        process's matter."""
        if self.id:
            cancelled(self.id, only_tasks=self.adopted)

    @contextmanager
    def adopt(self, flow: Flow[..., Any]) -> Iterator[None]:
        """Tasks that are called inside are tasks of the adopted flow run."""
        with get_client(sync_client=True) as client:
            assert self.id is not None
            flow_run_context = {
                "flow": flow,
                "flow_run": client.read_flow_run(self.id),
                "parameters": {},
                "persist_result": False,
                "result_store": get_result_store().update_for_flow(flow, _sync=True),
            }
            with hydrated_context({"flow_run_context": flow_run_context}, client):
                self._link()
                yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within the flow: what Prefect shows of a flow run of our own besides its states."""
        if self.adopted:
            yield
            return
        self.id = UUID(str(flow_run.id))
        # To the flow run's log at the API, and nowhere else: the terminal shows the progress.
        self._log = logging.Logger("rpg.sweep", logging.INFO)
        self._log.addHandler(APILogHandler())
        link(self._sweep)
        try:
            with alive(self._layout.home, str(self.id), flow_run.run_count):
                self._link()
                yield
        except UserError:
            report(self._layout, self._sweep)
            raise
        report(self._layout, self._sweep)
        verdict(self._layout, self._sweep)

    def _link(self) -> None:
        """For the links of dashboard and report; a private server has no page to link to."""
        dashboard = page(self._sweep) if DASHBOARD in os.environ else None
        self._layout.write_flow_run(self._sweep, url_for("flow-run", obj_id=self.id), dashboard)
