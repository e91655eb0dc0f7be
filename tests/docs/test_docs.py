"""What README and docs show is tried: blocks run, links lead somewhere, commands and options
exist."""

import ast
import contextlib
import io
import itertools
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from benchmarks.synthetic import write_sweep
from rpg.cli import load
from rpg.config.load import parse_assignments, parse_axes, parse_yaml, read_mapping
from rpg.config.sweep_spec import load_file, load_sweep, single_run
from rpg.store import Layout
from rpg.store.database import build, connect
from rpg.study.spec import load_study
from rpg.tasks.benchmarks import Benchmark, read_set
from rpg.tasks.training_sets import TrainingSet
from tests.docs.pages import LANGUAGES, PAGES, ROOT, anchors, blocks, inline_code, links, prose

APP = load()
RECIPES = ROOT / "docs" / "extending.md"
"""Its blocks are applied to a copy of the source by tests/test_extending.py."""
COMMAND = typer.main.get_command(APP)
COMMANDS = COMMAND.commands
BLOCKS = [block for page in PAGES for block in blocks(page)]
page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader stands: a folder with a data folder in it, which holds a finished sweep
    `quickstart`."""
    write_sweep(tmp_path / "rpg-data", "quickstart", ("grpo", "rpg-reinforce-urkl"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RPG_HOME", raising=False)
    # Tests of the report draw. Here, seconds of a page would be spent on figures that are not
    # looked at.
    monkeypatch.setattr(
        "vl_convert.vegalite_to_svg", lambda *_, **__: "<svg width='1' height='1'/>"
    )
    monkeypatch.setattr("vl_convert.svg_to_png", lambda *_, **__: b"")
    monkeypatch.setattr("vl_convert.svg_to_pdf", lambda *_, **__: b"")
    return tmp_path


@page
def test_every_block_of_a_page_runs_unless_it_is_marked(page, folder):
    for block in blocks(page):
        if block.file and not block.left_out:
            (folder / block.file).write_text(block.text)
        if (
            block.left_out
            or block.language in ("text", "dockerfile", "jsonl")
            or block.page == RECIPES
        ):
            continue
        try:
            _TRY[block.language](block, folder)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block.where}: {type(error).__name__}: {error}") from error


def _commands(block, folder: Path) -> None:
    for words in block.commands():
        assert words[0] == "rpg", (
            f"{words[0]}: only rpg is run; mark the block <!-- not run: why -->"
        )
        result = CliRunner().invoke(APP, words[1:], catch_exceptions=False, standalone_mode=False)
        assert result.return_value in (0, None), f"{' '.join(words)}: {result.output}"


def _yaml(block, folder: Path) -> None:
    """A sweep, a run (or sections of one), a study, a benchmark, a training set: read as `rpg`
    reads it."""
    path = folder / (block.file or "block.yaml")
    path.write_text(block.text)
    keys = parse_yaml(block.text, block.where).keys()
    if "source" in keys:
        read_set(Benchmark if "title" in keys else TrainingSet, path)
    elif "tune" in keys:
        assert load_study(path).variants
    else:
        assert load_file(path, {}, lambda spec: "digest").runs


def _python(block, folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block.text, block.where, "exec"), {"__name__": "__main__"})


def _sql(block, folder: Path) -> None:
    layout = Layout.at(folder / "rpg-data")
    build(layout)
    with connect(layout, external=True) as db:
        for statement in re.sub(r"--.*", "", block.text).split(";"):
            if statement.strip():
                db.execute(statement).fetchall()


_TRY = {"sh": _commands, "yaml": _yaml, "python": _python, "sql": _sql}


def test_every_block_says_what_it_is_and_why_it_is_not_run():
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.where}: the fence names none of {LANGUAGES}"
        assert not block.mark.startswith("not run") or len(block.left_out) > 8, (
            f"{block.where}: say why"
        )
    run = [block.language for block in BLOCKS if not block.left_out]
    for language, least in {"sh": 5, "yaml": 6, "python": 4, "sql": 1}.items():
        assert run.count(language) >= least, f"{run.count(language)} blocks of {language} are run"


def _parse(words: list[str]) -> None:
    """Raises what the command line would say: an unknown command, option or value, a missing
    argument."""
    assert words[0] in COMMANDS, f"no command rpg {words[0]}"
    given = COMMANDS[words[0]].make_context(f"rpg {words[0]}", words[1:]).params
    file = given.get("file") if "set_" in given else None
    if file and file.exists():  # the fields exist and take these values
        overrides = parse_assignments(given["set_"])
        axes = parse_axes(given.get("axis") or [])
        if "name" in read_mapping(file):
            load_sweep(file, overrides, lambda spec: "digest", axes=axes)
        else:
            single_run(file, overrides, lambda spec: "digest")


def test_commands_that_messages_print_can_be_typed():
    _parse(["serve", "--nightly", ""])  # which docs/operations.md describes
    paths = [path for room in ("rpg", "flows", "dashboard") for path in (ROOT / room).rglob("*.py")]
    trees = (ast.parse(path.read_text()) for path in paths)
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [call for call in calls if ast.unparse(call.func).endswith("command")]
    printed = [call.args for call in called if "layout=" in ast.unparse(call)]
    assert len(printed) > 15
    for given in printed:
        plain = (word for word in given if not isinstance(word, ast.Starred))
        words = zip(plain, ["", "quickstart", *"111"], strict=False)
        _parse([word.value if isinstance(word, ast.Constant) else other for word, other in words])


def _before_shell(words: list[str]) -> list[str]:
    """Without where the shell sends what is printed."""
    return list(itertools.takewhile(lambda word: word not in (">", "|"), words))


def test_commands_that_are_not_run_can_be_typed():
    for block in BLOCKS:
        if block.language == "sh":
            for words in block.commands():
                if words[0] == "rpg":
                    try:
                        _parse(_before_shell(words[1:]))
                    except Exception as error:
                        raise AssertionError(
                            f"{block.where}: {' '.join(words)}: {error}"
                        ) from error


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_it_can_be_typed(name):
    epilog = COMMANDS[name].epilog or ""
    assert epilog.startswith("Example"), f"rpg {name} --help shows no example"
    for example in epilog.partition(":")[2].split(" · "):
        words = shlex.split(example)
        assert words[:2] == ["rpg", name]
        _parse(_before_shell(words[1:]))


@page
def test_options_in_the_text_exist(page):
    ours = {name: _options(command) for name, command in COMMANDS.items()} | {"": _options(COMMAND)}
    scripts = "".join(path.read_text() for path in (ROOT / "benchmarks").rglob("*.py"))
    for code in inline_code(page):
        words = code.split()
        options = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
        if words[0] == "rpg" and len(words) > 1:
            command = "" if words[1].startswith("-") else words[1]
            assert command in ours, f"`{code}`: no such command"
            assert not set(options) - ours[command], f"`{code}`: unknown option"
            if "--set" in options and not re.search(r"\b[A-Z]{2,}\b|\.\.\.", code):
                _parse(shlex.split(code)[1:])
        elif words[0].startswith("--") or "benchmarks" in code:
            for option in set(options).difference(*ours.values()):
                assert f'"{option}"' in scripts, f"`{code}`"


def _options(command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


@page
def test_links_lead_somewhere(page):
    for link in links(page):
        if not re.match(r"https?://|mailto:", link):
            target, _, anchor = link.partition("#")
            there = (page.parent / target).resolve() if target else page
            assert there.exists(), link
            assert not anchor or anchor in anchors(there), f"{link}: no such heading"


_FOLDERS = ("rpg", "flows", "dashboard", "benchmarks", "configs", "docs", "tests", ".ci")


@page
def test_files_and_modules_in_the_text_exist(page):
    for code in inline_code(page):
        path, _, test = code.partition("::")
        new = f"A new file, `{path}`" in prose(page)  # which a recipe adds
        if re.fullmatch(rf"(?:{'|'.join(_FOLDERS)})/[\w./*-]+", path) and not new:
            assert list(ROOT.glob(path)) or (ROOT / f"{path}.py").exists(), (
                f"`{code}`: no such file"
            )
            # A method is named after its class.
            defined = rf"^ *(?:def|class) {test.rpartition('.')[2]}\b"
            assert not test or re.search(defined, (ROOT / path).read_text(), re.M), (
                f"`{code}`: no such name"
            )
        for module in re.findall(r"python -m ((?:rpg|flows|benchmarks)[\w.]*)", code):
            assert find_spec(module), f"`{code}`: no such module"
        for script in re.findall(r"(?:python|pytest) ((?:benchmarks|tests|\.ci)/[\w./]+)", code):
            assert (ROOT / script).exists(), f"`{code}`: no such file"
