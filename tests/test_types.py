"""A user's type checker sees the public API as it is, not as Any."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import rpg
from torch import Tensor

algo = rpg.algorithm("grpo", beta=0.1)
reveal_type(algo)
reveal_type(rpg.algorithms())

def step(x: Tensor) -> Tensor:
    a = rpg.advantages(algo, rewards=x[:, 0], group=x[:, 0], response_mask=x)
    out = rpg.policy_loss(algo, log_prob=x, old_log_prob=x, advantages=a, response_mask=x)
    reveal_type(out.metrics)
    reveal_type(rpg.audit(algo))
    rpg.policy_loss(algo, log_probs=x)
    return out.loss
"""


SETTINGS = """
[mypy]
ignore_missing_imports = True
follow_imports = skip
[mypy-rpg.*]
follow_imports = silent
"""
"""The package alone is read: what it imports has 5,800 modules, which took half a minute of
processor time."""


@pytest.mark.component
def test_a_users_program_is_checked_against_the_public_api(tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    # A wheel brings py.typed; an editable installation hides behind an import hook, which checkers
    # do not follow.
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    command = [sys.executable, "-m", "mypy", "mine.py"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    said = found.stdout.replace("builtins.", "")
    for revealed in (
        "rpg.catalogue.entry.Algorithm",
        "dict[str, rpg.catalogue.entry.Algorithm]",
        "dict[str, float]",
        "rpg.auditing.audit_report.Report",
    ):
        assert f'Revealed type is "{revealed}"' in said, said + found.stderr
    assert 'Unexpected keyword argument "log_probs"' in said
    assert (ROOT / "rpg" / "py.typed").exists()
