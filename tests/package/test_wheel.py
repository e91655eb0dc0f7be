"""The package as somebody has it who installed it: a wheel, in an environment of its own, far from
the repository.

The folder they work in is as unkind as it can be: it has folders `flows`, `dashboard` and `rpg` of
their own.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from rpg.errors import install_command
from tests.operations.serving import Served
from tests.package.test_install import UV
from tests.verl.test_gpu_install import reachable

ROOT = Path(__file__).parents[2]
PACKAGES = ("rpg", "flows", "dashboard")
pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left in the repository, with what is installed here."""
    source = tmp_path_factory.mktemp("source")
    target = tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "configs"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=without)
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", target, source)
    return next(target.glob("rpg_lab-*.whl"))


def environment(**more):
    """This one, without what would lead back to the repository."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RPG_HOME", "PREFECT"))
    }
    return kept | more


def pip(*words):
    command = [sys.executable, "-m", "pip", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr


def installed(wheel, place, lend_packages):
    """`bin/` of a new environment with the wheel; others' packages are lent from here, but nothing
    of ours is."""
    venv.create(place, with_pip=False, symlinks=True)
    pip("--python", place / "bin" / "python", "install", "-q", "--no-deps", "--no-index", wheel)
    if lend_packages:
        site = next(place.glob("lib/python*/site-packages"))
        (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


@pytest.fixture(scope="module")
def bin_(wheel, tmp_path_factory):
    return installed(wheel, tmp_path_factory.mktemp("environment") / "venv", lend_packages=True)


def unkind(folder):
    """Folders of a user's own that happen to be called like our packages."""
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        refuses = f"raise RuntimeError('the {name} of the current folder was taken')"
        (folder / name / "__init__.py").write_text(refuses)
    return folder


@pytest.fixture(scope="module")
def lab(bin_, tmp_path_factory):
    root = tmp_path_factory.mktemp("elsewhere")
    done = rpg(bin_, root, "init", "my-lab")
    assert done.returncode == 0, done.stderr
    assert f"next: cd my-lab && {bin_ / 'rpg'} sweep sweep.yaml" in done.stdout
    return unkind(root / "my-lab")


def rpg(bin_, folder, *words, **more):
    alone = environment(OMP_NUM_THREADS="1", **more)
    return subprocess.run(
        [bin_ / "rpg", *words], cwd=folder, env=alone, capture_output=True, text=True
    )


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    files = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files |= {f"rpg/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert files and files <= names, sorted(files - names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_a_bare_install_says_in_one_sentence_what_is_missing(wheel, tmp_path):
    bare = installed(wheel, tmp_path / "venv", lend_packages=False)
    for words in (["--help"], ["sweep", "quickstart"]):
        done = rpg(bare, tmp_path, *words)
        assert done.returncode == 2
        assert "yaml is not installed; install it with: " in done.stderr
        assert len(done.stderr.splitlines()) == 1
    everything = done.stderr.removesuffix(")\n").partition(" (or everything for one machine: ")[2]
    assert "pyyaml" in everything
    assert "typer" in everything
    works_as_printed(everything)
    assert rpg(bare, tmp_path, "--version").stdout.startswith("rpg-lab ")


def works_as_printed(command):
    if UV is None or not reachable():
        pytest.skip("needs uv and a package index")
    path = f"{Path(UV).parent}{os.pathsep}{os.environ['PATH']}"
    tried = {"shell": True, "env": environment(PATH=path), "capture_output": True, "text": True}
    done = subprocess.run(f"{command} --dry-run", **tried)
    assert done.returncode == 0, done.stderr


def test_a_hint_that_names_packages_works_in_a_checkout():
    command = install_command("lora")
    assert f"install -e '{ROOT}[lora]' -c {ROOT}/constraints.txt" in command
    works_as_printed(command)


def test_shipped_configurations_are_known_by_name_anywhere(bin_, tmp_path):
    wrong = rpg(bin_, tmp_path, "sweep", "quickstrat")
    assert wrong.returncode == 2
    assert "did you mean 'quickstart'" in wrong.stderr
    (tmp_path / "mine.yaml").write_text("name: mine\nbase: chain\naxes: {seed: [0, 1]}\n")
    assert "grpo-s1-" in rpg(bin_, tmp_path, "show", "mine.yaml").stdout


@pytest.mark.system
def test_a_new_lab_trains_as_it_is(bin_, lab, prefect):
    """Its own task, data and warm start; fewer steps and runs than the file has, to be quick."""
    few = ("--set=training.steps=2", "--set=algorithm=grpo", "--set=seed=0")
    done = rpg(bin_, lab, "sweep", "sweep.yaml", *few, **prefect)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GRPO" in done.stdout
    assert "held-out" in done.stdout
    again = rpg(bin_, lab, "init", ".")
    assert again.returncode == 2
    assert "already exists" in again.stderr


@pytest.mark.system
def test_the_dashboard_shows_it(bin_, lab):
    """Its first page, in Streamlit's test driver, has the sweep."""
    page = (
        "from streamlit.testing.v1 import AppTest\n"
        "code = 'from dashboard import overview_page, view; "
        "view.with_results(overview_page.page)()'\n"
        "page = AppTest.from_string(code, default_timeout=120).run()\n"
        "assert not page.exception and not page.error, (page.exception, page.error)\n"
        "print([one.options for one in page.selectbox])"
    )
    done = subprocess.run(
        [bin_ / "python", "-P", "-c", page],
        cwd=lab,
        env=environment(RPG_HOME=str(lab / "rpg-data")),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "first" in done.stdout, done.stdout + done.stderr


@pytest.mark.system
def test_rpg_serve_has_a_dashboard_and_runs_what_is_started_from_its_forms(bin_, tmp_path):
    class Installed(Served):
        def command(self):
            self.environment = environment()
            return [str(bin_ / "rpg"), "serve", *self.arguments]

    served = Installed(unkind(tmp_path / "work"))
    try:
        run = served.run_id("sweep", config="own/small")
        assert urllib.request.urlopen(f"{served.dashboard}/_stcore/health").status == 200
        assert served.finished(run)[0] == "COMPLETED", served.state(run)
    finally:
        served.stop()
