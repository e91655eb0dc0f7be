"""`rpg push` with the hub's real client against a hub on loopback."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rpg.store.run_writer import append_metrics
from tests.tiny import make_run, make_spec


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as an upload of small files needs."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.path)
        if self.headers.get("Authorization") != "Bearer hf_secret":
            return self.answer({"error": "Invalid credentials"}, 401)
        if self.path.endswith("/preupload/main"):
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                for f in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        if self.path.endswith("/commit/main"):
            for line in body.splitlines():
                record = json.loads(line)
                if record["key"] == "file":
                    self.server.files[record["value"]["path"]] = base64.b64decode(
                        record["value"]["content"]
                    )
            url = f"{self.server.url}/me/model/commit/1"
            return self.answer({"commitUrl": url, "commitOid": "1", "success": True})
        self.answer({"url": f"{self.server.url}/me/model", "warnings": [], "errors": []})

    def do_GET(self):
        self.answer({"id": "me/model", "sha": "0" * 40, "siblings": []})

    def answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    import huggingface_hub.constants
    import huggingface_hub.hf_api

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {}
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield server
    server.shutdown()
    server.server_close()


def checkpoint(tmp_path):
    folder = make_run(tmp_path, "one", make_spec())
    step = folder.checkpoint(3)
    (step / "training").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "checkpoint.json", "training/state.json"):
        (step / name).write_text("{}")
    append_metrics(folder, 1, {"step": 1, "reward": 0.5})
    return step


def test_a_checkpoint_goes_up_with_its_card_and_without_the_optimizer(tmp_path, hub):
    from typer.testing import CliRunner

    from rpg.cli import load

    checkpoint(tmp_path)
    words = ["push", "sweep/one/step-000003", "me/model", "--home", str(tmp_path)]
    done = CliRunner().invoke(load(), words, catch_exceptions=False, standalone_mode=False)
    assert "3 files: " in done.output
    assert set(hub.files) == {"README.md", "config.json", "model.safetensors"}
    assert b"Step 3 of 3 of the run `sweep/one`" in hub.files["README.md"]


def test_a_mistake_is_said_in_one_line(tmp_path, hub, monkeypatch):
    import huggingface_hub

    from rpg.cli.model import push
    from rpg.config.errors import ConfigError

    step = checkpoint(tmp_path)
    with pytest.raises(
        ConfigError, match="not a checkpoint of a run; expected SWEEP/RUN/step-000040"
    ):
        push([str(tmp_path), "me/model"], home=tmp_path)
    with pytest.raises(ConfigError, match=r"SWEEP/RUN/step-000040 .*\. sweep/one has step-000003"):
        push(["sweep/one/step-000004", "me/model"], home=tmp_path)
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(ConfigError, match="the hub refuses the upload: "):
        push([str(step), "me/model"], home=tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"the hub at http://127\.0\.0\.1:9 cannot be reached"):
        push([str(step), "me/model"], home=tmp_path)
