"""The automation that docs/operations.md shows, created as it says, calls a real webhook when a flow run fails."""

import http.server
import json
import subprocess
import sys
import threading

import pytest

from tests.operations.serving import ROOT
from tests.waiting import until

pytestmark = pytest.mark.slow
BLOCK = """
import sys
from prefect.blocks.webhook import Webhook
print(Webhook(method="POST", url=sys.argv[1]).save("night", overwrite=True))
"""


@pytest.fixture
def hook():
    """A web server on loopback that remembers what it is told."""
    heard = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", heard
    server.shutdown()


def create(served, url, tmp_path, name, *replaced):
    """Make an automation of the documentation as it says there."""
    environment = served.environment | {
        "PREFECT_API_URL": f"{served.ui}/api", "PREFECT_HOME": str(tmp_path / "client"), "DO_NOT_TRACK": "1",
    }  # fmt: skip
    run = {"env": environment, "capture_output": True, "text": True, "timeout": 120}
    block = subprocess.run([sys.executable, "-c", BLOCK, url], **run)
    assert block.returncode == 0, block.stderr
    text = (ROOT / "docs" / "automations" / name).read_text()
    text = text.replace("00000000-0000-0000-0000-000000000000", block.stdout.split()[-1])
    for there, instead in replaced:
        assert there in text
        text = text.replace(there, instead)
    (tmp_path / "automation.yaml").write_text(text)
    command = [sys.executable, "-m", "prefect", "automation", "create", "--from-file"]
    created = subprocess.run([*command, str(tmp_path / "automation.yaml")], **run)
    assert created.returncode == 0, created.stdout + created.stderr


def test_the_automation_of_the_documentation_calls_when_a_flow_run_fails(served, hook, tmp_path):
    url, heard = hook
    # A night takes minutes; a sweep with a mistake in its form fails at once.
    sweep = ("prefect.resource.name: nightly", "prefect.resource.name: sweep")
    create(served, url, tmp_path, "night-is-red.yaml", sweep)
    served.finished(served.run_id("sweep", config="own/small", overrides="training.stepz=3"))
    told = until(lambda: heard, "the call")
    assert "training.stepz" in told[0] and "sweep" in json.dumps(told[0])


def test_the_automation_of_the_documentation_calls_when_there_was_no_night(served, hook, tmp_path):
    url, heard = hook
    create(served, url, tmp_path, "no-night.yaml", ("within: 93600", "within: 10"))
    assert "no nightly run has ended" in until(lambda: heard, "the call")[0]
