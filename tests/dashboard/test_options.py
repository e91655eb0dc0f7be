"""Every start of the dashboard has the same theme and options."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from streamlit import config

from dashboard import options
from dashboard.options import set_options, shipped_options

NAMES = ("theme.light.primaryColor", "theme.dark.primaryColor", "client.showErrorDetails")


def test_a_start_by_code_has_the_options_of_the_file(monkeypatch):
    found = {}
    monkeypatch.setattr(config, "set_option", found.__setitem__)
    set_options(port=8600, address="127.0.0.1")
    assert found == shipped_options() | {"server.port": 8600, "server.address": "127.0.0.1"}
    assert found["theme.light.primaryColor"] == "#0072B2"


def test_a_table_leaves_a_page_only_by_the_export_which_escapes_formulas():
    """Streamlit's own download does not escape them."""
    assert shipped_options()["client.disableDataExport"] is True
    pages = Path(options.__file__).parent.rglob("*.py")
    with_tables = [page.name for page in pages if "st.dataframe(" in page.read_text("utf-8")]
    assert with_tables == ["widgets.py"], "other tables come from show_table, which exports them"


def test_streamlit_knows_all_of_them_and_keeps_them(tmp_path):
    """In a process of its own and from another folder, as a command starts it."""
    code = (
        "from streamlit import config\n"
        "from dashboard.options import set_options, shipped_options\n"
        "set_options(port=8600)\n"
        "options = shipped_options()\n"
        "assert {name: config.get_option(name) for name in options} == options\n"
        f"print(*(config.get_option(name) for name in {NAMES}))\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["#0072B2", "#2577AD", "none"]
