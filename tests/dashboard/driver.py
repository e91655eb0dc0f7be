"""Streamlit's own test driver: a page as a fresh session shows it, and what stands on it."""

import pytest

pytest.importorskip("streamlit")
from streamlit.testing.v1 import AppTest

from benchmarks.synthetic import Shape
from rpg.store import atomic_write_json
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


def a_night(layout, day, reward, **more):
    """A night of the shipped set in the data folder."""
    digest = {"spec": "s", "steps": [1], "weights": "w", "samples": {}}
    digest["metrics"] = {"reward": f"{reward:08.4f}"}
    record = {
        "night": f"2026-01-{day:02d}-0123abcd",
        "started": 1.7e9 + 86400 * day,
        "revision": "f" * 40,
        "code": "c",
        "environment": {},
        "values": {"chain / grpo / reward": reward},
        "spread": {"chain / grpo / reward": 0.01},
        "digests": {"chain / grpo / seed 0": digest},
        "failed": {},
        "bits": False,
        "said": "bits are the same",
    }
    atomic_write_json(layout.home / "nightly" / f"{record['night']}.json", record | more)
