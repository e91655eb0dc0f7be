"""The page of papers has a row and a section for every file, and says what its run found."""

import re

import yaml

from tests.docs.pages import ROOT

FILES = sorted(path.stem for path in (ROOT / "configs/papers").glob("*.yaml"))
PAGE = (ROOT / "docs/papers/README.md").read_text()
RESULTS = yaml.safe_load((ROOT / "docs/papers/results.yaml").read_text()) or {}
ROW = re.compile(
    r"^\| \[.*?\]\(#(?P<anchor>[\w-]+)\), [\d.]+ \| `papers/(?P<file>[\w-]+)` \|", re.M
)
PARTS = ["Claim", "Formula", "Audit", "Found", "At scale", "Verdict"]


def section_of(file):
    """{part: text} of a file's section."""
    [anchor] = [row["anchor"] for row in ROW.finditer(PAGE) if row["file"] == file]
    sections = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): text
        for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    }
    return dict(re.findall(r"^- \*\*(.*?):\*\* (.*)$", sections[anchor], re.M))


def test_every_file_has_a_row_and_a_section_of_six_parts():
    assert sorted(row["file"] for row in ROW.finditer(PAGE)) == FILES
    for file in FILES:
        assert list(section_of(file)) == PARTS, file


def test_the_page_says_what_the_runs_found():
    """Every difference of a paper that was run, with its interval; of the others that they were
    not."""
    assert set(RESULTS) <= set(FILES)
    for file in FILES:
        found = section_of(file)["Found"]
        if file not in RESULTS:
            assert found.startswith("not run"), file
            continue
        assert not found.startswith("not run"), file
        for difference, low, high in RESULTS[file]["differences"].values():
            assert f"{difference:.3f} [{low:.3f}, {high:.3f}]" in found, file
