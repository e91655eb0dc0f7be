"""The page of a comparison."""

import re
from html import escape as html_escape

from rpg.interop.compare import judging, pairing, words
from rpg.interop.compare.page import write_files
from rpg.interop.compare.rows import Choice
from rpg.interop.compare.sources import sources_of


def test_the_page_is_escaped_and_asks_nothing_of_a_network(tmp_path):
    for name, right in (("base", 3), ("tuned", 2)):
        rows = [f"p{at},{int(at % right == 0)}\n" for at in range(30)]
        (tmp_path / f"{name}.csv").write_text("problem,score\n" + "".join(rows))
    arguments = [f"base={tmp_path}/base.csv", f"<script>alert(1)</script>={tmp_path}/tuned.csv"]
    comparison = judging.compare(pairing.pair(sources_of(arguments, Choice())))

    page, *_ = write_files(comparison, tmp_path / "out")
    html = page.read_text()
    assert "<script" not in html
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", html)
    assert "default-src 'none'" in html
    assert html_escape(words.conclusion(comparison)[0]) in html
