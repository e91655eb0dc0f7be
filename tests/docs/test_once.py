"""Pages say a thing once, and stay few enough to be read."""

import re
from collections import defaultdict

from tests.docs.pages import PAGES, ROOT

GENERATED = ("configuration.md", "database.md")
"""From the models; and with the table of every metric."""
RESEARCH = (
    "error-rates.md",
    "field.md",
    "field-changes.md",
    "findings.md",
    "measured.md",
    "paper.md",
    "real-model.md",
)
LONGEST = 11
"""Words that two sentences may share without being one sentence."""
MOST_WORDS = 45_000
MOST_PAGES = 31


def sentences(text):
    """The sentences of a page, without blocks, printed results, comments, links and marks."""
    text = re.sub(r"<!-- results: .*?<!-- end -->", "\n\n", text, flags=re.S)
    text = re.sub(r"^```.*?^```$", "\n\n", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-|#>]|\s*\d+\.)", text):
        for cell in paragraph.split("|"):
            for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(cell.split())):
                yield re.findall(r"[\w'-]+", sentence.lower())


def words(text):
    """The words of a page: what has a letter, outside of blocks and addresses."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [word for word in text.split() if re.search("[A-Za-z]", word)]


def test_sentences_are_found_without_marks_links_and_blocks():
    text = "One [link](a.md) here. Two\nlines; three.\n\n```sh\nnot this\n```\n| cell | other |\n"
    assert [" ".join(found) for found in sentences(text) if found] == [
        "one link here",
        "two lines",
        "three",
        "cell",
        "other",
    ]


def test_no_long_sentence_stands_twice():
    places = defaultdict(list)
    for page in PAGES:
        if page.name not in GENERATED:
            for found in sentences(page.read_text("utf-8")):
                if len(found) > LONGEST:
                    places[" ".join(found)].append(str(page.relative_to(ROOT)))
    assert {text: pages for text, pages in places.items() if len(pages) > 1} == {}


def test_the_documentation_of_the_product_can_be_read():
    """Without Research, the pages of losses, and what is generated."""
    product = [
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        if page.name not in (*RESEARCH, "configuration.md")
    ]
    counts = {page.name: len(words(page.read_text("utf-8"))) for page in product}
    assert sum(counts.values()) <= MOST_WORDS, counts
    assert len(counts) <= MOST_PAGES, sorted(counts)


def test_each_page_of_research_says_its_commit_and_data():
    for name in RESEARCH:
        opening = (ROOT / "docs" / name).read_text("utf-8")[:1500]
        assert re.search(r"\*\*Commit\*\*: `[0-9a-f]{8}`.*\*\*Data\*\*: ", opening, re.S), name


def test_each_page_opens_with_what_one_can_do_after_it():
    """But for lists: of pages, of answers, of steps."""
    lists = {"README.md", "asked.md", "decisions.md", "releasing.md", "configuration.md", *RESEARCH}
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name not in lists:
            _, _, opening = page.read_text("utf-8")[:400].partition("\n")
            assert opening.strip().startswith("After this page you "), page.name
