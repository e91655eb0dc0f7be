"""What somebody who knows TRL looks for is two clicks from the front page, under its own words."""

import re

import pytest
import yaml

from tests.docs.pages import ROOT

FRONTS = ("README.md", "docs/README.md")
"""The first page of the repository and of the site, and the list of all pages."""
WANTED = {
    "my own data": "rpg adopt",
    "my own loss": "rpg.audit(my_loss",
    "one gpu": "rpg show gpu/",
    "compare betas": "algorithm.beta: [",
    "a nightly": "rpg nightly",
}
"""What is looked for -> what the section that the second click opens has to show."""


class NoTags(yaml.SafeLoader):
    """Reads mkdocs.yml, whose Python tags mean nothing to a test."""


NoTags.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def links(page):
    """(words, page, section) of the links of a page, its address as in the repository."""
    text = (ROOT / page).read_text("utf-8")
    for words, address in re.findall(r"(?<!!)\[([^\]]+)\]\(([^)]+)\)", text):
        name, _, section = address.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not address.startswith("http") and target.suffix == ".md":
            yield words.lower(), str(target.resolve().relative_to(ROOT)), section


def section_of(page, section):
    """The text of a page, or that of one of its sections, with its subsections."""
    text = (ROOT / page).read_text("utf-8")
    if not section:
        return text
    prose = re.sub(r"^```.*?^```$", lambda block: "-" * len(block[0]), text, flags=re.M | re.S)
    for heading in re.finditer(r"^(#+) (.+)$", prose, re.M):
        slug = re.sub(r"[^\w -]", "", heading[2].lower()).replace(" ", "-")
        if slug == section:
            higher = re.compile(rf"^#{{1,{len(heading[1])}}} ", re.M)
            end = higher.search(prose, heading.end())
            return text[heading.start() : end.start() if end else None]
    raise AssertionError(f"{page} has no section {section}")


def within_two_clicks(front):
    """(words, page, section) of all links that are the first or the second click."""
    first = list(links(front))
    second = [link for _, page, _ in first for link in links(page)]
    return first + second


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("wanted", WANTED)
def test_it_is_two_links_from_the_front_page(front, wanted):
    found = {
        (page, section)
        for words, page, section in within_two_clicks(front)
        if re.search(rf"\b{wanted}\b", words)
    }
    assert found, f"no link is called {wanted!r}"
    assert any(WANTED[wanted] in section_of(page, section) for page, section in found)


def test_the_sites_navigation_names_it_below_one_of_its_headings():
    """Opening a heading is the first click, choosing the page the second."""
    nav = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), NoTags)["nav"]
    headings = [pages for entry in nav for pages in entry.values() if isinstance(pages, list)]
    names = [name.lower() for pages in headings for page in pages for name in page]
    for wanted in WANTED:
        assert any(wanted in name for name in names), f"{wanted!r} is in none of {names}"
