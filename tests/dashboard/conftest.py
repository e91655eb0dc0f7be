"""A data folder for pages, empty or with a finished sweep."""

import shutil

import pytest

from benchmarks.synthetic import write_sweep
from rpg.store import Layout
from rpg.store.database import build
from tests.dashboard.driver import SHAPE


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setenv("RPG_HOME", str(tmp_path))
    # Streamlit looks through 300 installed packages for components in every new session; the pages
    # use none.
    monkeypatch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
    return Layout.at(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished sweep with its database, to be copied."""
    layout = Layout.at(tmp_path_factory.mktemp("demo"))
    write_sweep(layout.home, "demo", ("grpo", "rpg-urkl"), (0, 1, 2), SHAPE)
    build(layout)
    return layout.home


@pytest.fixture
def demo(layout, finished):
    shutil.copytree(finished, layout.home, dirs_exist_ok=True)
    return layout
