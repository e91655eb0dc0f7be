"""The dashboard: `streamlit run dashboard/app.py`, with the data folder $RPG_HOME. It only reads
and needs no network."""

import os
import sys
from importlib import import_module
from pathlib import Path

import streamlit as st

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # Streamlit adds only the folder of this file

from dashboard.view import freeze_imports, with_results

# Name of a page in its address -> its title; the function `page` of dashboard/<name>_page.py draws
# it. (A comment, since Streamlit shows strings that stand alone in the script that it runs.)
NAMES = (
    "overview compare table frontier problems why tokens paper run studies evaluations nightly"
).split()
PAGES = {name: name.capitalize() for name in NAMES} | {"nightly": "Nightly runs"}

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
/* A table would be as narrow as the button that opens it. */
[data-testid=stPopoverBody]:has([data-testid=stDataFrame]) {
  width: min(70rem, 94vw); max-width: none;
}
@media (max-width: 640px) { .stMainBlockContainer { padding-left: .8rem; padding-right: .8rem; } }
"""


def main() -> None:
    drawn_by = {name: import_module(f"dashboard.{name}_page").page for name in PAGES}
    freeze_imports()
    st.set_page_config(layout="wide", initial_sidebar_state="auto")
    st.html(f"<style>{STYLE}</style>")
    pages = [
        st.Page(
            with_results(drawn_by[name], title),
            title=title,
            url_path=name,
            default=name == "overview",
        )
        for name, title in PAGES.items()
    ]
    logout = os.environ.get("RPG_LOGOUT")
    if logout:
        st.sidebar.link_button("Log out", logout)
    st.navigation(pages, position="top").run()


main()
