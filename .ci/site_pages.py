"""What the site has besides docs/: a start page (README.md), the index of the paper, the Python
API, and every file of the repository that a page links to. A hook of mkdocs (mkdocs.yml)."""

from __future__ import annotations

import posixpath
import re
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from benchmarks.documented import CHART, script, unpack
from rpg.catalogue import algorithms
from rpg.config.sweep_spec import load_sweep
from rpg.report.publishing import of_sweep, write
from rpg.store import Layout
from rpg.store.database import connect

ROOT = Path(__file__).resolve().parents[1]
RENAMED = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "examples/README.md": "examples.md",
}
"""File of the repository -> page, where it is not that of docs/ or of the root."""
DEMO = "demo"
"""The folder of the site with the page that `rpg publish` makes; benchmarks.documented.CHART links
to it."""
DEMO_SAMPLES = 500_000
"""Bytes of samples that are published with it."""
WORKER = Path(__file__).with_name("iframe-worker.js")
PICTURE = "![The figure that make quickstart draws](docs/quickstart.png)"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
API = {
    "rpg": [
        "Algorithm",
        "algorithm",
        "algorithms",
        "policy_loss",
        "LossOutput",
        "advantages",
        "audit",
        "Counts",
        "distribution_kl",
    ],
    "rpg.interop.importing.recording": ["Recording"],
    "rpg.testing": [],
    "rpg.metrics": [],
    "rpg.store.layout": [],
    "rpg.store.run_folder": [],
    "rpg.store.queries": [],
    "rpg.store.token_records": [],
    "rpg.report.summary": [],
    "rpg.report.conclusion": [],
    "rpg.stats": [],
    "rpg.config.run_spec": [],
    "rpg.config.sweep_spec": [],
    "rpg.interop.integrations": [],
}
"""Module -> the names to document; none: all of its public ones."""


def on_files(files: Files, config: Any) -> Files:
    """Add pages and linked files; rewrite links between them."""
    docs = {f"docs/{file.src_uri}": file for file in files.documentation_pages()}
    examples = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/**/README.md"))]
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *examples, *docs)
    pages = {name: ROOT / name for name in names}
    for name, path in pages.items():
        text = path.read_text("utf-8")
        if name == "README.md":
            if PICTURE not in text:
                raise ValueError(f"README.md: {PICTURE} is where the chart belongs, and not there")
            text = text.replace(PICTURE, CHART)
        text = LINK.sub(lambda link, name=name: _resolved(link, name, pages, files, config), text)
        if name in docs:
            files.remove(docs[name])
        files.append(File.generated(config, _page(name), content=text))
    files.append(File.generated(config, "paper-index.md", content=paper_index()))
    files.append(File.generated(config, "api.md", content=api()))
    with tempfile.TemporaryDirectory() as folder:
        layout = unpack(Path(folder))
        chart = script(layout, "quickstart")
        demo = published(layout, Path(folder) / "demo")
    files.append(File.generated(config, "assets/chart.js", content=chart))
    for name, content in demo.items():
        files.append(File.generated(config, f"{DEMO}/{name}", content=content))
    files.append(
        File.generated(config, "assets/iframe-worker.js", content=WORKER.read_text("utf-8"))
    )
    return files


def published(layout: Layout, folder: Path) -> dict[str, str]:
    """The files that `rpg publish quickstart` writes."""
    with connect(layout) as db:
        paths = write(of_sweep(layout, db, "quickstart", DEMO_SAMPLES), folder, layout)
    return {path.name: path.read_text("utf-8") for path in paths}


def _page(name: str) -> str:
    return RENAMED.get(name, name.removeprefix("docs/"))


def _resolved(
    link: re.Match[str], name: str, pages: dict[str, Path], files: Files, config: Any
) -> str:
    """The link from where the page now is; a file that is no page is added to the site."""
    before, target, after = link.groups()
    if re.match(r"[a-z]+:", target):
        return link[0]
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if (ROOT / wanted).is_dir():
        wanted += "/README.md"
    if wanted in pages:
        place = _page(wanted)
    elif wanted.startswith("docs/"):
        place = wanted.removeprefix("docs/")
    else:
        place = (
            f"repository/{wanted}"
            if not wanted.endswith((".py", ".md", ".yaml"))
            else f"repository/{wanted}.txt"
        )
        if (ROOT / wanted).is_file() and files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / wanted)))
    return f"{before}{posixpath.relpath(place, posixpath.dirname(_page(name)) or '.')}{after}"


def paper_index() -> str:
    """Every algorithm: what it optimises, who published it, and the configurations that train
    it."""
    trained: dict[str, list[str]] = {}
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        folder = {"rpg": "paper", "sweeps": "sweeps"}.get(path.parent.name)
        if folder:
            for name in dict.fromkeys(
                run.spec.algorithm.name for run in load_sweep(path, {}, lambda _: "").runs
            ):
                trained.setdefault(name, []).append(f"{folder}/{path.stem}")
    lines = [
        "# Index of the paper's algorithms",
        "",
        "Every algorithm of the catalogue: its objective and its loss per token, who "
        "published it, the rows of the paper's "
        "tables that it stands for, and the shipped configurations that train it. What each "
        "one really follows, with bias "
        "and noise by enumeration, is in [the audit](audit.md#the-catalogue); `rpg show "
        "CONFIG` prints every value.",
        "",
    ]
    for name, entry in algorithms().items():
        configs = ", ".join(f"`{file}`" for file in trained.get(name, []))
        facts = {
            "Name": f"`{name}`",
            "Objective": entry.objective,
            "Loss per token": f"`{entry.formula}`",
            "Published": entry.citation,
            "In the paper": "; ".join(entry.paper_rows),
            "Trained by": configs,
        }
        lines += [f"## {entry.display_name}", "", entry.description, ""]
        lines += [f"- {fact}: {text}" for fact, text in facts.items() if text] + [""]
    return "\n".join(lines) + "\n"


def api() -> str:
    """The reference, from the docstrings."""
    lines = [
        "# Python API",
        "",
        "What `import rpg` offers, and the modules that scripts around it use most.",
        "",
    ]
    for module, names in API.items():
        wanted = ["    options:", f"      members: [{', '.join(names)}]"] if names else []
        lines += [f"::: {module}", *wanted, ""]
    return "\n".join(lines)
