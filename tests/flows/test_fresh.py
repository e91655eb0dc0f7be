"""Results of older code: named in every table, and trained again, and only they, when that is asked for."""

import json
import shutil
from pathlib import Path

import pytest

from rpg.store import Layout
from rpg.store.current import current_runs, superseded
from tests.operations.serving import SMALL
from tests.real_sweep import ROOT, rpg

ONE = (
    SMALL.replace("[grpo, rpg-reinforce-urkl]", "[grpo]")
    .replace("steps: 3", "steps: 1")
    .replace("every: 3", "every: 1")
)


@pytest.fixture
def tree(tmp_path):
    """A copy of the source that may be edited."""
    root = tmp_path / "tree"
    for name in ("rpg", "flows", "dashboard", "configs"):
        # What was compiled as well, because most of it stays as it is; but not what another worker just compiles.
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    return root


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n_EDITED = True\n")


@pytest.mark.long
def test_an_edited_loss_is_named_and_fresh_trains_again_exactly_what_it_concerns(tmp_path, tree, prefect):
    (tmp_path / "small.yaml").write_text(ONE)

    def sweep(*arguments):
        done = rpg(tmp_path, "sweep", "small.yaml", *arguments, PYTHONPATH=str(tree), **prefect)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr

    def begun():
        return {folder.name: folder.read_manifest()["created"] for folder in current_runs(layout, "small")}

    layout = Layout.at(tmp_path / "data")
    sweep()
    [first] = begun()
    edit(tree / "rpg" / "losses" / "policy_loss.py")
    both = ("--axis", "seed=[0,1]")
    said = sweep(*both)
    [second] = set(begun()) - {first}
    table = (layout.reports("small") / "table.md").read_text().replace("\\", "")
    for text in (" ".join(said.split()), table):
        assert (
            "rpg/losses/policy_loss.py differs" in text and f": {first};" in text and f": {second};" in text
        )
    assert f"trained by older code: {first}; rpg/losses/policy_loss.py has changed" in said
    assert first in rpg(tmp_path, "status", "small", PYTHONPATH=str(tree)).stdout.partition("!")[2]

    before = begun()
    said = sweep(*both, "--fresh")
    after = begun()
    assert after[second] == before[second] and after[first] != before[first], "exactly the older one"
    [[aside, why]] = superseded(layout, "small").items()
    assert aside.startswith(f"{first}-code-") and "rpg/losses/policy_loss.py" in why
    digests = {
        json.loads(path.read_text())["code"] for path in layout.runs.glob("*/*-s?-????????/provenance-1.json")
    }
    assert len(digests) == 1
    assert "different code" not in (layout.reports("small") / "table.md").read_text()

    for name in ("dashboard/app.py", "rpg/report/charts.py", "flows/monitor.py"):
        edit(tree / name)
    said = sweep(*both, "--fresh")
    assert begun() == after and "nothing was trained" in said and "other code" not in said
