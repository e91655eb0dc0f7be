"""`rpg serve` sees that its schedules make no runs, and that runs are late; and says so."""

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest

from flows.prefect.flow_runs import folder_tag
from flows.serve import supervisor
from flows.serve.supervisor import look, schedule_problems
from rpg.store.live_status import HEALTH, read_problems, write_problems
from tests.real_sweep import rpg
from tests.waiting import until


def deployment(
    active=True,
    paused=False,
    updated=datetime(2026, 1, 1, tzinfo=UTC),
    required=(),
    defaults=(),
    scheduled=(),
):
    times = datetime(2026, 1, 1, tzinfo=UTC), updated
    schedules = [
        SimpleNamespace(active=active, updated=time, parameters=dict(scheduled)) for time in times
    ]
    return SimpleNamespace(
        id=uuid4(),
        name="nightly",
        paused=paused,
        schedules=schedules,
        parameters=dict(defaults),
        parameter_openapi_schema={"required": list(required)},
    )


def run_of(one, due):
    return SimpleNamespace(deployment_id=one.id, name="owl", expected_start_time=due)


def test_a_schedule_without_runs_and_runs_that_nobody_begins():
    now = datetime.now(UTC)
    night = deployment()
    ahead = run_of(night, now + timedelta(hours=3))
    assert "creates no runs" in schedule_problems([night], [], now, 600)[0]
    assert schedule_problems([night], [], now, 60) == [], "Prefect has a minute to make them"
    assert schedule_problems([deployment(updated=now - timedelta(minutes=1))], [], now, 600) == []
    assert schedule_problems([night], [ahead], now, 600) == []
    assert (
        schedule_problems([deployment(active=False), deployment(paused=True)], [], now, 600) == []
    )
    late = schedule_problems([night], [ahead, run_of(night, now - timedelta(minutes=20))], now, 600)
    assert len(late) == 1
    assert "1 flow run is late; the first, nightly, was due at" in late[0]
    assert schedule_problems([night], [run_of(night, now - timedelta(minutes=2))], now, 600) == []


@pytest.mark.parametrize(
    ("defaults", "scheduled", "is_named"),
    [
        ({}, {}, True),
        ({"config": ""}, {}, True),
        ({"config": "quickstart"}, {}, False),
        ({}, {"config": "own/mine"}, False),
        ({"config": "quickstart"}, {"config": None}, True),
    ],
)
def test_a_schedule_without_a_required_field_is_named(defaults, scheduled, is_named):
    one = deployment(required=["config"], defaults=defaults, scheduled=scheduled)
    now = datetime.now(UTC)

    problems = schedule_problems([one], [run_of(one, now + timedelta(hours=1))], now, 600)

    said = "a schedule of nightly cannot run: it has no config"
    assert [problem.startswith(said) for problem in problems] == [True] * is_named


def test_a_late_run_waits_for_those_that_go_on_or_for_a_worker_that_starts_none():
    now = datetime.now(UTC)
    night = deployment()
    late = [run_of(night, now - timedelta(minutes=20))]

    [busy] = schedule_problems([night], late, now, 600, running=8)
    [idle] = schedule_problems([night], late, now, 600, running=2)

    assert "8 flow runs are running" in busy
    assert "starts none" not in busy
    assert "the worker starts none" in idle


def test_status_and_dashboard_say_it_while_somebody_serves(tmp_path):
    write_problems(tmp_path / "data", ["the schedule of nightly creates no runs"])
    said = rpg(tmp_path, "status")
    assert said.returncode == 0
    assert "the schedule of nightly creates no runs" in said.stdout + said.stderr
    assert read_problems(tmp_path / "data") == ["the schedule of nightly creates no runs"]
    note = json.loads((tmp_path / "data" / HEALTH).read_text())
    (tmp_path / "data" / HEALTH).write_text(json.dumps(note | {"time": time.time() - 3600}))
    assert read_problems(tmp_path / "data") == []
    (tmp_path / "data" / HEALTH).write_text("[")
    assert read_problems(tmp_path / "data") == []


@pytest.mark.component
def test_a_real_server_is_well_and_a_schedule_whose_runs_are_gone_is_not(served, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(served.home / "prefect"))
    monkeypatch.setattr(supervisor, "UNSCHEDULED_SECONDS", 0.0)
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: f"{served.ui}/api"}):
        until(lambda: look(folder_tag(served.home), 600) == [], "runs for the schedule")
        found = served.api.get("/deployments/name/nightly/nightly").json()
        mine = {
            "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
            "deployments": {"id": {"any_": [found["id"]]}},
        }

        def without_runs():
            for run in served.api.post("/flow_runs/filter", json=mine).json():
                served.api.delete(f"/flow_runs/{run['id']}")
            return look(folder_tag(served.home), 600)

        problems = until(without_runs, "a look before the scheduler has made them again")
        assert "the schedule of nightly creates no runs" in problems[0]
