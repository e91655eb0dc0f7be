"""The dashboard: `streamlit run dashboard/app.py`, with the data folder $RPG_HOME.

It needs no network. It reads results; all that it writes are people's marks and notes, and that
verdicts were looked at.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # Streamlit adds only the folder of this file

from dashboard.view import freeze_imports, with_results
from dashboard.widgets import dark

# A page of the navigation -> its sections: name in the address -> title. The function `page` of
# dashboard/<name>_page.py draws a section. (A comment, since Streamlit shows strings that stand
# alone in the script that it runs.)
SECTIONS = {
    "Overview": {"overview": "Overview"},
    "Compare": {
        "compare": "Curves",
        "table": "Table",
        "frontier": "Frontier",
        "why": "Why",
        "paper": "Paper",
    },
    "Samples": {"problems": "Problems", "tokens": "Tokens", "evaluations": "Evaluations"},
    "Runs": {"runs": "All runs", "run": "One run"},
    "Studies": {"studies": "Studies"},
    "Nights": {"nightly": "Nights"},
}

STYLE = """
/* For screen readers: the eye finds the same in the tabs above and the selection below. */
.rpgheading {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap;
}
.stMainBlockContainer { padding-top: 4rem; padding-bottom: 3rem; }
/* Streamlit truncates long names in a selection. */
.stMultiSelect [data-tag] { height: auto; max-width: 100%; }
.stMultiSelect [data-tag] span { white-space: normal; overflow-wrap: anywhere; max-width: none; }
/* It also cuts the fifth line of a selection in half: up to fifteen lines are shown whole. */
.stMultiSelect :has(> [data-testid=stMultiSelectTagsContainer]) { max-height: 27rem; }
/* A table would be as narrow as the button that opens it. */
[data-testid=stPopoverBody]:has([data-testid=stDataFrame]) {
  width: min(70rem, 94vw); max-width: none;
}
@media (max-width: 640px) { .stMainBlockContainer { padding-left: .8rem; padding-right: .8rem; } }
"""

STYLE_ON_DARK = """
/* The colour of a selection, on which white can be read, is too dark for text on a dark page. */
.stButtonGroup button[aria-checked=true] p { color: #7CB7FF; }
"""


def main() -> None:
    names = [name for sections in SECTIONS.values() for name in sections]
    drawn_by = {name: import_module(f"dashboard.{name}_page").page for name in names}
    freeze_imports()
    st.set_page_config(layout="wide", initial_sidebar_state="auto")
    st.html(f"<style>{STYLE}{STYLE_ON_DARK if dark() else ''}</style>")
    requested = urlsplit(st.context.url or "").path.rpartition("/")[2]
    pages = {}
    for title, sections in SECTIONS.items():
        # The navigation marks the section that is shown, so that it has to be the page's own.
        front = requested if requested in sections else next(iter(sections))
        for name, section in sections.items():
            pages[name] = st.Page(
                with_results(drawn_by[name], section),
                title=title,
                url_path=name,
                default=name == "overview",
                visibility="visible" if name == front else "hidden",
            )
    logout = os.environ.get("RPG_LOGOUT")
    if logout:
        st.sidebar.link_button("Log out", logout)
    current = st.navigation(list(pages.values()), position="top")
    _link_sections(SECTIONS[current.title], pages)
    current.run()


def _link_sections(sections: dict[str, str], pages: dict[str, st.Page]) -> None:
    if len(sections) < 2:
        return
    with st.container(horizontal=True, key="sections"):
        for name, title in sections.items():
            st.page_link(pages[name], label=title, width="content")


main()
