"""`rpg serve` as a lab has it: a password, a proxy with TLS and a path, Postgres, a schedule that
makes nights.

Needs Postgres, Chromium and a proxy (Debian: apt-get install postgresql chromium nginx-light
caddy); tests that lack one are left out, and say so.
"""

import glob
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest

from benchmarks.browser import CHROMIUM, QUICK_FLAGS
from rpg.system.web import HEALTH
from tests.operations.serving import FINAL, ROOT, SMALL, Served
from tests.waiting import HANG, free_port, until

SECRET = "anna:correct horse"
PATH = f"{os.environ['PATH']}:/usr/sbin"
PROXIES = [name for name in ("nginx", "caddy") if shutil.which(name, path=PATH)]
INITDB = shutil.which("initdb") or next(
    iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))), ""
)
PROGRAMS = os.path.dirname(os.path.realpath(INITDB))
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def postgres():
    """The URL of an empty database on loopback; None where Postgres is not installed."""
    if not INITDB:
        yield None
        return
    # Not below pytest's folder, which every pytest that begins closes to other users again.
    with tempfile.TemporaryDirectory(prefix="rpg-postgres-") as name:
        yield from _running_postgres(Path(name))


def _running_postgres(folder):
    data = folder / "data"
    port = free_port()
    data.mkdir()
    user = None
    if os.getuid() == 0:  # Postgres refuses to run as root
        user = "nobody"
        for path in (folder, data):
            shutil.chown(path, user)
    make = [f"{PROGRAMS}/initdb", "-D", data, "-U", "rpg", "--auth=trust", "-N"]
    subprocess.run(make, check=True, capture_output=True, cwd=folder, user=user)
    options = [
        "-c",
        "listen_addresses=127.0.0.1",
        "-p",
        str(port),
        "-c",
        f"unix_socket_directories={data}",
    ]
    with (folder / "log").open("wb") as output:
        begin = [f"{PROGRAMS}/postgres", "-D", data, *options]
        server = subprocess.Popen(begin, stdout=output, stderr=output, cwd=folder, user=user)
    try:
        create = [
            f"{PROGRAMS}/createdb",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-U",
            "rpg",
            "prefect",
        ]
        until(
            lambda: not subprocess.run(create, capture_output=True).returncode,
            "Postgres",
            server.poll,
            pause=0.5,
        )
        yield f"postgresql+asyncpg://rpg@127.0.0.1:{port}/prefect"
    finally:
        server.send_signal(signal.SIGQUIT)  # its children end with it
        server.wait()


@pytest.fixture(scope="module")
def site():
    """(address, port) at which a proxy will be."""
    port = free_port()
    return f"https://localhost:{port}/rpg", port


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, postgres, site):
    one = Served(tmp_path_factory.mktemp("guarded"), postgres, secret=SECRET, public=site[0])
    try:
        yield one
    finally:
        one.stop()


def test_with_auth_a_sweep_runs_and_nobody_else_gets_in(guarded):
    run = guarded.run_id("sweep", config="own/trivial")
    assert guarded.finished(run)[0] == "COMPLETED", "server, worker and flow run know the password"
    for page in (f"{guarded.ui}/api/deployments/filter", f"{guarded.dashboard}/"):
        assert httpx.post(page, json={}, timeout=60).status_code == 401
    for name in ("rebound.example", f"rebound.example:{guarded.dashboard_port}"):
        assert httpx.get(guarded.dashboard, headers={"host": name}, timeout=60).status_code == 400
    page = f"{guarded.dashboard}/rpg/dashboard/overview"
    opened = httpx.get(page, auth=tuple(SECRET.split(":")), timeout=60)
    assert opened.status_code == 200
    words = [word for process in guarded.family() for word in process.cmdline()]
    assert not any("horse" in word for word in words), "not in the process list"
    said = guarded.log.read_text()
    assert "horse" not in said
    assert "with the password" in said
    logs = (guarded.home / "serve").glob("*.log")
    assert not any("horse" in path.read_text(errors="replace") for path in logs)


def filled_in(file, values):
    """A documented configuration of a proxy, with the values of this machine."""
    text = (ROOT / "docs/proxy" / file).read_text()
    for documented, here in values.items():
        assert documented in text, documented
        text = text.replace(documented, here)
    return text


