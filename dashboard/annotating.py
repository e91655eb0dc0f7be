"""Label, tags and notes of a sweep or run: everybody reads them; a page changes them only where it
asks for a password."""

import os
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.view import View
from dashboard.widgets import notice
from rpg.next_steps import command
from rpg.store import Layout, StoreError, notes
from rpg.store.database import build


def show_annotations(view: View, name: str) -> None:
    """What people have added to `SWEEP` or `SWEEP/RUN`, behind a button."""
    folder = view.layout.runs / name
    if not folder.is_dir():  # a run that has not begun
        return
    try:
        record = notes.read_marks(folder)
    except StoreError as error:
        notice(str(error))
        return
    with st.popover(f"Notes ({len(record['notes'])})", width="stretch"):
        for note in record["notes"]:
            st.text(notes.dated(note))
        if "RPG_LOGOUT" not in os.environ:  # whoever reaches loopback may read, and no more
            how = command("tag", name, layout=view.layout)
            st.text(
                f"To rename, tag or hide it: {how} --help, and rpg note; on this page, if rpg "
                "serve was started with --auth"
            )
            return
        # If others have changed label or tags, their fields are new ones; the note that somebody
        # types stays.
        seen = f"{name} {record['label']} {record['tags']}"
        with st.form(f"annotate {name}", border=False):
            st.text_input("Label", record["label"], max_chars=notes.LABEL, key=f"label {seen}")
            heading = f"Tags ({notes.HIDDEN}: left out of lists)"
            st.text_input(heading, " ".join(record["tags"]), key=f"tags {seen}")
            st.text_area("New note", max_chars=notes.NOTE, key=f"note {name}")
            # Called before the page runs again, with what its writer saw.
            st.form_submit_button(
                "Save", on_click=_save, args=(view.layout, folder, record, name, seen)
            )
    problem = st.session_state.pop("not saved", "")
    if problem:
        notice(problem)


def _save(layout: Layout, folder: Path, was: dict[str, Any], name: str, seen: str) -> None:
    """Write the differences from what the writer saw, so that what others have written since
    stays."""
    typed = st.session_state
    label = typed[f"label {seen}"].strip()
    tags = set(typed[f"tags {seen}"].split())
    note = typed[f"note {name}"].strip() or None
    new = None if label == was["label"] else label
    try:
        notes.change(folder, note, tags.difference(was["tags"]), set(was["tags"]) - tags, new)
        typed[f"note {name}"] = ""
        build(layout)
    except StoreError as error:
        typed["not saved"] = str(error)
