"""`rpg serve` for real: server, worker, dashboard, sweeps from the API as the UI uses it, kills and
cancellations."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from flows.prefect.flow_runs import ALIVE, alive_path
from flows.prefect.reconcile import reconcile
from flows.prefect.service import ServerError, Service, start_in_turn
from flows.serve.services import Plan
from flows.serve.supervisor import serve
from rpg.config.errors import ConfigError
from rpg.store import Layout, locks
from tests.operations.serving import SMALL
from tests.waiting import HANG, ended, until

pytestmark = pytest.mark.component


def test_a_service_that_ends_while_it_starts_is_started_again_and_given_up_in_the_end(tmp_path):
    listens = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(60)"
    second = (
        f"import pathlib; p = pathlib.Path('tried')\nif p.exists(): exec({listens!r})\np.touch()"
    )

    def service(name, code):
        command = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r})\n{code}"]
        return Service(name, command, None, {}, tmp_path / name)

    first = service("first", second)
    never = service("never", "raise ValueError('no luck')")
    try:
        start_in_turn([first], tmp_path, threading.Event(), tries=5)
        assert len(first.starts) == 2
        assert first.ports()
        ended = r"the never ended with code 1; ValueError: no luck \(log: .*never"
        with pytest.raises(ServerError, match=ended):
            start_in_turn([never], tmp_path, threading.Event(), tries=3)
        assert len(never.starts) == 3
    finally:
        first.stop(0)


def test_it_listens_on_loopback_only_and_on_the_ports_it_announced(served):
    announced = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", served.log.read_text())}
    connections = [c for process in served.family() for c in process.net_connections("inet")]
    listening = {c.laddr for c in connections if c.status == psutil.CONN_LISTEN}
    assert {address.ip for address in listening} == {"127.0.0.1"}
    ports = {address.port for address in listening}
    assert {served.port, served.dashboard_port} < ports <= announced and len(ports) == 3, (
        "and the worker's"
    )


def test_a_schedule_that_was_edited_in_the_ui_stays_when_the_worker_starts_again(served):
    path = "/deployments/name/nightly/nightly"
    found = served.api.get(path).json()
    edit = {"schedule": {"cron": "15 3 * * *", "timezone": "UTC"}, "active": False}
    schedule = f"/deployments/{found['id']}/schedules/{found['schedules'][0]['id']}"
    assert served.api.patch(schedule, json=edit).status_code == 204
    served.api.patch(f"/deployments/{found['id']}", json={"parameters": {"workers": 1}})
    edited = served.api.get(path).json()
    worker = served.part("serve.flow_runner")
    told = served.log.read_text().count("its flow runs only")
    worker.kill()
    again = lambda: served.api.get(path).json()  # noqa: E731
    until(lambda: again()["updated"] != edited["updated"], "the worker's next start", pause=0.3)
    until(
        lambda: again()["schedules"],
        "the schedule, which Prefect makes anew a moment later",
        pause=0.3,
    )
    now = served.api.get(path).json()
    assert [(one["schedule"]["cron"], one["active"]) for one in now["schedules"]] == [
        ("15 3 * * *", False)
    ]
    assert now["parameters"] == {"workers": 1}
    back = {"schedule": found["schedules"][0]["schedule"], "active": True}
    again = f"/deployments/{found['id']}/schedules/{now['schedules'][0]['id']}"
    assert served.api.patch(again, json=back).status_code == 204
    served.api.patch(f"/deployments/{found['id']}", json={"parameters": {}})
    until(
        lambda: served.log.read_text().count("its flow runs only") > told, "the worker's own port"
    )


def test_a_second_one_says_where_the_first_is_or_whose_port_it_cannot_have(
    served, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "environ", dict(served.environment))
    said = []
    plan = Plan("rpg.__main__", served.port, served.dashboard_port, None, "")
    assert serve(served.layout, plan, said.append) == 0
    for text in (served.ui, served.dashboard, str(served.process.pid)):
        assert any(text in line for line in said)
    with pytest.raises(ConfigError, match=f"--port {served.port}: in use"):
        serve(Layout.at(tmp_path), plan, said.append)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"config": None}, "config"),
        ({"steps": -3}, "steps"),
        ({"algorithms": ["gropo"]}, "algorithms"),
        ({"seeds": ["0; rm -rf /"]}, "seeds"),
        ({"name": "../escape"}, "name"),
        ({"backend": "os.system"}, "backend"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_bad_value_is_refused_with_its_field_before_anything_starts(served, parameters, reason):
    given = {"config": "own/trivial", **parameters}
    until(
        lambda: "additionalProperties" in served.api.get("/deployments/name/sweep/sweep").text,
        "a refresh of the form",
    )
    answer = served.begin(
        "sweep", **{name: value for name, value in given.items() if value is not None}
    )
    assert answer.status_code in (409, 422)
    assert reason in answer.text


@pytest.mark.system
def test_a_sweep_from_the_form_is_the_sweep_of_the_command(served):
    """The flow run completes with artifacts; `rpg sweep` on the same file then finds everything
    done."""
    run = served.run_id(
        "sweep", config="own/trivial · about 3 min · A line that a schedule has kept."
    )
    assert served.finished(run)[0] == "COMPLETED"
    assert served.api.get(f"/flow_runs/{run}").json()["name"] == "sweep own/trivial"
    folders = served.layout.run_folders("trivial")
    assert len(folders) == 2
    assert all(folder.state() == "done" for folder in folders)
    artifacts = served.api.post("/artifacts/filter", json={}).json()
    kinds = {artifact["key"]: artifact for artifact in artifacts if artifact["flow_run_id"] == run}
    assert served.dashboard in kinds["dashboard-trivial"]["data"]
    result = kinds["result-trivial"]["data"]
    assert "GRPO" in result
    assert "data:image/png;base64," in result
    tasks = {one["name"]: one["state_type"] for one in served.tasks(run)}
    trained = {f"train {folder.name}" for folder in served.layout.run_folders("trivial")}
    assert trained < set(tasks) and set(tasks.values()) == {"COMPLETED"}, (
        "its tasks are on its page"
    )
    flows = {"flows": {"name": {"any_": ["sweep"]}}}
    started = served.api.post("/flow_runs/filter", json=flows).json()
    assert not [one for one in started if one["name"].startswith("sweep trivial:")], (
        "one flow run a sweep"
    )
    file = served.home / "configs" / "trivial.yaml"
    command = [sys.executable, "-m", "rpg", "sweep", str(file), "--home", str(served.home)]
    again = subprocess.run(
        command, capture_output=True, text=True, env=served.environment, timeout=HANG
    )
    assert again.returncode == 0
    assert "nothing was trained" in again.stdout


def test_cancelled_from_the_api_the_whole_tree_ends(served):
    run = served.run_id("sweep", config="own/trivial", steps=5000, name="cancelled")
    trainers = until(served.trainers, "a training", pause=0.3)
    worker = served.part("serve.flow_runner")
    tree = worker.children(recursive=True)
    assert set(trainers) <= set(tree)
    wanted = {"state": {"type": "CANCELLING"}, "force": False}
    answer = served.api.post(f"/flow_runs/{run}/set_state", json=wanted)
    assert answer.status_code in (200, 201)
    ended(tree)
    assert served.finished(run)[0] == "CANCELLED"
    # All but that of preparing are Cancelled: neither Crashed nor Failed.
    over = lambda: {one["state_type"] for one in served.tasks(run)} == {"COMPLETED", "CANCELLED"}  # noqa: E731
    until(over, "the end of the tasks", pause=0.3)
    reconcile(served.layout, f"{served.ui}/api")
    assert {one["state_type"] for one in served.tasks(run)} == {"COMPLETED", "CANCELLED"}
    assert worker.is_running() and served.part("serve.flow_runner") == worker, (
        "other flow runs go on"
    )


@pytest.mark.system
def test_a_failed_training_and_a_killed_worker_are_told_and_retry_goes_on(served):
    """Retry is pressed at once, while repairs go on: what the first attempt left is not taken for
    the second one's."""
    run = served.run_id("sweep", config="own/trivial", steps=30, name="failing")
    until(served.trainers, "a training", pause=0.3)[0].kill()
    kind, message = served.finished(run)
    assert kind == "FAILED"
    assert "the training process was killed by signal 9" in message
    locks.take(
        alive_path(served.home, run, 1)
    ).close()  # as a killed process leaves it: a note, and no lock on it
    served.retry(run)
    said = []
    again = lambda: said.extend(reconcile(served.layout, f"{served.ui}/api")) or served.trainers()  # noqa: E731
    until(again, "the retry", pause=1.0)
    assert served.state(run)[0] == "RUNNING", said

    worker = served.part("serve.flow_runner")
    tree = [worker, *worker.children(recursive=True)]
    worker.send_signal(signal.SIGKILL)
    ended(tree)
    kind, message = served.finished(run)
    assert kind == "CRASHED"
    assert "its process is gone" in message
    served.retry(run)
    assert served.finished(run)[0] == "COMPLETED"
    for folder in served.layout.run_folders("failing"):
        assert [row["step"] for row in folder.read_metrics()] == list(range(1, 31))
    assert not any((served.home / ALIVE).iterdir()), "nothing of them stays"


