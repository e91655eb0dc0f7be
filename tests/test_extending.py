"""docs/extending.md does what it says: its blocks are applied to a copy of the source, which then
audits, sweeps, reports and shows the page with everything in it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="one of the recipes is a page of the dashboard")
pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
BLOCK = re.compile(
    r"^(?:At the end of|In|A new file,) `(?P<path>[^`]+)`(?:, (?P<how>above|instead of) "
    r"`(?P<anchor>[^`]+)`)?:\n"
    r"```(?:python|yaml)\n(?P<code>.*?)^```$",
    re.S | re.M,
)
SWEEP = """\
name: extended
description: Everything the page adds, in one sweep.
run:
  task: {type: sort, digits: 2, train_problems: 60, benchmark_problems: 6}
  model: {type: tiny, hidden_size: 32, intermediate_size: 64,
          warm_start: {target_accuracy: 0, consolidation_steps: 0, behaviour_steps: 20}}
  training: {steps: 2, prompts_per_step: 4, mini_batch_prompts: 4}
  rollout: {group_size: 4, max_prompt_tokens: 8, max_response_tokens: 6}
  evaluation: {every: 2, samples_per_problem: 2}
axes:
  algorithm: [rpg-jeffreys, is-reinforce]
  backend.type: [local, frozen]
zip: [[algorithm, backend.type]]
"""


def recipes():
    """Heading -> (files it promises to touch, its blocks)."""
    for heading, count, body in re.findall(
        r"^## (.+?) \((\d) files?\)\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M
    ):
        yield heading, int(count), [found.groupdict() for found in BLOCK.finditer(body)]


def applied(tree, block):
    """One block of the page, put where the page says."""
    anchor = block["anchor"] or ""
    indent = anchor[: len(anchor) - len(anchor.lstrip())]
    path = tree / block["path"]
    code = textwrap.indent(block["code"], indent)
    if block["how"] is None:
        fresh = not path.exists()
        path.write_text(code if fresh else path.read_text() + code)
        return
    text = path.read_text()
    assert text.count(f"\n{block['anchor']}") == 1, (
        f"{block['path']} has no single line {block['anchor']!r}"
    )
    if block["how"] == "instead of":
        path.write_text(text.replace(f"\n{block['anchor']}\n", f"\n{code}"))
    else:
        path.write_text(text.replace(f"\n{block['anchor']}", f"\n{code}{block['anchor']}"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the source with all recipes applied."""
    root = tmp_path_factory.mktemp("extended")
    for folder in ("rpg", "flows", "dashboard", "configs"):
        # What was compiled as well, because most of it stays as it is; but not what another worker
        # just compiles.
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("*.pyc.*"))
    for _, _, blocks in recipes():
        for block in blocks:
            applied(root, block)
    (root / "extended.yaml").write_text(SWEEP)
    return root


def run(tree, *command, check=True, **others):
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "RPG_HOME": str(tree / "data"),
        "COLUMNS": "160",
        **others,
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def result(tree, code):
    """What a program that ends with `print(json.dumps(...))` found, in the extended source."""
    return json.loads(run(tree, "-c", f"import json\n{code}").stdout.splitlines()[-1])


def test_each_recipe_touches_as_many_files_as_its_heading_says():
    found = {heading: len({block["path"] for block in blocks}) for heading, _, blocks in recipes()}
    assert found == {heading: count for heading, count, _ in recipes()}
    assert found == {
        "A divergence": 2,
        "An algorithm": 1,
        "A task type": 3,
        "A verifier": 3,
        "A metric": 2,
        "A back end": 2,
        "A page": 2,
    }
    assert sum(len(blocks) for _, _, blocks in recipes()) == len(re.findall("```[py]", PAGE)), (
        "a block nobody applies"
    )


AUDIT = """
import rpg
from dataclasses import replace
from rpg.losses.kl_terms import MATHEMATICS as known
assert known["jeffreys"].prefix is None  # so that `ratio: prefix` is refused
names = ["rpg-jeffreys", "rpg-reinforce-jeffreys", "is-reinforce"]
def measured(names):
    found = {}
    for name in names:
        result = rpg.audit(rpg.algorithm(name))[name]
        objectives = result.point(0.2).bias
        own = next(o for o in objectives if "token" in o and "KL(π‖ref) + KL(ref‖π)" in o)
        bias = max(p.bias[own] for p in result.points if not p.clipped)
        found[name] = [list(result.exact_off_policy), bias]
    return found
right = measured(names)
known["jeffreys"] = replace(known["jeffreys"], term=known["fkl"].term)
print(json.dumps({"right": right, "wrong": measured(names[:2])}))
"""


