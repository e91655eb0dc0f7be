"""Where problems lie, which columns hold them, and what is put around them: sections that tasks share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from rpg.config.section import Positive, Section

_PLAIN = re.compile(r"[\w.]+")
_FORM = re.compile(r"""(boxed|asked|after|regex)\(\s*(?:(["'])(.*)\2\s*,\s*)?([\w.]+)\s*\)""", re.DOTALL)
FORMS = 'a column, a.b for field b of column a, boxed(a), asked(a), after("####", a) or regex("pattern", a)'


def parsed_column(text: str) -> tuple[str, str, str]:
    """(form, its text, column) of a column as people write it; the form is empty for the column as it is.

    Raises:
        ValueError: it is none; the message says what would be accepted.
    """
    if _PLAIN.fullmatch(text):
        return "", "", text
    found = _FORM.fullmatch(text.strip())
    if found is None or (found[1] in ("after", "regex")) != bool(found[3]):
        raise ValueError(f"expected {FORMS}")
    if found[1] == "regex":
        try:
            re.compile(found[3])
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return found[1], found[3] or "", found[4]


def _column(text: str) -> str:
    parsed_column(text)
    return text


Column = Annotated[str, AfterValidator(_column)]
r"""`boxed(column)` is the last `\boxed{...}` of a column; `asked(column)` the user's message of a conversation, without the
words the paper's recipe puts around a problem; `after("####", column)` what follows the last `####`; `regex("pattern",
column)` the first group of the first place where the pattern is found, or all of that place."""


class FileColumns(Section):
    """Which columns of the rows hold what: a name, `a.b`, `boxed(a)`, `after("####", a)` or `regex("pattern", a)`."""

    prompt: Column | None = None
    """The problem, as text or as a list of messages with `role` and `content`. Default: `prompt`, else `messages`."""
    answer: Column | None = None
    """The right answer. Default: `answer`. Not needed with `verifier: {type: reward, ...}`."""
    demonstration: Column | None = None
    """A full response, for the warm start of a tiny model. Default: `demonstration`, where there is one."""


class DataSource(Section):
    """A file, or a data set of the Hugging Face hub, that problems are read from."""

    path: Path | None = None
    """A JSON-lines, Parquet or CSV file."""
    hub: Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")] | None = None
    """Hub id of a data set, e.g. openai/gsm8k; or `path`."""
    config: str | None = None
    """Configuration of the data set on the hub, e.g. main."""
    split: Annotated[str, Field(min_length=1)] = "train"
    """Of a data set on the hub; parts as `train[:500]`."""
    revision: str | None = None
    """Commit of the data set; null is the newest, whatever that is on the day."""
    columns: FileColumns | None = None
    """Instead of the task's columns."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Of several sources: how often its problems are asked, relative to the others. Every problem is asked at least once
    in a pass over the data."""
    limit: Positive | None = None
    """Only so many of its first rows."""

    @model_validator(mode="after")
    def _somewhere(self) -> DataSource:
        if (self.path is None) == (self.hub is None):
            raise ValueError("name a file (path) or a data set of the hub (hub), one of the two")
        if self.hub is None and (self.config or self.revision or self.split != "train"):
            raise ValueError("config, split and revision are for a data set of the hub (hub)")
        return self

    def called(self) -> str:
        """For messages: the file, or the hub id with config and split."""
        if self.path is not None:
            return str(self.path)
        return " ".join(filter(None, [f"{self.hub}@{self.revision or 'newest'}", self.config, self.split]))


class Example(Section):
    """A worked example that is shown before the problem."""

    prompt: Annotated[str, Field(min_length=1)]
    response: Annotated[str, Field(min_length=1)]


class Chat(Section):
    """What stands around a problem in the conversation that the model is given."""

    system: str | None = None
    """The system message, where the data bring none."""
    examples: tuple[Example, ...] = ()
    """Worked examples, each a `prompt` and a `response`, as earlier turns of the conversation."""
    prefix: str = ""
    """How the assistant's turn begins. It is part of what is graded, and not trained on."""
    template: str | None = None
    """Chat template in Jinja, or a file `*.jinja` that holds it, instead of the tokenizer's own."""
    options: dict[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")], bool | int | float | str] = {}  # noqa: RUF012 (pydantic copies it)
    """What the template is told besides, e.g. `{enable_thinking: false}` where it can switch thinking off."""

    @classmethod
    def own_paths(cls, raw: Any, at: Callable[[Any], Any]) -> Any:
        """A template's file becomes its text, which is what makes the run."""
        named = raw.get("template") if isinstance(raw, dict) else None
        if not isinstance(named, str) or not named.endswith(".jinja") or "\n" in named:
            return raw
        try:
            return {**raw, "template": Path(at(named)).read_text("utf-8")}
        except (OSError, UnicodeDecodeError):
            return {**raw, "template": at(named)}  # refused when the section is checked

    @model_validator(mode="after")
    def _is_template(self) -> Chat:
        if self.template is not None and "{" not in self.template:
            raise ValueError(
                f"template: {self.template!r} is no Jinja template, and no file that can be read"
            )
        return self
