"""The automations that docs/operations.md shows, created as it says, call a real webhook."""

import http.server
import json
import logging
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import yaml
from prefect.server.utilities.user_templates import render_user_template_sync as render

from tests.operations.serving import ROOT
from tests.waiting import HANG, until

pytestmark = pytest.mark.component
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


def test_the_documented_automations_call_when_a_flow_run_fails_and_when_there_was_no_night(
    served, hook, tmp_path
):
    """And the run that fails has its reason in red, without a traceback of Prefect's engine."""
    url, heard = hook
    environment = served.environment | {
        "PREFECT_API_URL": f"{served.ui}/api",
        "PREFECT_HOME": str(tmp_path / "client"),
        "DO_NOT_TRACK": "1",
    }
    how = {"env": environment, "capture_output": True, "text": True, "timeout": HANG}
    block = subprocess.run([sys.executable, "-c", BLOCK, url], **how)
    assert block.returncode == 0, block.stderr
    automations = []
    for name, there, instead in (
        # A night takes minutes; a sweep that is larger than the server's limits fails at once.
        ("night-is-red", "prefect.resource.name: nightly", "prefect.resource.name: sweep"),
        ("no-night", "within: 93600", "within: 10"),
    ):
        text = (ROOT / "docs" / "automations" / f"{name}.yaml").read_text()
        assert there in text
        text = text.replace("00000000-0000-0000-0000-000000000000", block.stdout.split()[-1])
        run = SimpleNamespace(name="a", state=SimpleNamespace(message='"x" \\ and\n{{ y }}'))
        sent = render(yaml.safe_load(text)["actions"][0]["payload"], {"flow": run, "flow_run": run})
        assert json.loads(sent)["text"] == f"a a: {run.state.message}" or name == "no-night"
        automations.append(yaml.safe_load(text.replace(there, instead)))
    file = tmp_path / "automations.yaml"
    file.write_text(yaml.safe_dump({"automations": automations}))
    command = [sys.executable, "-m", "prefect", "automation", "create", "--from-file", str(file)]
    created = subprocess.run(command, **how)
    assert created.returncode == 0, created.stdout + created.stderr

    run = served.run_id("sweep", config="quickstart", overrides="rollout.group_size=1000000000")
    kind, message = served.finished(run)
    assert kind == "FAILED" and "rollout.group_size" in message and "limits.yaml" in message
    assert "quickstart" not in served.layout.sweeps(), "nothing was begun"
    said = until(
        lambda: [line for line in served.log_of(run) if line["level"] >= logging.ERROR], "its log"
    )
    assert [line["message"] for line in said] == [message]
    told = until(
        lambda: [text for text in heard if "rollout.group_size" in text], "the call for the failure"
    )
    assert "sweep" in told[0]
    until(
        lambda: any("no nightly run has ended" in text for text in heard), "the call for the night"
    )