def nginx(folder, port, backends, certificate, key):
    """The command that starts it with the documented configuration."""
    ours = {
        "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/ssl/lab.example.org.pem": str(certificate),
        "/etc/ssl/lab.example.org.key": str(key),
        "lab.example.org;": "localhost;",
    }
    text = filled_in("nginx.conf", backends | ours)
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        text = f"{name}_temp_path {folder}/{name};\n{text}"
    whole = (
        f"pid {folder}/pid; error_log stderr; daemon off; events {{}} http {{ access_log "
        f"off;\n{text}}}"
    )
    (folder / "nginx.conf").write_text(whole)
    return ["nginx", "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def caddy(folder, port, backends, certificate, key):
    """As `nginx`. With the name of a real host it fetches a certificate itself."""
    here = f"https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}"
    text = filled_in("Caddyfile", backends | {"lab.example.org {": here})
    (folder / "Caddyfile").write_text(
        f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}"
    )
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")
@pytest.mark.skipif(not PROXIES, reason="no proxy here (Debian: apt-get install nginx-light caddy)")
def test_behind_a_proxy_with_tls_and_a_path_both_sites_work_as_documented(guarded, site, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    address, port = site
    key = tmp_path / "key.pem"
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    backends = {
        "127.0.0.1:4200": f"127.0.0.1:{guarded.port}",
        "127.0.0.1:8501": f"127.0.0.1:{guarded.dashboard_port}",
    }
    assert f"{address}/dashboard" in guarded.log.read_text()
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=QUICK_FLAGS)
        for name in PROXIES:
            command = {"nginx": nginx, "caddy": caddy}[name](
                tmp_path, port, backends, certificate, key
            )
            proxy = subprocess.Popen(
                command, env={**os.environ, "HOME": str(tmp_path), "PATH": PATH}
            )
            try:
                until(
                    lambda: answers(f"{address}/dashboard{HEALTH}"),
                    name,
                    lambda proxy=proxy: proxy.poll() is not None,
                )
                both_sites_work(browser, address, playwright.Error)
            finally:
                proxy.terminate()
                proxy.wait()
        browser.close()


def both_sites_work(browser, address, error):
    user, password = SECRET.split(":")
    trusting = {"ignore_https_errors": True}
    inside = browser.new_context(
        http_credentials={"username": user, "password": password}, **trusting
    )
    tab = inside.new_page()
    tab.set_default_timeout(1000 * HANG)
    tab.goto(f"{address}/dashboard/overview")
    tab.get_by_text("trivial").first.wait_for()  # it came by the websocket
    assert [cookie["name"] for cookie in inside.cookies() if "rpg" in cookie["name"]] == [
        "__Host-rpg"
    ]
    tab.goto(f"{address}/prefect/deployments")
    tab.get_by_placeholder("admin:pass").fill(SECRET)
    tab.get_by_role("button", name="Login").click()
    tab.get_by_text("nightly").first.wait_for()
    outside = browser.new_context(**trusting)
    refused = outside.request.get(f"{address}/prefect/api/flows/count")
    assert refused.status in (401, 405)
    with pytest.raises(error, match="ERR_INVALID_AUTH_CREDENTIALS"):
        outside.new_page().goto(f"{address}/dashboard")
    inside.close()
    outside.close()


def answers(url):
    try:
        return httpx.get(url, timeout=60, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_schedule_of_every_minute_makes_a_flow_run_that_starts_and_ends(guarded):
    """As for someone who moves the night to the next minute in the UI. What a schedule promises is
    no stored line."""
    folder = (
        guarded.home / "configs" / "nights"
    )  # whose trainings are made up (site/sitecustomize.py)
    folder.mkdir()
    (folder / "few.yaml").write_text(SMALL.replace("[grpo, rpg-reinforce-urkl]", "[grpo]"))
    deployment = guarded.api.get("/deployments/name/nightly/nightly").json()
    (nightly,) = deployment["schedules"]
    place = f"/deployments/{deployment['id']}/schedules/{nightly['id']}"
    minutely = {"cron": "* * * * *", "timezone": "UTC"}
    change = {"schedule": minutely, "parameters": {"sweeps": "own/nights"}}
    # The form knows the folder a few seconds after it is there.
    changed = lambda: guarded.api.patch(place, json=change).status_code == 204  # noqa: E731
    until(changed, "the schedule's change", pause=0.3)

    def made():
        """On a slow machine a night takes longer than a minute, and those that are due meanwhile
        are left out."""
        wanted = {"flow_runs": {"state": {"type": {"any_": FINAL}}}}
        wanted |= {"deployments": {"id": {"any_": [deployment["id"]]}}}
        runs = guarded.api.post("/flow_runs/filter", json=wanted).json()
        return [run for run in runs if run["auto_scheduled"] and run["state"]["name"] != "Skipped"]

    try:
        ended = until(made, "the end of a run that the schedule made", pause=1.0)
    finally:
        back = {"schedule": nightly["schedule"], "parameters": {}}
        assert guarded.api.patch(place, json=back).status_code == 204
    assert ended[0]["state_type"] == "COMPLETED", ended[0]["state"]
    assert ended[0]["parameters"]["sweeps"] == "own/nights"
    assert list((guarded.home / "nightly" / "nights").glob("*.json"))


@pytest.mark.skipif(not INITDB, reason="no Postgres here (Debian: apt-get install postgresql)")
def test_a_postgres_url_is_honoured(guarded, postgres):
    assert not list((guarded.home / "prefect").glob("*.db")), "nothing of it is in SQLite"
    select = "select count(*) from deployment"
    asked = [f"{PROGRAMS}/psql", "-At", "-d", postgres.replace("+asyncpg", ""), "-c", select]
    assert int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout) == 3
