"""Every example runs as its page says, trainings with one step; the notebooks from the first cell
to the last."""

import json
import os
import runpy
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import write_sweep
from flows.sweep import conductor
from rpg.cli import load
from tests.docs.pages import ROOT, blocks

EXAMPLES = ROOT / "examples"
PAGES = sorted(EXAMPLES.glob("*/README.md"))
QUICK = "training.steps=1 evaluation.every=1 evaluation.samples_per_problem=1 model.warm_start=null"
SHORT = [f"--set={setting}" for setting in QUICK.split()]
"""A model that has learned nothing is as good here, and costs nothing."""
SHORTER = {"train": SHORT, "sweep": [*SHORT, "--axis", "seed=[0]"]}


@pytest.fixture(scope="module")
def one_fork_server(tmp_path_factory):
    """For the sweeps of all examples: each would start its own, which imports PyTorch."""
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RPG_HOME", str(folder))
        server = conductor.ForkServer(folder / "log", conductor.programs.FORKED, {})
        patch.setattr(conductor, "_fork_server", lambda *sweep: server)
        patch.setattr(conductor.ForkServer, "close", lambda server: None)
        yield
    server.close()


@pytest.mark.system
@pytest.mark.usefixtures("one_fork_server")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_an_example_runs(page, tmp_path, monkeypatch, prefect):
    folder = tmp_path / page.parent.name
    shutil.copytree(page.parent, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "data"))
    for name, value in prefect.items():
        monkeypatch.setenv(name, value)
    for block in [block for block in blocks(page) if block.language == "sh" and not block.left_out]:
        for words in block.commands():
            if words[0] == "rpg":
                words += SHORTER.get(words[1], [])
                result = CliRunner().invoke(
                    load(), words[1:], catch_exceptions=False, standalone_mode=False
                )
                assert result.return_value in (0, None), f"{' '.join(words)}: {result.output}"
            elif words[1] != "-m":  # another Python would import PyTorch once more
                monkeypatch.setattr(sys, "argv", words[1:])
                runpy.run_path(words[1], run_name="__main__")
            else:
                environment = {**os.environ, "PYTHONPATH": str(ROOT)}
                words = [sys.executable, *words[1:]]
                done = subprocess.run(words, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "notebook", sorted(EXAMPLES.glob("notebooks/*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    write_sweep(tmp_path / "rpg-data", "quickstart", ("grpo", "rpg-reinforce-urkl"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        assert not cell.get("outputs"), "outputs would age"
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}:{number}", "exec"), names)


def test_the_page_of_examples_names_each():
    listed = (EXAMPLES / "README.md").read_text()
    assert [
        page.parent.name for page in PAGES if f"]({page.parent.name}/README.md)" not in listed
    ] == []
