"""The nights come by themselves: what a schedule promises is a run that starts and ends, not a line that is stored."""

import json

import pytest

from tests.operations.serving import SMALL
from tests.waiting import until

pytestmark = pytest.mark.long


def test_a_schedule_of_every_minute_makes_a_flow_run_that_starts_and_ends(served):
    nights = every_minute(served, "minutely")
    assert nights and "few / grpo / response_length" in json.loads(nights[0].read_text())["values"]


def every_minute(served, name):
    """As someone does it who moves the night to the next minute in the UI; returns the files of a night that ended.

    `name` is that of the set; the trainings of one that is called nights are made up (site/sitecustomize.py).
    """
    folder = served.home / "configs" / name
    folder.mkdir()
    (folder / "few.yaml").write_text(SMALL.replace("[grpo, rpg-reinforce-urkl]", "[grpo]"))
    deployment = served.api.get("/deployments/name/nightly/nightly").json()
    (nightly,) = deployment["schedules"]
    place = f"/deployments/{deployment['id']}/schedules/{nightly['id']}"
    minutely = {"cron": "* * * * *", "timezone": "UTC"}
    change = {"schedule": minutely, "parameters": {"sweeps": f"own/{name}"}}
    # The form knows the folder a few seconds after it is there.
    until(lambda: served.api.patch(place, json=change).status_code == 204, "the schedule's change", pause=0.3)
    try:
        # On a slow machine a night takes longer than a minute, and those that are due meanwhile are left out.
        ended = until(
            lambda: [
                run
                for run in served.ended_runs(deployment["id"])
                if run["auto_scheduled"] and run["state"]["name"] != "Skipped"
            ],
            "the end of a run that the schedule made",
            pause=1.0,
        )
    finally:
        back = {"schedule": nightly["schedule"], "parameters": {}}
        assert served.api.patch(place, json=back).status_code == 204
    assert ended[0]["state_type"] == "COMPLETED", ended[0]["state"]
    assert ended[0]["parameters"]["sweeps"] == f"own/{name}"
    return list((served.home / "nightly" / name).glob("*.json"))
