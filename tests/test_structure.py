"""The arrows of the design: every module belongs to a room, and imports nothing that its room does not name."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rooms import ROOMS, room_of, table

ROOT = Path(__file__).resolve().parent.parent
OURS = ("rpg", "flows", "dashboard", "verl_cpu")
BESIDE = {"verl_cpu": ROOT / "verl-cpu"}  # a distribution of its own
PUBLIC = {"rpg.__version__", "rpg.__file__"}  # of rpg/__init__.py, which loads nothing by itself


def modules(folders: tuple[str, ...] = OURS) -> dict[str, Path]:
    found = {}
    for folder in folders:
        root = BESIDE.get(folder, ROOT)
        for path in sorted((root / folder).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()
NAMES = [name for name in MODULES if name != "rpg"]  # the public API has a test of its own


def imports(source: str, known: dict[str, Path] = MODULES) -> Iterator[str]:
    """Every module that some import statement names, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not used here"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known or inner in PUBLIC else node.module or ""


def mistakes(name: str, source: str) -> list[str]:
    """What a module of this name must not import."""
    room = room_of(name)
    if room is None:
        return [f"{name} belongs to no room of tests/rooms.py"]
    wrong = []
    for imported in imports(source):
        top = imported.partition(".")[0]
        if top in sys.stdlib_module_names or imported in PUBLIC:
            continue
        if top in OURS:
            target = room_of(imported)
            # A subpackage is a room of its own (rpg.backends.local), its parent's __init__ is loaded anyway.
            if target is None or (target is not room and target.name not in room.ours):
                wrong.append(f"{name} ({room.name}) must not import {imported}")
        elif top not in room.outside:
            wrong.append(f"{name} ({room.name}) must not import {imported}")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_module_imports_only_what_its_room_may(name):
    assert not mistakes(name, MODULES[name].read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_import_is_found(name):
    """Each of these is forbidden to nearly every room."""
    room = room_of(name)
    for planted in ("prefect", "streamlit", "rpg.backends.verl.launch", "rpg.store.run_folder", "requests"):
        target = room_of(planted)
        allowed = planted in room.outside if target is None else target is room or target.name in room.ours
        assert bool(mistakes(name, f"def f():\n    import {planted}\n")) != allowed, planted


def test_a_module_without_a_room_is_found():
    assert mistakes("rpg.loose", "") == ["rpg.loose belongs to no room of tests/rooms.py"]
    assert mistakes("rpg.config.new", "import rpg.loose")


def test_the_order_is_bottom_up():
    """A room imports rooms that stand before it, so there is no circle among rooms."""
    seen: set[str] = set()
    for room in ROOMS:
        assert seen.issuperset(room.ours), f"{room.name} imports {set(room.ours) - seen}, which stand later"
        assert room.name not in seen
        seen.add(room.name)


def test_no_arrow_of_the_table_is_stale():
    """An arrow that no import uses any more is taken out of the table."""
    used = {room.name: set() for room in ROOMS}
    for name in NAMES:
        for imported in imports(MODULES[name].read_text()):
            used[room_of(name).name].add(
                room_of(imported).name if room_of(imported) else imported.partition(".")[0]
            )
    for room in ROOMS:
        assert used[room.name].issuperset(room.ours), f"{room.name}: {set(room.ours) - used[room.name]}"


def test_no_two_modules_import_each_other():
    """No circle among modules either, imports inside of functions included."""
    known = modules((*OURS, "benchmarks"))
    graph = {
        name: {i for i in imports(path.read_text(), known) if i in known and i != name}
        for name, path in known.items()
    }
    # Type checkers alone read what rpg/__init__.py imports; it loads a module when somebody asks for one of its names.
    graph["rpg"] = set()
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_the_public_api_is_lazy_complete_and_typed():
    """What `rpg` gives at run time is what type checkers are told, from the same modules."""
    import rpg

    told = {}
    for node in ast.walk(ast.parse(MODULES["rpg"].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rpg."):
            told |= {alias.name: node.module for alias in node.names}
    assert told == rpg._HOMES
    for name in rpg.__all__:
        assert getattr(rpg, name) is not None


def test_the_architecture_page_has_this_table():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert table() in page, "run: python -m tests.rooms, and put its table into docs/architecture.md"


@pytest.mark.parametrize(
    "module",
    ["rpg", "rpg.cli", "rpg.config.sweep_spec", "rpg.store", "rpg.catalogue", "rpg.backends.verl.overrides"],
)
def test_light_modules_load_without_heavy_ones(module):
    heavy = ("torch", "verl", "ray", "prefect", "streamlit", "duckdb")
    all_of_it = (
        "rpg.cli.load()" if module == "rpg.cli" else "None"
    )  # with every command, as `rpg --help` does
    code = f"import sys, {module}; {all_of_it}; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_every_name_that_is_imported_exists():
    """`from rpg.x import y`, in whatever function it hides: y stands at the top of rpg/x.py. Nothing is imported for it."""
    known = modules((*OURS, "benchmarks"))

    def names(tree: ast.AST) -> set[str]:
        found = set()
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
                found |= {
                    n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                }
            elif isinstance(node, ast.If | ast.Try):
                found |= names(node)
        return found

    trees = {name: ast.parse(path.read_text()) for name, path in known.items()}
    tops = {name: names(tree) for name, tree in trees.items()}
    missing = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if (
                not isinstance(node, ast.ImportFrom)
                or node.module not in known
                or "__getattr__" in tops[node.module]
            ):
                continue
            for alias in node.names:
                if alias.name not in tops[node.module] and f"{node.module}.{alias.name}" not in known:
                    missing.append(f"{name}: from {node.module} import {alias.name}")
    assert not missing
