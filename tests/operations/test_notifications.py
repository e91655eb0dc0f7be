"""`rpg notify` makes Prefect call a real web server."""

import http.server
import json
import logging
import threading
from types import SimpleNamespace

import pytest
from prefect.server.utilities.user_templates import render_user_template_sync as render

from flows.serve.notifications import action, automations, notify
from rpg.config.errors import ConfigError
from rpg.store import Layout
from tests.real_sweep import rpg
from tests.waiting import until

pytestmark = pytest.mark.component
BLOCK_ID = "00000000-0000-0000-0000-000000000000"
REASON = '"x" \\ and\n{{ y }}'


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


def told(home, *words):
    return rpg(home, "notify", *words, home=home)


def test_the_message_is_whole_whatever_the_reason_says():
    [red, _] = automations()
    run = SimpleNamespace(name="owl", state=SimpleNamespace(message=REASON))
    values = {"flow": SimpleNamespace(name="nightly"), "flow_run": run}

    called = render(action(red["message"], BLOCK_ID, True)["payload"], values)
    sent = render(action(red["message"], BLOCK_ID, False)["body"], values)

    assert json.loads(called) == {"text": f"nightly owl: {REASON}"}
    assert sent == f"nightly owl: {REASON}"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("ftp://example.org", "expected a web address"),
        ("hooks.example.org", "expected a web address"),
        ("http://127.0.0.1:1/", "no rpg serve is running"),
    ],
)
def test_what_is_no_target_and_a_folder_without_a_server_are_refused(tmp_path, target, said):
    with pytest.raises(ConfigError, match=said):
        notify(Layout.at(tmp_path), target, None)


def test_one_command_calls_when_a_flow_run_fails_and_when_there_was_no_night(served, hook):
    """And the run that fails has its reason in red, without a traceback of Prefect's engine."""
    url, heard = hook
    for address in ("http://127.0.0.1:1/", url):  # the second call changes the first one's target
        done = told(served.home, address)
        assert done.returncode == 0, done.stdout + done.stderr
    unknown = told(served.home, "slack-webhook/nobody-made-it")
    assert unknown.returncode == 2
    assert "no such block" in unknown.stderr
    made = served.api.post("/automations/filter", json={}).json()
    assert sorted(one["name"] for one in made) == ["night is red", "no night"]
    for one in made:
        # A night takes minutes; a sweep that is larger than the server's limits fails at once.
        if one["name"] == "night is red":
            one["trigger"]["match_related"]["prefect.resource.name"] = "sweep"
        else:
            one["trigger"]["within"] = 10
        kept = {name: one[name] for name in ("name", "description", "trigger", "actions")}
        answer = served.api.put(f"/automations/{one['id']}", json=kept)
        assert answer.is_success, answer.text

    run = served.run_id("sweep", config="quickstart", overrides="rollout.group_size=1000000000")
    kind, message = served.finished(run)
    assert kind == "FAILED"
    assert "rollout.group_size" in message
    assert "limits.yaml" in message
    assert "quickstart" not in served.layout.sweeps(), "nothing was begun"
    said = until(
        lambda: [line for line in served.log_of(run) if line["level"] >= logging.ERROR], "its log"
    )
    assert [line["message"] for line in said] == [message]
    calls = until(
        lambda: [text for text in heard if "rollout.group_size" in text], "the call for the failure"
    )
    assert "sweep" in calls[0]
    until(
        lambda: any("no nightly run has ended" in text for text in heard), "the call for the night"
    )
