"""`strategy: fsdp` with a reference that is renewed: the reference says what the policy says from that moment on."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_renewed_or_loaded_reference_is_what_the_next_pass_uses(tmp_path):
    script = [sys.executable, "-m", "tests.verl.fsdp1", str(tmp_path)]
    ran = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    for found in json.loads((tmp_path / "found.json").read_text()).values():
        assert found["before"] > 0.1, "they were different"
        assert found["copied"] == found["loaded"] == found["actor"] == 0
