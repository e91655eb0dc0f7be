"""Text, tables and notices on a page.

Text from run folders is shown with `st.text`, in data frames, in charts or in escaped HTML, never as Markdown.
"""

import re
from collections.abc import Mapping, Sequence

import jinja2
import streamlit as st

from rpg.report.tables import Grid

HTML = jinja2.Environment(autoescape=True)
_TABLE = HTML.from_string("""
<style>
  .rpg { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
  .rpg th, .rpg td { padding: .28rem .8rem; text-align: right; white-space: nowrap; border: none; }
  .rpg th:first-child, .rpg td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere;
    min-width: 12rem; }
  .rpg thead th { border-top: 2px solid currentColor; border-bottom: 1px solid currentColor; font-weight: 600; }
  .rpg tbody tr:last-child td { border-bottom: 2px solid currentColor; }
  .rpg a { color: inherit; text-decoration: underline dotted; text-underline-offset: 3px; } .rpg .bold { font-weight: 700; }
  .rpg .better { color: {{ '#3fc79a' if dark else '#007a58' }}; font-weight: 600; }
  .rpg .worse { color: {{ '#ff9a5c' if dark else '#b34a00' }}; font-weight: 600; }
  .rpg .noise { opacity: .7; } .rpgscroll { overflow-x: auto; }
  .rpg.prose th, .rpg.prose td { text-align: left; } .rpg.prose td:last-child { white-space: normal; min-width: 16rem; }
</style>
<div class="rpgscroll"><table class="rpg {{ 'prose' if prose }}">
<thead><tr>{% for name in grid.header %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in grid.rows %}<tr>{% for cell in row %}
<td class="{{ 'bold' if cell.bold }} {{ kinds.get(cell.text, '') if not loop.first }}">
{%- if loop.first and cell.text in links -%}
<a href="{{ links[cell.text] }}" target="_self">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}</td>
{% endfor %}</tr>{% endfor %}</tbody></table></div>""")


def notice(text: str) -> None:
    """One line about something that is missing or broken, as plain text."""
    with st.container(border=True):
        st.text(text)


def show_notices(lines: Sequence[str], what: str) -> None:
    """A notice per line; more than three are folded into one entry, "<number> <what>"."""
    with st.expander(f"{len(lines)} {what}") if len(lines) > 3 else st.container():
        for line in lines:
            notice(line)


def show_mathematics(text: str) -> None:
    """Text of a data set or a model with its formulas typeset; nothing else in it is markup."""
    st.markdown(mathematics(text))


def mathematics(text: str) -> str:
    """Markdown that shows the text verbatim, with what $, $$, \\( \\) and \\[ \\] enclose as formulas."""
    parts = []
    end = 0
    for match in _FORMULA.finditer(text):
        formula = next(group for group in match.groups() if group is not None)
        formula = " ".join(formula.split()).replace("$", r"\$")
        parts += [_escaped(text[end : match.start()]), f"${formula}$" if formula else _escaped(match.group())]
        end = match.end()
    return "".join([*parts, _escaped(text[end:])]).strip()


def _escaped(text: str) -> str:
    """Escapes all punctuation, so that nothing becomes a link, image, directive or HTML; keeps line breaks."""
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
    return re.sub(r"[ \t]*\n[ \t]*", "  \n", escaped)  # a line indented by four blanks would be code


_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\d$])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)


def show_grid(grid: Grid, prose: bool = False, links: Mapping[str, str] | None = None) -> None:
    """A table with all text escaped. `prose`: a table without numbers. `links`: targets of first cells."""
    kinds = {"better": "better", "worse": "worse", "within noise": "noise"}
    st.html(_TABLE.render(grid=grid, kinds=kinds, prose=prose, dark=dark(), links=links or {}))


def dark() -> bool:
    """Whether the reader's browser shows the page on a dark background."""
    return bool(st.context.theme.type == "dark")
