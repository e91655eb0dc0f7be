"""`python .ci/install.py REQUIREMENT...`: install into the environment of this Python, with uv
where it is available.

uv installs the same releases as pip from the same constraints in a fraction of the time, but it
does not read pip's configuration. What pip is told on this machine (package indexes, folders with
wheels, constraints, certificates) is therefore passed on, so that both find the same files: a
machine that is set up to give pip a CPU build of torch gets that one, not gigabytes of CUDA. Where
uv is not available or fails, pip does the whole job, and has the last word.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

HARDLY_NEEDED = (
    r"/site-packages/(.*/(tests?|testing)/|transformers/(models|pipelines)/|torch/_(inductor|vendor)/|pygments/lexers/"
    r"|ray/(autoscaler|dashboard|data|llm|rllib|serve|train|tune)/|sympy/(physics|stats)/|scipy/signal/"
    r"|(apprise|dateparser|fontTools|grpc|mypyc?|networkx|pip|pyasn1_modules|rich_rst|torchgen|werkzeug)/"
    r"|(coreweave_evaluations|cyclopts|google/(api_core|auth)|oauthlib|ruamel|setuptools|tensorboard|wandb)/"
    r"|duckdb/experimental/|huggingface_hub/(cli|inference)/|matplotlib/backends/|numpy/distutils/|prefect/cli/"
    r"|playwright/async_api/|torch/distributed/(checkpoint|pipelining)/)"
)
"""Half of all sources, of which hardly one is ever imported; that one is compiled then. Where the
environment itself lies does not matter: in a folder `tests` everything else is compiled too."""

OPTIONS = {
    "index-url": "--index-url",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
"""pip's settings and uv's options for them. Each takes several values, separated by white space."""


def pip_settings(listing: str) -> dict[str, str]:
    """What `pip config list` prints as {setting: value}; what holds for `install` goes over
    `global`, the environment over both, as in pip itself."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        if match := re.fullmatch(r"(global|install|:env:)\.([\w-]+)=(.+)", line.strip()):
            section, name, value = match.groups()
            found[section][name] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


def uv_arguments(settings: dict[str, str]) -> list[str]:
    """The options of `uv pip install` that make it look where pip looks."""
    arguments = [
        word
        for name, option in OPTIONS.items()
        for value in settings.get(name, "").split()
        for word in (option, value)
    ]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        arguments.append("--no-index")
    if (
        "extra-index-url" in settings
    ):  # pip takes the best release of all indexes, uv by default the first that has any
        arguments += ["--index-strategy", "unsafe-best-match"]
    return arguments


def uv_environment(settings: dict[str, str]) -> dict[str, str]:
    """uv's environment: the certificates and the proxy that pip is told to use."""
    environment = dict(os.environ)
    if settings.get("cert"):
        environment["SSL_CERT_FILE"] = settings["cert"]
    if settings.get("proxy"):
        environment |= {"HTTPS_PROXY": settings["proxy"], "HTTP_PROXY": settings["proxy"]}
    return environment


def find_uv() -> str | None:
    """The uv of this machine, else one that pip brings into this environment; None when none is
    available."""
    beside = str(Path(sys.executable).with_name("uv"))
    for candidate in (shutil.which("uv"), beside):
        if candidate and _works(candidate):
            return candidate
    subprocess.run(
        [*PIP, "install", "-qq", "-c", str(CONSTRAINTS), "uv"], stderr=subprocess.DEVNULL
    )
    return beside if _works(beside) else None


def _works(uv: str) -> bool:
    try:
        return subprocess.run([uv, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _compile() -> None:
    """Now, on all cores, as pip does it: else every first start of a command is slow. Some files
    are no valid Python."""
    words = [
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        "-x",
        HARDLY_NEEDED,
        sysconfig.get_path("purelib"),
    ]
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(wanted: list[str]) -> int:
    """Install; returns the exit code."""
    listing = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
    settings, uv = pip_settings(listing), find_uv()
    if uv is not None:
        command = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            sys.executable,
            "--constraint",
            str(CONSTRAINTS),
        ]
        command += [*uv_arguments(settings), *wanted]
        if subprocess.run(command, env=uv_environment(settings)).returncode == 0:
            _compile()
            return 0
    print("without uv: installing with pip, which takes a few minutes", file=sys.stderr)
    return subprocess.run([*PIP, "install", "-qq", "-c", str(CONSTRAINTS), *wanted]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
