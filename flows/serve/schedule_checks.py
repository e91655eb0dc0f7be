"""Checks that what is due happens: a schedule that creates no runs looks perfectly healthy in Prefect's UI ("Ready")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

UNSCHEDULED_SECONDS = 180.0
"""Prefect's scheduler creates the runs of a schedule within a minute."""
LATE_SECONDS = 300.0
"""A run that has been due for this long is late; a worker may be restarted within that time."""
LOG_SECONDS = 600.0
OFTEN = 2
"""An error that Prefect's server has logged this often within LOG_SECONDS is no accident."""
_ERROR = re.compile(r"\| (ERROR|CRITICAL)\s+\| (.*)")
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.*)")


class ServerLog:
    """Errors in the log of Prefect's server; each call reads what was added since the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = path.stat().st_size if path.exists() else 0
        self._errors: list[tuple[float, str]] = []

    def problems(self, now: float) -> list[str]:
        self._errors += [(now, error) for error in self._new()]
        self._errors = [(at, error) for at, error in self._errors if now - at <= LOG_SECONDS]
        return [
            f"Prefect's server reports an error, {count} times in {LOG_SECONDS / 60:.0f} minutes: {error} (log: {self.path})"
            for error, count in Counter(error for _, error in self._errors).items()
            if count >= OFTEN
        ]

    def _new(self) -> list[str]:
        """One line per error: what was raised, else what was logged."""
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                file.seek(self._at if size >= self._at else 0)
                data = file.read(4_000_000)
                whole = data.rpartition(b"\n")[0] + b"\n" if b"\n" in data else b""
                self._at = file.tell() - len(data) + len(whole)
        except OSError:
            return []
        errors, logged, raised = [], None, None
        for line in [*whole.decode(errors="replace").splitlines(), "| ERROR | "]:
            if head := _ERROR.search(line):
                if logged:
                    errors.append((raised or logged)[:200])
                logged, raised = head[2].strip(), None
            elif last := _RAISED.match(line.strip()):
                raised = f"{last[1]}: {last[2]}"
        return errors


def schedule_problems(
    deployments: Sequence[Any], runs: Sequence[Any], now: datetime, up_for: float
) -> list[str]:
    """Schedules without runs, and runs that nobody starts. `runs` are those in a scheduled state."""
    scheduled = {run.deployment_id for run in runs}
    problems = [
        f"the schedule of {deployment.name} creates no runs: nothing will start when it is due; "
        "see serve/server.log in the data folder"
        for deployment in deployments
        if any(schedule.active for schedule in deployment.schedules) and not deployment.paused
        if deployment.id not in scheduled and up_for > UNSCHEDULED_SECONDS
    ]
    names = {deployment.id: deployment.name for deployment in deployments}
    latest = now - timedelta(seconds=LATE_SECONDS)
    late = [run for run in runs if run.expected_start_time and run.expected_start_time < latest]
    if late:
        first = min(late, key=lambda run: run.expected_start_time)
        name = names.get(first.deployment_id) or first.name
        problems.append(
            f"{len(late)} flow run{'s are' if len(late) > 1 else ' is'} late; the first, {name}, was due at "
            f"{first.expected_start_time.astimezone():%Y-%m-%d %H:%M}: the worker starts none (8 at a time), see "
            "serve/worker.log"
        )
    return problems


def look(tag: str, up_for: float) -> list[str]:
    """Problems with the schedules and runs of the deployments with this tag, according to the Prefect API in the settings,
    `up_for` seconds after server and worker were started.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter

    with get_client(sync_client=True) as client:
        ours = {"tags": {"all_": [tag]}}
        scheduled = {**ours, "state": {"type": {"any_": ["SCHEDULED"]}}}
        deployments = client.read_deployments(deployment_filter=DeploymentFilter.model_validate(ours))
        runs = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(scheduled))
        return schedule_problems(deployments, runs, datetime.now(UTC), up_for)
