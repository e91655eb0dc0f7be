"""Checks that what is due happens: a schedule that creates no runs looks perfectly healthy in Prefect's UI ("Ready")."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

UNSCHEDULED_SECONDS = 180.0
"""Prefect's scheduler creates the runs of a schedule within a minute."""
LATE_SECONDS = 300.0
"""A run that has been due for this long is late; a worker may be restarted within that time."""


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
