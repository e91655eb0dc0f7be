"""Streamlit's own test driver: a page as a fresh session shows it, and what stands on it."""

import pytest

pytest.importorskip("streamlit")
from streamlit.testing.v1 import AppTest

from benchmarks.synthetic import Shape
from tests.places import ROOT
from tests.waiting import HANG

PAGES = sorted(path.stem.removesuffix("_page") for path in (ROOT / "dashboard").glob("*_page.py"))
SHAPE = Shape(steps=6, eval_every=3, problems=5, samples=3, benchmarks=("easy", "hard"))
HOSTILE = (
    "<img src=x onerror=window.pwned=1> **[a](http://evil)** $x$ :red[b] '); DROP TABLE runs;--🙂"
)


def show(page, **selection):
    """The page as a fresh session shows it, with a selection in the URL."""
    script = f"from dashboard import {page}_page, view\nview.with_results({page}_page.page)()"
    app = AppTest.from_string(script, default_timeout=HANG)
    for key, value in selection.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception, app.exception[0].message
    return app


def texts(app):
    """All plain texts of the page."""
    return [element.value for element in app.text]


def panels(app):
    """How many charts there are."""
    return len(app.get("vega_lite_chart")) + len(app.get("arrow_vega_lite_chart"))


def markup(app):
    """All HTML of the page (tables and legends)."""
    return "".join(element.proto.body for element in app.get("html"))
