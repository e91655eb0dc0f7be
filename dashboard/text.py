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


def show_warnings(lines: Sequence[str]) -> None:
    """What could not be read; many lines are folded."""
    show_notices(lines, "files or lines could not be read")


def show_notices(lines: Sequence[str], what: str) -> None:
    """A line each; more than three are folded under how many there are of `what`."""
    with st.expander(f"{len(lines)} {what}") if len(lines) > 3 else st.container():
        for line in lines:
            notice(line)


def show_mathematics(text: str) -> None:
    """Text of a data set or of a model, its formulas set; nothing else in it is markup."""
    st.markdown(mathematics(text))


def mathematics(text: str) -> str:
    """Markdown that shows the text as it is, with what stands between $, $$, \\( \\) and \\[ \\] as formulas."""
    parts = []
    end = 0
    for found in _FORMULA.finditer(text):
        formula = next(group for group in found.groups() if group is not None).strip()
        parts.append(_plain(text[end : found.start()]))
        shown = " ".join(formula.split()).replace("$", r"\$")
        parts.append(f"${shown}$" if shown else _plain(found.group()))
        end = found.end()
    return "".join([*parts, _plain(text[end:])]).strip()


def _plain(text: str) -> str:
    """Every mark escaped, so that no link, image, directive or HTML comes of it; line breaks kept."""
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)
    return re.sub(r"[ \t]*\n[ \t]*", "  \n", escaped)  # a line that begins with four blanks would be code


_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\d$])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)


def show_grid(grid: Grid, prose: bool = False, links: Mapping[str, str] | None = None) -> None:
    """A table; every text is escaped. `prose`: no numbers. `links`: where the first cell of a row leads."""
    kinds = {"better": "better", "worse": "worse", "within noise": "noise"}
    st.html(_TABLE.render(grid=grid, kinds=kinds, prose=prose, dark=dark(), links=links or {}))


def dark() -> bool:
    """Whether the reader's browser shows the page on a dark ground."""
    return bool(st.context.theme.type == "dark")
