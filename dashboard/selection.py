"""Widgets whose selection lives in the address of the page, so that a copied link shows the same."""

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

import streamlit as st

from dashboard.text import notice
from dashboard.view import View

T = TypeVar("T")


def choose(label: str, options: Sequence[str], key: str, default: str | None = None) -> str:
    """Select one option ("" if there is none); it is in the URL under `key` and is kept when the page changes."""
    if not options:
        return ""
    _initialise(label, key, options, [default] if default in options else options[:1], many=False)
    return linked(key, str(st.selectbox(label, options, key=key, persist_state="session")))


def choose_many(
    label: str, options: Sequence[str], key: str, default: Sequence[str] | None = None
) -> list[str]:
    """Select several options (default: all); they are in the URL under `key`."""
    first = [name for name in (options if default is None else default) if name in options]
    _initialise(label, key, options, first, many=True)
    return linked(key, list(st.multiselect(label, options, key=key, persist_state="session")))


def choose_part(options: Sequence[str], key: str, default: str | None = None) -> str:
    """A row of buttons that selects the part of the page to show; in the URL under `key`."""
    _initialise("Part", key, options, [default or options[0]], many=False)
    buttons = st.segmented_control("Show", options, key=key, required=True, label_visibility="collapsed")
    return linked(key, str(buttons))


def _initialise(
    label: str, key: str, options: Sequence[str], default: Sequence[str | None], many: bool
) -> None:
    """Set a widget's selection: its previous one, else the one in the link, else `default`.

    Names that do not exist here (another sweep has other variants) are dropped, with a notice if they came from the link.
    Streamlit's own binding leaves defaults out of the address: a copied link would open whatever the default is by then.
    """
    state = st.session_state
    requested = st.query_params.get_all(key) if key not in state else state[key] if many else [state[key]]
    selected = [name for name in requested if name in options]
    if key not in state and len(selected) < len(requested):
        missing = ", ".join(repr(name) for name in requested if name not in options)
        notice(f"{label}: nothing here is called {missing}; showing something else instead.")
    if not selected and not (many and key in state and not requested):
        selected = list(default)
    state[key] = selected if many else selected[0]


def linked(key: str, value: T) -> T:
    """Write a value into the address, where a copied link keeps it."""
    texts = [str(item) for item in (value if isinstance(value, list) else [value]) if item not in (None, "")]
    if st.query_params.get_all(key) != texts:
        st.query_params[key] = texts
    return value


def address(page: str, **selection: str) -> str:
    """A link to another page; relative, so that it works under any host name."""
    return f"./{page}?{urlencode(selection, quote_via=quote)}"


def choose_sweep(view: View) -> str:
    """Select a sweep; "", with a line on the page, if there is none."""
    sweeps = view.ask("sweeps")["sweep"].tolist()
    if not sweeps:
        st.text("No sweeps yet.")
    return choose("Sweep", sweeps, "sweep")
