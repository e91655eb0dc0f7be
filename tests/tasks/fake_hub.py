"""A server on loopback that speaks as much of the Hugging Face hub as its own client needs to read
a data set."""

import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class _Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        status, headers, data = self._find(path, sent)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_POST = do_GET

    def _find(self, path, sent):
        name = self.server.name
        commit = self.server.commit
        files = self.server.files
        api = f"/api/datasets/{name}"
        raw = f"/datasets/{name}/resolve/"
        if path.startswith(raw):
            revision, _, file = path.removeprefix(raw).partition("/")
            if revision != commit:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b""
            if file not in files:
                return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
            etag = hashlib.sha256(files[file]).hexdigest()
            return (
                200,
                {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"},
                files[file],
            )
        entries = [self._entry(file) for file in files]
        if path in (api, f"{api}/revision/{commit}"):
            siblings = [{"rfilename": file} for file in files]
            return _json(
                {"id": name, "sha": commit, "private": False, "tags": [], "siblings": siblings}
            )
        if path.startswith(f"{api}/revision/"):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if path.startswith(f"{api}/tree/{commit}"):
            folder = path.removeprefix(f"{api}/tree/{commit}").strip("/")
            if folder:
                return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
            return _json(entries)
        if path == f"{api}/paths-info/{commit}":
            wanted = json.loads(sent).get("paths", []) if sent.startswith(b"{") else []
            return _json([entry for entry in entries if entry["path"] in wanted])
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _entry(self, file):
        data = self.server.files[file]
        return {
            "type": "file",
            "path": file,
            "size": len(data),
            "oid": hashlib.sha1(data).hexdigest(),
        }


def _json(value):
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextlib.contextmanager
def fake_hub(name, commit, files):
    """Yields the server; `url` is its address, `asked` what it was asked. It holds one data set at
    one commit."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.name = name
    server.commit = commit
    server.files = files
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask_here(monkeypatch, server, folder):
    """The hub's own client in this process asks `server` and keeps what it gets in `folder`."""
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", server.url)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def card(configs):
    """A data set's README with {config: {split: file}}."""
    lines = ["---", "configs:"]
    for name, splits in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, path in splits.items():
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---", ""]).encode()
