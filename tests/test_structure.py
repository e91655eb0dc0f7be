"""The arrows of the design: who may import whom, checked on every import statement of the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = {
    "rpg.catalogue",
    "rpg.catalogue.entries",
    "rpg.losses.divergences",
    "rpg.losses",
    "rpg.losses.aggregation",
    "rpg.losses.advantages",
}
# package prefix -> what of ours, and which outside packages, it must not import
FORBIDDEN = {
    "rpg.catalogue": {"torch", "rpg.config", "rpg.store", "rpg.backends", "flows", "dashboard"},
    "rpg.losses": {
        "rpg.config",
        "rpg.store",
        "rpg.backends",
        "rpg.tasks",
        "flows",
        "dashboard",
        "transformers",
    },
    "rpg.losses.advantages": {
        "rpg.config",
        "rpg.store",
        "rpg.backends",
        "rpg.tasks",
        "flows",
        "dashboard",
        "transformers",
    },
    "rpg.auditing": {
        "rpg.config",
        "rpg.store",
        "rpg.backends",
        "rpg.tasks",
        "flows",
        "dashboard",
        "transformers",
    },
    "rpg.config": {"torch", "rpg.store", "rpg.backends", "rpg.report", "flows", "dashboard", "prefect"},
    "rpg.store": {
        "torch",
        "rpg.backends",
        "rpg.config",
        "rpg.report",
        "flows",
        "dashboard",
        "prefect",
        "streamlit",
    },
    "rpg.planning.estimate": {
        "torch",
        "rpg.store",
        "rpg.backends",
        "flows",
        "dashboard",
        "prefect",
        "streamlit",
    },
    "rpg.planning.shapes": {
        "torch",
        "rpg.store",
        "rpg.backends",
        "flows",
        "dashboard",
        "prefect",
        "streamlit",
    },
    "rpg.stats": {"torch", "rpg.backends", "rpg.config", "flows", "dashboard", "prefect", "streamlit"},
    "rpg.report": {"torch", "rpg.backends", "flows", "dashboard", "prefect", "streamlit"},
    "rpg.paper": {"torch", "rpg.backends", "flows", "dashboard", "prefect", "streamlit"},
    # Graders run beside trainers and in workers of their own, which have to start quickly.
    "rpg.rewards": {"torch", "rpg.store", "rpg.backends", "flows", "dashboard", "prefect", "streamlit"},
    "rpg.benchmarks": {"torch", "rpg.store", "rpg.backends", "flows", "dashboard", "prefect", "streamlit"},
    "rpg.tasks": {"prefect", "streamlit", "flows", "dashboard", "rpg.backends"},
    "rpg.backends": {"prefect", "streamlit", "duckdb", "flows", "dashboard", "rpg.report"},
    "rpg.evaluation": {"prefect", "streamlit", "duckdb", "flows", "dashboard", "rpg.report"},
    "flows": {"torch", "streamlit", "dashboard", "transformers"},
    "dashboard": {"torch", "flows", "prefect", "transformers", "rpg.backends", "rpg.config"},
}


def modules():
    for folder in ("rpg", "flows", "dashboard"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name, prefix):
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("name,path", list(modules()), ids=lambda v: v if isinstance(v, str) else "")
def test_arrows_point_one_way(name, path):
    for prefix, forbidden in FORBIDDEN.items():
        if within(name, prefix):
            bad = {i for i in imports(path) for f in forbidden if within(i, f)}
            assert not bad, f"{name} must not import {sorted(bad)}"
    if not within(name, "rpg.cli"):
        ours = {i for i in imports(path) if within(i, "flows") or within(i, "dashboard")}
        home = name.split(".")[0]
        assert all(within(i, home) for i in ours), (
            f"{name} imports {sorted(ours)}: only rpg.cli may call upwards"
        )


@pytest.mark.parametrize(
    "module",
    ["rpg", "rpg.cli", "rpg.config.sweep", "rpg.store", "rpg.catalogue", "rpg.backends.verl.overrides"],
)
def test_light_modules_load_without_heavy_ones(module):
    heavy = ("torch", "verl", "ray", "prefect", "streamlit", "duckdb")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
