"""`python -m flows.serve.flow_runner [CRON]`: create the deployments and run what is started, until the parent dies.

Without CRON, as on a machine that joins another one's `rpg serve`, the schedules stay as they are.

Every flow run is a process of its own, a child of this one, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rpg.processes import die_with_parent, parent_mark

if TYPE_CHECKING:
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.responses import DeploymentResponse

AT_ONCE = 8
"""Flow runs at a time. How many trainings go on at a time is a matter of slots (flows.machine.slots)."""
TAG = "rpg-lab"
REFRESH_SECONDS = 5.0
"""How soon a configuration that was added or removed is in the form."""


def main(cron: str | None = None) -> None:
    die_with_parent()
    from prefect import serve
    from prefect.deployments.runner import EntrypointType

    from flows.prefect.flow_runs import folder_tag
    from flows.serve.deployments import DEPLOYED
    from rpg.store import StoreError, atomic_write_json, home

    threading.Thread(target=_refresh, daemon=True, name="forms").start()
    tags = [TAG, folder_tag(home())]
    there = _there([f"{one.name}/{one.name}" for one in DEPLOYED])
    given = home() / "serve" / "nightly-schedule.json"
    fresh = cron is not None and (not there.get("nightly") or _last(given) != cron)
    made = [
        one.to_deployment(
            one.name,
            cron=cron if cron and one.name == "nightly" and fresh else None,
            schedules=_schedules(there.get(one.name)) if not (one.name == "nightly" and fresh) else None,
            parameters=there[one.name].parameters if one.name in there else None,
            paused=there[one.name].paused if one.name in there else None,
            tags=tags,
            entrypoint_type=EntrypointType.MODULE_PATH,  # by its path Prefect would look in the current folder, too
        )
        for one in DEPLOYED
    ]
    if cron is not None:
        with contextlib.suppress(StoreError):  # a full disk: then an edit is lost at the next start, no more
            atomic_write_json(given, {"cron": cron})
    os.environ |= parent_mark()  # for the processes of flow runs, which Prefect starts
    _stand_aside(home() / "serve" / "worker")
    serve(*made, limit=AT_ONCE, pause_on_shutdown=False, print_starting_message=False)


def _there(names: list[str]) -> dict[str, DeploymentResponse]:
    """The deployments that exist, with what people have changed of them in the UI: schedules, parameters, pauses."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    found = {}
    with get_client(sync_client=True) as client:
        for name in names:
            with contextlib.suppress(ObjectNotFound):
                found[name.partition("/")[2]] = client.read_deployment_by_name(name)
    return found


def _last(path: Path) -> object:
    """The cron line that `rpg serve` was last given: only another one goes over what was edited in the UI."""
    from rpg.store import StoreError
    from rpg.store.atomic_files import read_json_object

    try:
        return read_json_object(path).get("cron")
    except StoreError:
        return None


def _schedules(there: DeploymentResponse | None) -> list[DeploymentScheduleCreate] | None:
    """The schedules as they are: a deployment that is created again without any would lose them."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    if there is None or not there.schedules:
        return None
    kept = ("schedule", "active", "max_scheduled_runs", "parameters", "slug")
    return [
        DeploymentScheduleCreate(**{name: getattr(one, name) for name in kept}) for one in there.schedules
    ]


def _stand_aside(folder: Path) -> None:
    """Go to an empty folder: a flow run's process imports from where it stands first, whatever Python is told.

    A user's own folder `flows` would be taken for ours there. The flows go back to where we were before they look for
    anything else (flows.serve.deployments).
    """
    from flows.prefect.flow_runs import WORK
    from flows.serve.forms import DATA, OWN

    os.environ[WORK] = os.getcwd()
    for name in (OWN, DATA):
        if os.environ.get(name):
            os.environ[name] = os.path.abspath(os.path.expanduser(os.environ[name]))
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)


def _refresh() -> None:
    """Keep the configurations in the sweep's form, and what is said of their cost, as they are on disk."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentUpdate

    from flows.serve import forms
    from flows.serve.config_costs import Offers
    from rpg.store import home

    offers = Offers()
    while True:
        time.sleep(REFRESH_SECONDS)
        with (
            contextlib.suppress(Exception),
            get_client(sync_client=True) as client,
        ):  # the next look comes soon
            where = forms.roots(home())
            for name, field, now, more in (
                ("sweep", "config", list(forms.configs(where)), offers.words(where)),
                ("nightly", "sweeps", list(forms.nights(where)), ""),
            ):
                deployment = client.read_deployment_by_name(f"{name}/{name}")
                schema = deployment.parameter_openapi_schema or {}
                shown = schema["properties"][field]
                said = "\n\n".join(filter(None, [shown.get("description", "").partition("\n\n")[0], more]))
                if (shown["enum"], shown.get("description", "")) != (now, said):
                    shown |= {"enum": now, "description": said}
                    client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))


if __name__ == "__main__":
    main(*sys.argv[1:])
