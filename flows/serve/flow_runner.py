"""`python -m flows.serve.flow_runner [CRON]`: create the deployments and run what is started, until
the parent dies.

Without CRON, as on a machine that joins another one's `rpg serve`, the schedules stay as they are.
Every flow run is a child of this process, and ends with it.
"""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from prefect import serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import EntrypointType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from flows.prefect.flow_runs import WORK, folder_tag
from flows.serve import forms
from flows.serve.deployments import DEPLOYED
from flows.serve.form_sizes import choices, chooser
from flows.serve.services import AT_ONCE
from rpg.store import StoreError, atomic_write_json, home
from rpg.store.atomic_files import read_json_object
from rpg.system.processes import ask_directly, die_with_parent, parent_mark

REFRESH_SECONDS = 5.0
"""How soon a configuration that was added or removed is in the form."""


def main(cron: str | None = None) -> None:
    die_with_parent()
    with ask_directly(PREFECT_API_URL.value() or ""):
        _serve(cron)


def _serve(cron: str | None) -> None:
    threading.Thread(target=_refresh, daemon=True, name="forms").start()
    tags = ["rpg-lab", folder_tag(home())]
    existing = {}  # with what was changed in the UI: schedules, parameters, pauses
    with get_client(sync_client=True) as client:
        for flow in DEPLOYED:
            with contextlib.suppress(ObjectNotFound):
                existing[flow.name] = client.read_deployment_by_name(f"{flow.name}/{flow.name}")
    cron_file = home() / "serve" / "nightly-schedule.json"
    last = None
    with contextlib.suppress(StoreError):
        last = read_json_object(cron_file).get("cron")
    # Only a cron line that `rpg serve` was not given before replaces what was edited in the UI.
    new_cron = cron is not None and ("nightly" not in existing or last != cron)
    deployments = []
    for flow in DEPLOYED:
        before = existing.get(flow.name)
        new = new_cron and flow.name == "nightly"
        timing = {"cron": cron or None} if new else {"schedules": _schedules(before)}
        kept = {"parameters": before.parameters, "paused": before.paused} if before else {}
        # With a path instead of a module Prefect would search the current folder, too.
        entry = {"tags": tags, "entrypoint_type": EntrypointType.MODULE_PATH}
        deployments.append(flow.to_deployment(flow.name, **timing, **kept, **entry))
    if cron is not None:
        with contextlib.suppress(
            StoreError
        ):  # a full disk: an edit is lost at the next start, no more
            atomic_write_json(cron_file, {"cron": cron})
    os.environ |= parent_mark()  # for the processes of flow runs, which Prefect starts
    _enter_empty_folder(home() / "serve" / "worker")
    serve(*deployments, limit=AT_ONCE, pause_on_shutdown=False, print_starting_message=False)


def _schedules(deployment: DeploymentResponse | None) -> list[DeploymentScheduleCreate] | None:
    """The schedules as they are: a deployment that is created again without any would lose them."""
    fields = ("schedule", "active", "max_scheduled_runs", "parameters", "slug")
    schedules = deployment.schedules if deployment else []
    kept = ({name: getattr(schedule, name) for name in fields} for schedule in schedules)
    return [DeploymentScheduleCreate(**values) for values in kept] or None


def _enter_empty_folder(folder: Path) -> None:
    """A flow run's process searches its current folder for modules first, whatever Python is told:
    it would take a user's own folder `flows` for ours. The flows return to the folder that we came
    from first (flows.serve.deployments).
    """
    os.environ[WORK] = os.getcwd()
    for name in (forms.OWN, forms.DATA):
        if os.environ.get(name):
            os.environ[name] = os.path.abspath(os.path.expanduser(os.environ[name]))
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)


def _refresh() -> None:
    """Keep the configurations in the forms, and what they take, as they are on disk; the table is
    the description's."""
    client = get_client(sync_client=True)  # one for good: each reads the certificates again
    while True:
        time.sleep(REFRESH_SECONDS)
        # Whatever fails here, the server being away or a file in the middle of an edit: the next
        # try is seconds away.
        with contextlib.suppress(Exception):
            roots = forms.roots(home())
            sweeps, costs = choices(forms.configs(roots), roots.home)
            studies, runs = choices(forms.studies(roots), roots.home)
            for name, field, shape, table in (
                ("sweep", "config", chooser(sweeps), costs),
                ("study", "config", chooser(studies), runs),
                ("nightly", "sweeps", {"enum": list(forms.nights(roots))}, ""),
            ):
                deployment = client.read_deployment_by_name(f"{name}/{name}")
                schema = deployment.parameter_openapi_schema or {}
                first = (deployment.description or "").partition("\n\n")[0]
                text = "\n\n".join(filter(None, [first, table]))
                properties = schema["properties"] | {field: schema["properties"][field] | shape}
                # The server refuses another parameter, with which a flow run would crash before it
                # could say why.
                now = schema | {"properties": properties, "additionalProperties": False}
                if (deployment.description, schema) != (text, now):
                    update = DeploymentUpdate(description=text, parameter_openapi_schema=now)
                    client.update_deployment(deployment.id, update)


if __name__ == "__main__":
    main(*sys.argv[1:])
