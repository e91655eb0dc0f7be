"""Widgets whose selection lives in the address of the page, so that a copied link shows the same."""

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

import streamlit as st

from dashboard.text import notice
from dashboard.view import View

T = TypeVar("T")


def choose(label: str, options: Sequence[str], key: str, default: str | None = None) -> str | None:
    """Select one; the selection is always in the URL under `key`, and stays when the page changes."""
    if not options:
        return None
    _begin(label, key, options, [default] if default in options else options[:1], many=False)
    return linked(key, st.selectbox(label, options, key=key, persist_state="session"))


def choose_many(
    label: str, options: Sequence[str], key: str, default: Sequence[str] | None = None
) -> list[str]:
    """Select several (default: all); the selection is always in the URL under `key`."""
    first = [name for name in (options if default is None else default) if name in options]
    _begin(label, key, options, first, many=True)
    return linked(key, st.multiselect(label, options, key=key, persist_state="session"))


def choose_part(options: Sequence[str], key: str, default: str | None = None) -> str:
    """Which part of the page is shown, as buttons in a row; in the URL under `key`."""
    _begin("Part", key, options, [default or options[0]], many=False)
    return linked(
        key, st.segmented_control("Show", options, key=key, required=True, label_visibility="collapsed")
    )


def _begin(label: str, key: str, options: Sequence[str], first: Sequence[str], many: bool) -> None:
    """Give a widget its selection: what it had, else what the link asks for, else `first`.

    What is not there (another sweep has other variants) is left out; if the link asked for it, that is said. Streamlit's
    own binding leaves a widget's default out of the address, so that a copied link would open whatever is the default by
    then.
    """
    state = st.session_state
    wanted = st.query_params.get_all(key) if key not in state else state[key] if many else [state[key]]
    known = [name for name in wanted if name in options]
    if key not in state and len(known) < len(wanted):
        missing = ", ".join(repr(name) for name in wanted if name not in options)
        notice(f"{label}: nothing here is called {missing}; this is what there is instead.")
    chosen = known if known or (many and key in state and not wanted) else list(first)
    state[key] = chosen if many else (chosen or [None])[0]


def linked(key: str, value: T) -> T:
    """Write a value into the address, where a copied link keeps it."""
    texts = [str(one) for one in (value if isinstance(value, list) else [value]) if one not in (None, "")]
    if st.query_params.get_all(key) != texts:
        st.query_params[key] = texts
    return value


def address(page: str, **selection: str) -> str:
    """A link to another page, relative so that it holds behind any host name."""
    return f"./{page}?{urlencode(selection, quote_via=quote)}"


def choose_sweep(view: View) -> str | None:
    sweeps = view.ask("sweeps")["sweep"].tolist()
    return choose("Sweep", sweeps, "sweep")
