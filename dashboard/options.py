"""The options of Streamlit, theme included: every start of the dashboard has the same.

They stand in `.streamlit/config.toml` beside `app.py`, where `streamlit run dashboard/app.py` reads
them. A server that is started by code reads no file, so that it gets them from here.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamlit import config

FILE = Path(__file__).resolve().parent / ".streamlit" / "config.toml"


def shipped_options() -> dict[str, Any]:
    """Dotted name -> value, as in the file."""
    return dict(_flat(tomllib.loads(FILE.read_text("utf-8"))))


def set_options(**server: Any) -> None:
    """Set the shipped options, and those of this server (`port`, `address`, `baseUrlPath`)."""
    for name, value in shipped_options().items():
        config.set_option(name, value)
    for name, value in server.items():
        config.set_option(f"server.{name}", value)


def _flat(section: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{place}{name}.")
        else:
            yield place + name, value
