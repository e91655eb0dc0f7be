"""The arrows of the design: every module belongs to a room and names no module that its room may
not."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.arrows import OURS, PUBLIC, Arrows, arrows, parsed
from tests.rooms import ROOMS, room_of, table

ROOT = Path(__file__).resolve().parent.parent
BESIDE = {"verl_cpu": ROOT / "verl-cpu"}  # a distribution of its own


def modules() -> dict[str, Path]:
    names = {}
    for folder in (*OURS, "benchmarks"):
        root = BESIDE.get(folder, ROOT)
        for path in sorted((root / folder).rglob("*.py")):
            names[
                ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            ] = path
    return names


MODULES = modules()
# The public API, `rpg` itself, has a test of its own.
NAMES = [name for name in MODULES if name.partition(".")[0] in OURS and name != "rpg"]


def arrows_of(name: str, source: str) -> Arrows:
    return arrows(name, source, MODULES, is_package=MODULES.get(name, Path()).name == "__init__.py")


@cache
def arrows_in_file(name: str) -> Arrows:
    return arrows_of(name, MODULES[name].read_text())


def mistakes(name: str, names: Arrows) -> list[str]:
    """What a module of this name must not import, nor start as a process."""
    room = room_of(name)
    if room is None:
        return [f"{name} belongs to no room of tests/rooms.yaml"]
    wrong = []
    for kind, targets in names._asdict().items():
        allowed = {room.name, *room.ours, *(room.starts if kind == "strings" else ())}
        for target in sorted(targets):
            top = target.partition(".")[0]
            other = room_of(target)
            if top in sys.stdlib_module_names or target in PUBLIC:
                continue
            # A subpackage is a room of its own (rpg.backends.local), its parent's __init__ is
            # loaded anyway.
            if (
                (other is None or other.name not in allowed)
                if top in OURS
                else top not in room.outside
            ):
                wrong.append(f"{name} ({room.name}) must not name {target} ({kind})")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_module_names_only_what_its_room_may(name):
    assert not mistakes(name, arrows_in_file(name))


# {0}: the module, {1}: its package, {2}: its name there, {3}: dots up to the top, {4}: its
# package's parts, {5}: its path.
PLANTED = {
    "import": "import {0}",
    "import as": "import {0} as innocent",
    "from": "from {1} import {2}",
    "star": "from {0} import *",
    "type checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {0}",
    "in a function": (
        "def f():\n    try:\n        import {0} as x\n    except ImportError:\n        x = None"
    ),
    "string": "TRAINER = '{0}'",
    "keyword": "start(module='{0}')",
    "class": "CLASS = '{0}.Trainer'",
    "entry point": "ENTRY = '{0}:main'",
    "hydra": "SEARCH = 'pkg://{0}'",
    "f-string": "f'{1}.{{kind}}'",
    "format": "TRAINER = '{1}.{{}}'.format(kind)",
    "percent": "TRAINER = '{1}.%s' % kind",
    "sum": "TRAINER = '{1}.' + kind",
    "join": "TRAINER = '.'.join(({4}, kind))",
    "import_module": "import importlib\nimportlib.import_module('{0}')",
    "import_module of a relative name": "import importlib\nimportlib.import_module('.{2}', '{1}')",
    "__import__": "__import__('{0}')",
    "runpy": "import runpy\nrunpy.run_module('{0}', run_name='__main__')",
    "pkgutil": "import pkgutil\npkgutil.resolve_name('{0}:main')",
    "-m": "import sys\ncommand = [sys.executable, '-m', '{0}']",
    "-m in a line": "import os\nos.system('python -P -m {0} --help')",
    "code in a string": "command = ['python', '-c', 'from {1} import {2}; {2}.main()']",
    "preload": "context.set_forkserver_preload(['torch', '{0}'])",
    "path": "page = '{5}.py'",
    "path of a flow": "entrypoint = '{5}.py:main'",
}
"""Ways to name a module; each must be seen wherever it is planted."""


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_name_is_found(kind):
    for target in (
        "rpg.backends.verl.launch",
        "rpg.store.run_folder",
        "rpg.cli.execution",
        "dashboard.app",
    ):
        package, _, last = target.rpartition(".")
        parts = ", ".join(repr(part) for part in package.split("."))
        text = PLANTED[kind].format(target, package, last, "", parts, target.replace(".", "/"))
        names = arrows_of("rpg.errors.planted", text)
        assert {target, package} & {*names.imports, *names.strings}, text
        for room in ROOMS:
            other = room_of(target).name
            allowed = {
                room.name,
                *room.ours,
                *(room.starts if not names.imports & {target, package} else ()),
            }
            assert other in allowed or mistakes(f"{room.name}.planted", names), (room.name, text)


@pytest.mark.parametrize(
    ("dots", "name"),
    [(".", "rpg.planted"), ("..", "rpg.errors.planted"), ("...", "rpg.a.b.planted")],
)
def test_a_planted_relative_import_is_found(dots, name):
    assert arrows_of(name, f"from {dots}cli import execution").imports == {"rpg.cli.execution"}
    assert arrows_of(name, f"from {dots} import cli").imports == {"rpg.cli"}
    inside = arrows("rpg.store", "from .cli import execution", MODULES, is_package=True)
    assert inside.imports == {"rpg.store.cli"}


@pytest.mark.parametrize(
    "kind", ["import", "from", "star", "import_module", "__import__", "runpy", "-m"]
)
def test_a_planted_package_of_others_is_found(kind):
    names = arrows_of("rpg.errors.planted", PLANTED[kind].format("requests", "requests", "get"))
    assert all(mistakes(f"{room.name}.planted", names) for room in ROOMS)


def test_what_only_looks_like_a_module_is_none():
    text = (
        "'Docs: rpg.cli'\nrows = {'rpg.seed': 1, 'rpg.json': 'rpg'}\ntitle = 'dashboard.log', "
        "f'rpg {x}', 'rpg.'"
    )
    assert not arrows_of("rpg.config.new", text).strings


def test_a_module_without_a_room_is_found():
    assert mistakes("rpg.loose", Arrows(set(), set())) == [
        "rpg.loose belongs to no room of tests/rooms.yaml"
    ]
    assert mistakes("rpg.config.new", Arrows({"rpg.loose"}, set()))


def test_settings_name_modules_that_exist():
    """Entry points, which nothing in the source imports."""
    for module in re.findall(r'"((?:rpg|flows)[\w.]+):\w+"', (ROOT / "pyproject.toml").read_text()):
        assert module in MODULES


def test_the_order_is_bottom_up():
    """A room imports and starts rooms that stand before it, so there is no circle among rooms."""
    seen: set[str] = set()
    for room in ROOMS:
        later = {*room.ours, *room.starts} - seen
        assert not later, f"{room.name} names {later}, which stand later"
        assert room.name not in seen
        seen.add(room.name)


@pytest.mark.component
def test_no_arrow_of_the_table_is_stale():
    """An arrow that nothing uses any more is taken out of the table."""
    for room in ROOMS:
        inside = [arrows_in_file(name) for name in NAMES if room_of(name) is room]
        for kind, expected in enumerate((room.ours, room.starts)):
            used = {
                other.name
                for names in inside
                for target in names[kind]
                if (other := room_of(target))
            }
            assert used >= {*expected}, f"{room.name}: {expected}"


@pytest.mark.component
def test_no_two_modules_import_each_other():
    """No circle among modules either, imports inside of functions included."""
    graph = {name: arrows_in_file(name).imports & {*MODULES} - {name} for name in MODULES}
    # Type checkers alone read what rpg/__init__.py imports; it loads a module when somebody asks
    # for one of its names.
    graph["rpg"] = set()
    TopologicalSorter(graph).prepare()  # raises CycleError, which names them


@pytest.mark.component
def test_the_public_api_is_lazy_complete_and_typed():
    """What `rpg` gives at run time is what type checkers are told, from the same modules."""
    import rpg

    told = {}
    for node in ast.walk(ast.parse(MODULES["rpg"].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rpg."):
            public = [alias.name for alias in node.names if alias.asname == alias.name]
            told |= dict.fromkeys(public, node.module)
    assert told == rpg._HOMES
    for name in rpg.__all__:
        assert getattr(rpg, name) is not None


def test_the_architecture_page_has_this_table():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert table() in page, (
        "run: python -m tests.rooms, and put its table into docs/architecture.md"
    )


@pytest.mark.component
def test_light_modules_load_without_heavy_ones():
    light = (
        "rpg, rpg.cli, rpg.config.sweep_spec, rpg.store, rpg.catalogue, rpg.backends.verl.overrides"
    )
    heavy = ("torch", "verl", "ray", "prefect", "streamlit", "duckdb")
    # With every command, as `rpg --help` does.
    code = f"import sys, {light}; rpg.cli.load(); print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert out.stdout.strip() == "[]"


def defined(tree: ast.AST) -> set[str]:
    """The names that stand at the top of a module."""
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
            inner = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            names |= {n.id for n in inner if isinstance(n.ctx, ast.Store)}
        elif isinstance(node, ast.If | ast.Try):
            names |= defined(node)
    return names


@pytest.mark.component
def test_every_name_that_is_imported_exists():
    """`from rpg.x import y`, in whatever function it hides: y stands at the top of rpg/x.py.
    Nothing is imported for it."""
    trees = {name: parsed(path.read_text()) for name, path in MODULES.items()}
    tops = {name: defined(tree) for name, tree in trees.items()}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.module not in MODULES:
                continue
            top = tops[node.module]
            names = {
                alias.name for alias in node.names if f"{node.module}.{alias.name}" not in MODULES
            }
            assert "__getattr__" in top or names <= {*top, "*"}, (
                f"{name}: from {node.module} import {names}"
            )
