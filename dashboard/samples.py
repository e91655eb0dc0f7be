"""The samples of one evaluation: filtered, one or two beside each other, with the verdict and why.

Used wherever there are samples: of checkpoints, of evaluations by hand and of imported ones.
"""

import re
from pathlib import Path

import pandas
import streamlit as st

from dashboard.view import cached
from dashboard.widgets import choose, choose_row, show_text
from rpg.store import StoreError
from rpg.store.samples import SECOND, read_samples, unread_form

ROWS = 200
"""Samples per table."""
PREVIEW = 300
"""Characters of a text in the table."""
COLUMNS = "problem_id sample correct extracted answer reason tokens problem response".split()
SHOWN = ["all", "right", "wrong", "unread", "truncated"]
ORDERS = ["as stored", "longest first", "shortest first"]
NONE = "no other"

_MATHEMATICS = re.compile(
    r"\$\$(?P<display>.+?)\$\$|\\\[(?P<bracket>.+?)\\\]|\\\((?P<round>.+?)\\\)"
    r"|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$",
    re.DOTALL,
)
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_ADDRESS = re.compile(r"(https?|www)", re.IGNORECASE)
_BREAK = "\u2060"
"""A word joiner, which nobody sees and which keeps Markdown from making a link of an address."""


def read(path: Path) -> pandas.DataFrame:
    """The graded samples of a file, cached until it changes. Raises StoreError: the file is missing
    or cannot be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _read(str(path), status.st_mtime_ns, status.st_size)


@cached(8)
def _read(path: str, changed: int, size: int) -> pandas.DataFrame:  # noqa: ARG001 (parts of the key)
    return read_samples(Path(path)).to_pandas()


def browse(samples: pandas.DataFrame) -> None:
    """Filters, the table of samples, and the chosen one, with another beside it if one is chosen.
    All of the choice is in the address."""
    first, second, third = st.columns([1, 1, 2])
    kind = choose("Show", SHOWN, "show", "all", column=first)
    order = choose("Order", ORDERS, "order", ORDERS[0], column=second)
    words = third.text_input(
        "Search in problem, response and answer", key="search", bind="query-params"
    )
    matches = ordered(matching(samples, kind, words or ""), order)
    cut = f", the first {ROWS} are shown" if len(matches) > ROWS else ""
    st.text(f"{len(matches)} of {len(samples)} samples{cut}")
    shown = matches.head(ROWS)
    preview = shown.assign(
        **{name: shown[name].str.slice(0, PREVIEW) for name in ("problem", "response")}
    )
    names = [f"{row.problem_id}/{row.sample}" for row in shown.itertuples()]
    place = choose_row(preview[COLUMNS], names, "sample")
    if not names:
        return
    chosen = shown.iloc[place]
    left, right = st.columns(2)
    typeset = left.toggle("Typeset mathematics", key="typeset", persist_state="session")
    of_problem = samples[samples["problem_id"] == chosen["problem_id"]]
    others = [str(number) for number in of_problem["sample"] if number != chosen["sample"]]
    other = choose("Beside it, of the same problem", [NONE, *others], "beside", NONE, column=right)
    st.caption("Problem")
    _text(chosen["problem"], "problem", typeset)
    beside = [] if other == NONE else [of_problem[of_problem["sample"] == int(other)].iloc[0]]
    sides = [chosen, *beside]
    for column, sample in zip(st.columns(len(sides)), sides, strict=True):
        with column:
            _show(sample, typeset)


def matching(samples: pandas.DataFrame, kind: str, words: str) -> pandas.DataFrame:
    """Samples of a kind that contain `words` in one of their texts, ignoring case."""
    verdicts = zip(samples["correct"], samples["reason"], strict=True)
    keep = {
        "all": samples["correct"] | True,
        "right": samples["correct"],
        "wrong": ~samples["correct"],
        "unread": [unread_form(*each) is not None for each in verdicts],
        "truncated": samples["truncated"],
    }[kind]
    if words:
        texts = ("problem_id", "problem", "response", "answer", "extracted")
        hits = [
            samples[name].fillna("").str.contains(words, case=False, regex=False) for name in texts
        ]
        keep = keep & pandas.concat(hits, axis=1).any(axis=1)
    return samples[keep]


def ordered(samples: pandas.DataFrame, order: str) -> pandas.DataFrame:
    """By length in tokens, or as they are stored."""
    if order == ORDERS[0]:
        return samples
    return samples.sort_values("tokens", ascending=order == ORDERS[2], kind="stable")


def typeset_markdown(text: str) -> str:
    """A text as Markdown in which only its mathematics ($...$, $$...$$, \\(...\\), \\[...\\]) means
    anything; everything else stands there as it is written. KaTeX loads nothing and makes no links.
    """
    parts = []
    end = 0
    for match in _MATHEMATICS.finditer(text):
        parts.append(_literal(text[end : match.start()]))
        formula = next(group for group in match.groups() if group is not None)
        display = match["display"] or match["bracket"]
        # KaTeX knows no dollar within a formula, nor may the formula end early.
        formula = " ".join(formula.replace("$", r"\text{\textdollar}").split())
        parts.append(f"\n\n$$\n{formula}\n$$\n\n" if display else f"${formula}$")
        end = match.end()
    parts.append(_literal(text[end:]))
    return "".join(parts).lstrip()


def _literal(text: str) -> str:
    escaped = _PUNCTUATION.sub(r"\\\1", text)
    escaped = _ADDRESS.sub(lambda found: found[0][:2] + _BREAK + found[0][2:], escaped)
    # Two blanks at an end keep the line; blanks at a beginning would make code of it.
    first, *others = escaped.split("\n")
    return "  \n".join([first, *(line.lstrip(" \t") for line in others)])


def _show(sample: pandas.Series, typeset: bool) -> None:
    verdict = "right" if sample["correct"] else "wrong"
    second = sample.get(SECOND)
    if pandas.notna(second):
        verdict += f", {'right' if second else 'wrong'} to the second reader"
    st.text(
        f"{sample['problem_id']}, sample {sample['sample']}: {verdict} ({sample['reason']}); "
        f"extracted {sample['extracted']!r}, expected {sample['answer']!r}; "
        f"{sample['tokens']} tokens" + (", truncated" if sample["truncated"] else "")
    )
    st.caption("Response")
    _text(sample["response"], f"response {sample['sample']}", typeset)


def _text(text: str, name: str, typeset: bool) -> None:
    """A text of a data set or a model, with a button for the whole of it if it is cut off."""
    if show_text(text, typeset_markdown if typeset else None):
        whole = f"Whole {name}"
        st.download_button(whole, text, f"{name}.txt", on_click="ignore", key=whole)
