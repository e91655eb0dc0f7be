"""`python .ci/plain_install.py [--newest | --lowest | --compare]`: the wheel as a stranger installs
it.

Builds the wheel, installs it into an empty environment without constraints.txt, and uses it in an
empty folder: two steps of a training, the report, the dashboard's health, `rpg doctor`. Says which
of these failed and which installed releases are outside of what was tested.

With `--compare` it is the small one, with the extra `compare` only: `rpg compare` judges two files,
without torch, and writes its page.

By default an installer may take the newest releases that the metadata allows. `--newest` lifts the
metadata's upper bounds, too (weekly: what will break when they are raised?); `--lowest` takes the
lowest releases that the metadata allows (before a release). Needs uv.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import venv
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALL = runpy.run_path(str(ROOT / ".ci" / "install.py"))
IN_THE_WHEEL = ("rpg", "flows", "dashboard", "configs")
BESIDE_THEM = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")
TWO_STEPS = ("--set=training.steps=2", "--set=algorithm=grpo", "--set=seed=0")
CLONE_ONLY = re.compile(
    r"\bmake (?:setup|test|serve|quickstart|lint)\b|\bdocs/|constraints\.txt|-e \.|\.ci/"
)
"""What only somebody with a clone can follow: a message that says so is a fault here."""
PATIENCE = 1800
"""Seconds for each command: a deadline for hangs."""


class Failed(Exception):
    """A step that failed, with what it printed."""


def build_wheel(folder: Path, isolated: bool = True) -> Path:
    """The wheel, built from a copy of the sources, so that nothing is left in the repository."""
    source = folder / "source"
    without = shutil.ignore_patterns("__pycache__")
    for name in IN_THE_WHEEL:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=without)
    for name in BESIDE_THEM:
        shutil.copy(ROOT / name, source)
    options = [] if isolated else ["--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *options]
    done = run([*command, "-w", str(folder), str(source)], folder)
    if done.returncode != 0:
        raise Failed(f"building the wheel:\n{done.stdout}{done.stderr}")
    return next(folder.glob("rpg_lab-*.whl"))


def requirements_of_all() -> list[str]:
    """What `rpg-lab[all]` asks for, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    [everything] = extras["all"]
    names = everything.partition("[")[2].rstrip("]").split(",")
    asked = [*project["dependencies"], *(text for name in names for text in extras[name])]
    return [text for text in asked if not text.startswith("torch")]


def without_upper_bounds() -> list[str]:
    """Our requirements that have an upper bound, without it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        asked += extra
    bounded = [text for text in asked if re.search(r",<|[a-z]<", text)]
    return sorted({re.split(r"[<>=!]", text)[0] for text in bounded})


def install(wheel: Path, environment: Path, which: str) -> None:
    """Into a new environment, with torch as it is installed here: PyPI's brings gigabytes of
    CUDA."""
    uv = INSTALL["find_uv"]()
    if uv is None:
        raise Failed("uv is needed: pip install uv")
    venv.create(environment, with_pip=True, symlinks=True)
    listing = run([sys.executable, "-m", "pip", "config", "list"], ROOT).stdout
    settings = INSTALL["pip_settings"](listing)
    command = [uv, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")]
    command += INSTALL["uv_arguments"](settings)
    if which == "lowest":  # of what is asked for directly, which the wheel's requirements are not
        command += ["--resolution", "lowest-direct", *requirements_of_all()]
    if which == "newest":
        overrides = environment / "overrides.txt"
        overrides.write_text("\n".join(without_upper_bounds()) + "\n")
        command += ["--override", str(overrides)]
    extra = "compare" if which == "compare" else "all"
    if extra == "all":
        with suppress(PackageNotFoundError):
            command.append(f"torch=={version('torch').partition('+')[0]}")
    done = run([*command, f"{wheel}[{extra}]"], environment, INSTALL["uv_environment"](settings))
    if done.returncode != 0:
        raise Failed(f"installing:\n{done.stdout}{done.stderr}")


def run(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command, without what would lead back to the repository."""
    own = ("PYTHON", "RPG_", "PREFECT_", "VIRTUAL_ENV")
    kept = environment or {k: v for k, v in os.environ.items() if not k.startswith(own)}
    try:
        return subprocess.run(
            command, cwd=folder, env=kept, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        started = " ".join(command[:4])
        raise Failed(f"{started} ... did not end within {PATIENCE} s") from None


def use(environment: Path, folder: Path) -> list[str]:
    """Use what was installed, in an empty folder; the problems that were found."""
    rpg = str(environment / "bin" / "rpg")
    problems = []
    commands = [
        ["sweep", "quickstart", *TWO_STEPS],
        ["report", "quickstart"],
        ["doctor"],
        ["show", "quickstart"],
    ]
    for words in commands:
        done = run([rpg, *words], folder)
        printed = done.stdout + done.stderr
        if words == ["doctor"]:
            print(printed, end="")
        if done.returncode != 0:
            problems.append(f"rpg {' '.join(words)} ended with code {done.returncode}:\n{printed}")
        problems += [
            f"rpg {words[0]} prints what only a clone has: {line.strip()}"
            for line in printed.splitlines()
            if CLONE_ONLY.search(line)
        ]
    if problem := dashboard_problem(rpg, folder):
        problems.append(problem)
    return problems


def use_compare(environment: Path, folder: Path) -> list[str]:
    """Compare two models of thirty problems and eight samples in an environment with the extra
    `compare` only; the problems that were found."""
    for name, shift in (("first", 0), ("second", 3)):
        rows = ["problem,sample,score"]
        for problem in range(30):
            for sample in range(8):
                right = int((7 * problem + 3 * sample) % 11 < 4 + shift)
                rows.append(f"p{problem},{sample},{right}")
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", "utf-8")
    rpg = str(environment / "bin" / "rpg")
    problems = []
    done = run([rpg, "compare", "first.csv", "second.csv", "--out", "page"], folder)
    printed = done.stdout + done.stderr
    if done.returncode != 0 or "for others like them: better" not in printed:
        problems.append(f"rpg compare ended with code {done.returncode}:\n{printed}")
    if not (folder / "page" / "compare.html").is_file():
        problems.append("rpg compare wrote no page")
    if any(environment.rglob("site-packages/torch/__init__.py")):
        problems.append("the extra `compare` brings torch")
    return problems


def dashboard_problem(rpg: str, folder: Path) -> str | None:
    """What keeps the dashboard from answering; None if it does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "dashboard.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [rpg, "dashboard", "--port", str(port)], cwd=folder, stdout=output, stderr=output
        )
    try:
        end = time.monotonic() + PATIENCE
        while server.poll() is None and time.monotonic() < end:
            with suppress(OSError):
                address = f"http://127.0.0.1:{port}/_stcore/health"
                if urllib.request.urlopen(address, timeout=30).status == 200:
                    return None
            time.sleep(0.5)
    finally:
        server.terminate()
        server.wait(60)
    return f"rpg dashboard does not answer:\n{log.read_text(errors='replace')}"


def main() -> int:
    """Returns the exit code: 0 if everything worked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--newest", dest="which", action="store_const", const="newest")
    choice.add_argument("--lowest", dest="which", action="store_const", const="lowest")
    choice.add_argument("--compare", dest="which", action="store_const", const="compare")
    which = parser.parse_args().which or "allowed"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = folder / "environment"
        (folder / "empty").mkdir()
        try:
            install(build_wheel(folder), environment, which)
            tried = use_compare if which == "compare" else use
            problems = tried(environment, folder / "empty")
        except Failed as error:
            problems = [str(error)]
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
