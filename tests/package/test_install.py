"""`.ci/install.py`: uv is told what pip is told on this machine, and pip does the job where there
is no uv."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parents[2] / ".ci" / "install.py"
_spec = importlib.util.spec_from_file_location("install", INSTALL)
install = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(install)
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def test_pips_settings_are_read_as_pip_ranks_them():
    listing = "\n".join(
        (
            "global.find-links='/global/wheels'",
            "global.index-url='https://one.example/simple'",
            "install.index-url='https://two.example/simple'",
            "global.extra-index-url='\\nhttps://a.example/simple\\nhttps://b.example/simple'",
            ":env:.find-links='/environment/wheels'",
            ":env:.cert='/certificates.pem'",
        )
    )
    settings = install.pip_settings(listing)
    assert settings["find-links"] == "/environment/wheels"
    words = install.uv_arguments(settings)
    assert words[:2] == ["--index-url", "https://two.example/simple"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--extra-index-url"] == [
        "https://a.example/simple",
        "https://b.example/simple",
    ]
    assert words[-2:] == ["--index-strategy", "unsafe-best-match"]
    assert install.uv_environment(settings)["SSL_CERT_FILE"] == "/certificates.pem"
    assert install.uv_arguments(install.pip_settings("")) == []


@pytest.fixture
def shelf(tmp_path):
    """A folder with two small wheels, as a machine without network has it."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name in ("by_uv", "by_pip"):
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "HERE = True\n")
            place = f"{name}-1.0.dist-info"
            wheel.writestr(
                f"{place}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{place}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            names = (f"{name}.py", f"{place}/METADATA", f"{place}/WHEEL", f"{place}/RECORD")
            wheel.writestr(f"{place}/RECORD", "".join(f"{name},,\n" for name in names))
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Of an environment with pip, in which nothing is installed."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=True)
    return place / "bin" / "python"


@pytest.mark.component
@pytest.mark.parametrize("package", ["by_uv", "by_pip"])
def test_what_pip_would_find_is_installed(shelf, python, tmp_path, package):
    with_uv = package == "by_uv"
    if with_uv and UV is None:
        pytest.skip("no uv here (pip install uv)")
    programs = tmp_path / "programs"
    programs.mkdir()
    if with_uv:
        (programs / "uv").symlink_to(UV)
    else:  # one that is there and does not work, as a shim of a version manager
        (programs / "uv").write_text("#!/bin/sh\nexit 127\n")
        (programs / "uv").chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "UV_"))}
    told = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(shelf),
        "PATH": f"{programs}:/usr/bin:/bin",
    }
    command = [python, INSTALL, package]
    env = kept | told
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("without uv" in done.stderr) != with_uv
    assert subprocess.run([python, "-c", f"import {package}"]).returncode == 0


@pytest.mark.parametrize("place", ["/home/me", "/home/me/tests/testing"])
def test_what_is_compiled_does_not_depend_on_where_the_environment_lies(place):
    packages = f"{place}/.venv/lib/python3.11/site-packages"
    left_out = [
        name
        for name in (
            "torch/nn/modules.py",
            "transformers/modeling_utils.py",
            "pandas/tests/io/a.py",
            "torch/testing/b.py",
            "transformers/models/bert/c.py",
            "ray/data/d.py",
            "ray/util/e.py",
            "pip/f.py",
            "contests/g.py",
        )
        if re.search(install.HARDLY_NEEDED, f"{packages}/{name}")
    ]
    assert left_out == [
        "pandas/tests/io/a.py",
        "torch/testing/b.py",
        "transformers/models/bert/c.py",
        "ray/data/d.py",
        "pip/f.py",
    ]
