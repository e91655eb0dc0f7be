"""`rpg serve --database postgresql+asyncpg://...` on a real Postgres.

Needs the server's programs (Debian: apt-get install postgresql); says so when it is left out.
"""

import glob
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.operations.serving import ROOT, Served, free_port
from tests.operations.test_schedule import every_minute
from tests.waiting import HANG

INITDB = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(INITDB is None, reason="no Postgres here (Debian: apt-get install postgresql)"),
]


@pytest.fixture
def postgres(tmp_path):
    """The URL of an empty database on loopback."""
    data, port, log = tmp_path / "postgres", free_port(), tmp_path / "postgres.log"
    programs = os.path.dirname(os.path.realpath(INITDB))
    as_user = []
    if os.getuid() == 0:  # Postgres refuses to run as root
        data.mkdir()
        shutil.chown(data, "nobody")
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == 0 and str(parent).startswith("/tmp/"):
                parent.chmod(0o755)
        as_user = ["runuser", "-u", "nobody", "--"]
    make = [*as_user, f"{programs}/initdb", "-D", str(data), "-U", "rpg", "--auth=trust", "-N"]
    made = subprocess.run(make, capture_output=True, text=True, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    options = ["-c", "listen_addresses=127.0.0.1", "-p", str(port), "-c", f"unix_socket_directories={data}"]
    with log.open("wb") as output:
        begin = [*as_user, f"{programs}/postgres", "-D", str(data), *options]
        here = {"start_new_session": True, "cwd": tmp_path}
        server = subprocess.Popen(begin, stdout=output, stderr=output, **here)
    try:
        create = [f"{programs}/createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "rpg", "prefect"]
        for _ in range(60):
            if subprocess.run(create, capture_output=True).returncode == 0:
                break
            subprocess.run(["sleep", "0.5"])
        yield f"postgresql+asyncpg://rpg@127.0.0.1:{port}/prefect"
    finally:
        subprocess.run(
            [*as_user, f"{programs}/pg_ctl", "-D", str(data), "-m", "immediate", "stop"], capture_output=True
        )
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def test_a_postgres_url_is_honoured_schedules_fire_and_prefect_yaml_deploys_the_same(postgres, tmp_path):
    served = Served(tmp_path / "served", postgres)
    try:
        run = served.run_id("aggregate")
        assert served.finished(run)[0] == "COMPLETED"
        assert every_minute(served, "nights"), "a schedule of every minute makes a night that starts and ends"
        assert not list((served.home / "prefect").glob("*.db")), "nothing of it is in SQLite"
        mine = {one["name"]: one for one in served.api.post("/deployments/filter", json={}).json()}
        environment = served.environment | {
            "PREFECT_API_URL": f"{served.ui}/api", "PREFECT_HOME": str(tmp_path / "client"), "DO_NOT_TRACK": "1",
            "RPG_HOME": str(served.home),
        }  # fmt: skip
        for words in (
            ["work-pool", "create", "rpg", "--type", "process"],
            ["--no-prompt", "deploy", "--all"],
        ):
            command = [sys.executable, "-m", "prefect", *words]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG
            )
            assert done.returncode == 0, done.stdout + done.stderr
        pooled = {one["name"]: one for one in served.api.post("/deployments/filter", json={}).json()}
        assert set(pooled) == set(mine) == {"sweep", "study", "evaluate", "audit", "aggregate", "nightly"}
        for name, one in pooled.items():
            assert one["work_pool_name"] == "rpg"
            assert fields(one) == fields(mine[name])
        assert pooled["nightly"]["schedules"][0]["schedule"]["cron"] == "0 2 * * *"
    finally:
        served.stop()
    programs = os.path.dirname(os.path.realpath(INITDB))
    count = subprocess.run(
        [f"{programs}/psql", "-At", "-d", postgres.replace("+asyncpg", ""), "-c",
         "select count(*) from flow_run where state_type = 'COMPLETED'"],  # others wait for their night
        capture_output=True, text=True,
    )  # fmt: skip
    assert int(count.stdout) >= 2, count.stderr  # the one that was asked for, and the night


def fields(deployment):
    """The form, without the order that `rpg serve` gives its choices."""
    schema = deployment["parameter_openapi_schema"]
    for field in schema["properties"].values():
        field["enum"] = sorted(map(str, field.get("enum", [])))
    return schema
