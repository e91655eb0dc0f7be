"""What the Prefect UI shows of a flow run besides its log: tables, the figure, links to the dashboard."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from flows.monitor import Watch
from flows.prefect.flow_runs import DASHBOARD
from rpg.store import Layout, StoreError
from rpg.store.current import current_runs

MOST_FIGURE_BYTES = 1_500_000


def key(kind: str, name: str) -> str:
    """An artifact's key: lower-case letters, digits and dashes."""
    return f"{kind}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"[:120].strip("-")


def link(sweep: str) -> None:
    """Where the dashboard shows this sweep."""
    address = os.environ.get(DASHBOARD, "http://127.0.0.1:8501")
    create_link_artifact(
        f"{address}/compare?sweeps={quote(sweep)}",
        link_text=f"{sweep} in the dashboard",
        key=key("dashboard", sweep),
    )


def report(layout: Layout, sweep: str) -> None:
    """The state of every run, the result table and the figure of a sweep, as far as there are any."""
    rows = []
    for folder in current_runs(layout, sweep):
        name = folder.name
        try:
            failed = folder.read_failed() or {}
            rows.append({"run": name, "state": folder.state(), "error": str(failed.get("error", "")),
                         "health": "; ".join(Watch([folder]).views()[0].health)})  # fmt: skip
        except StoreError as error:
            rows.append({"run": name, "state": "unreadable", "error": str(error)})
    if rows:
        create_table_artifact(rows, key=key("runs", sweep), description=f"Runs of {sweep}")
    files = layout.reports(sweep)
    try:
        table = (files / "table.md").read_text(encoding="utf-8")
    except OSError:
        return
    parts = [table]
    figure = files / "report.png"
    if figure.is_file() and figure.stat().st_size <= MOST_FIGURE_BYTES:
        data = base64.b64encode(figure.read_bytes()).decode()
        parts.append(f"![{sweep}](data:image/png;base64,{data})")
    create_markdown_artifact("\n\n".join(parts), key=key("result", sweep), description=f"Result of {sweep}")


def text(kind: str, name: str, lines: Sequence[str]) -> None:
    """What a command printed last, as it was printed."""
    body = "\n".join(lines).replace("```", "'''")
    create_markdown_artifact(f"# {kind} of {name}\n\n```\n{body}\n```", key=key(kind, name))


def nightly(place: Path, name: str) -> None:
    """The table of the newest night kept there; `name` is that of the set, "" of the one that ships."""
    nights = sorted(place.glob("*.md"), key=lambda path: path.stat().st_mtime)
    if nights:
        create_markdown_artifact(
            nights[-1].read_text(encoding="utf-8"), key=key("nightly", name), description=nights[-1].stem
        )