def test_a_night_out_of_its_band_is_red_in_the_ui_with_metric_and_distance(served):
    folder = served.home / "configs" / "nights"
    place = served.home / "nightly" / "nights"
    folder.mkdir()
    place.mkdir(parents=True)
    (folder / "few.yaml").write_text(SMALL.replace("[grpo, rpg-reinforce-urkl]", "[grpo]"))
    for age in (1, 2, 3):
        values = {"few / grpo / reward": 100.0 + age, "few / grpo / grad_norm": 1e9}
        night = {"night": f"earlier-{age}", "started": age, "values": values, "failed": {}}
        (place / f"earlier-{age}.json").write_text(json.dumps(night))
    # The form knows it a few seconds after the folder is there.
    begin = lambda: (a := served.begin("nightly", sweeps="own/nights")).status_code == 201 and a  # noqa: E731
    begun = until(begin, pause=0.3)
    kind, message = served.finished(begun.json()["id"])
    assert kind == "FAILED", message
    said = r"few / grpo / reward: -?[\d.]+, band \[[\d.]+, [\d.]+\], [\d.]+ below it"
    assert re.search(said, message), message
    assert "grad_norm" not in message, "only more than usual is red there"
    keys = {artifact["key"] for artifact in served.api.post("/artifacts/filter", json={}).json()}
    assert "nightly-nights" in keys
