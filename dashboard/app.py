"""The dashboard: `streamlit run dashboard/app.py`, with the data folder $RPG_HOME. It only reads and needs no network."""

import os
import sys
from pathlib import Path

import streamlit as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # Streamlit adds only the folder of this file

from dashboard import (
    compare_page,
    evaluations_page,
    frontier_page,
    nightly_page,
    overview_page,
    paper_page,
    problems_page,
    run_page,
    studies_page,
    table_page,
    tokens_page,
    why_page,
)
from dashboard.view import freeze_imports, with_results

PAGES = {
    "overview": ("Overview", overview_page.page),
    "compare": ("Compare", compare_page.page),
    "table": ("Table", table_page.page),
    "frontier": ("Frontier", frontier_page.page),
    "problems": ("Problems", problems_page.page),
    "why": ("Why", why_page.page),
    "tokens": ("Tokens", tokens_page.page),
    "paper": ("Paper", paper_page.page),
    "run": ("Run", run_page.page),
    "studies": ("Studies", studies_page.page),
    "evaluations": ("Evaluations", evaluations_page.page),
    "nightly": ("Nightly runs", nightly_page.page),
}


STYLE = """
.stMainBlockContainer { padding-top: 4rem; padding-bottom: 3rem; }
/* Streamlit truncates long names in a selection. */
.stMultiSelect [data-tag] { height: auto; max-width: 100%; }
.stMultiSelect [data-tag] span { white-space: normal; overflow-wrap: anywhere; max-width: none; }
@media (max-width: 640px) { .stMainBlockContainer { padding-left: .8rem; padding-right: .8rem; } }
"""


def main() -> None:
    freeze_imports()
    st.set_page_config(page_title="rpg-lab", layout="wide", initial_sidebar_state="auto")
    st.html(f"<style>{STYLE}</style>")
    pages = [
        st.Page(with_results(page), title=title, url_path=path, default=path == "overview")
        for path, (title, page) in PAGES.items()
    ]
    if logout := os.environ.get("RPG_LOGOUT"):
        st.sidebar.link_button("Log out", logout)
    st.navigation(pages, position="top").run()


main()
