"""The wheel without constraints.txt, in an empty environment and an empty folder.

Other tests install what constraints.txt pins, and cannot see that a new release of another package
breaks a user's installation.
"""

import runpy
import shutil
import sys
from pathlib import Path

import pytest

from tests.verl.test_gpu_install import reachable

PLAIN = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "plain_install.py"))
pytestmark = [pytest.mark.component, pytest.mark.system]


@pytest.mark.parametrize(("which", "used"), [("allowed", "use"), ("compare", "use_compare")])
def test_a_plain_install_works(which, used, tmp_path):
    """With everything it trains, reports and serves the dashboard; with the extra `compare` it
    compares, and has no torch."""
    if not reachable() or not (shutil.which("uv") or (Path(sys.executable).parent / "uv").exists()):
        pytest.skip("needs a package index and uv: pip install uv")
    (tmp_path / "empty").mkdir()
    wheel = PLAIN["build_wheel"](tmp_path, isolated=False)
    PLAIN["install"](wheel, tmp_path / "environment", which)
    assert PLAIN[used](tmp_path / "environment", tmp_path / "empty") == []


def test_upper_bounds_are_lifted_for_the_weekly_look_ahead():
    names = PLAIN["without_upper_bounds"]()
    assert {"prefect", "transformers", "fastapi", "sqlalchemy"} <= set(names)
    assert "numpy" not in names