def test_the_audit_proves_a_right_divergence_and_exposes_a_wrong_one(tree):
    audited = result(tree, AUDIT)
    for name in ("rpg-jeffreys", "rpg-reinforce-jeffreys"):
        exact, bias = audited["right"][name]
        assert exact == ["token-level E[R] − β (KL(π‖ref) + KL(ref‖π))"]
        assert bias < 1e-10
        exact, bias = audited["wrong"][name]
        assert exact == ["token-level E[R] − β KL(ref‖π)"], "fkl's formula follows fkl's objective"
        assert bias > 0.01
    assert audited["right"]["is-reinforce"][0] == ["token-level E[R]"]


def test_a_forgotten_registration_is_an_error_that_says_where(tree, tmp_path):
    shutil.copytree(tree / "rpg", tmp_path / "rpg")
    path = tmp_path / "rpg" / "tasks" / "__init__.py"
    path.write_text(path.read_text().replace('    "sort": "rpg.tasks.sort",\n', ""))
    done = run(tmp_path, "-c", "import rpg.tasks", check=False)
    assert "task type 'sort' is in only one of rpg/config and rpg/tasks/__init__.py" in done.stderr


CONFIGURED = f"""
import runpy
page = runpy.run_path({str(ROOT / ".ci" / "configuration_page.py")!r})["page"]
from rpg.config.errors import ConfigError
from rpg.config.load import resolve
from rpg.tasks.rewards import grader_for
from rpg.tasks import verifier_of
task = dict(type="file", train="a", benchmarks=dict(b="c"), verifier=dict(type="word"))
with grader_for(verifier_of(resolve(dict(task=task), "x").task)) as grader:
    items = [("so it is Paris", "paris"), ("Lyon", "paris"), ("Paris", "paris", True)]
    grades = [graded.correct for graded in grader.grade(items)]
try:
    resolve(dict(task=dict(type="sorting")), "x")
except ConfigError as error:
    refused = str(error)
print(json.dumps([grades, page(), refused]))
"""


def test_the_configuration_its_page_and_its_messages_know_the_new_types(tree):
    grades, page, refused = result(tree, CONFIGURED)
    assert grades == [True, False, False], "a file task accepts the verifier, and its grader grades"
    for kind in ("sort", "frozen"):
        assert f"**`type: {kind}`**" in page
    assert "WordVerifier" in page
    assert "did you mean 'sort'?" in refused


FOUND = """
from streamlit.testing.v1 import AppTest
from rpg.store import Layout
from rpg.store.database import build, connect
from rpg.store.schema import documentation
build(Layout.at())
with connect(Layout.at()) as db:
    backend = "spec->>'$.backend.type'"
    runs = db.execute(f"SELECT {backend} AS b, state, step FROM runs ORDER BY b").fetchall()
    shares = db.execute("SELECT count(kept_share) FROM metrics").fetchall()
code = "from dashboard import seeds_page, view; view.with_results(seeds_page.page)()"
page = AppTest.from_string(code, default_timeout=60).run()
assert not page.exception, page.exception[0].message
listed = AppTest.from_file("dashboard/app.py", default_timeout=60).run()
assert not listed.exception, listed.exception[0].message
seeds = page.dataframe[0].value["seeds"].tolist()
print(json.dumps({"runs": runs, "shares": shares, "schema": documentation(), "seeds": seeds}))
"""


@pytest.mark.system
def test_a_sweep_trains_and_reports_and_the_page_shows_what_was_added(tree, prefect):
    """On the task, with divergence, algorithm and back end; the database and the report have the
    metric."""
    run(tree, "-m", "rpg", "sweep", "extended.yaml", "--workers", "2", **prefect)
    found = result(tree, FOUND)
    assert found["runs"] == [["frozen", "done", 2], ["local", "done", 2]]
    assert found["shares"] == [[2]], "both steps of the run that trains"
    assert (
        "| `kept_share` | DOUBLE | share of the sampled prompt groups that are trained on |"
        in found["schema"]
    )
    page = next((tree / "data").rglob("report.html")).read_text()
    assert "Groups trained on (share)" in page
    assert "IS-REINFORCE" in page
    assert found["seeds"] == [1, 1], "on the new page of the dashboard"
