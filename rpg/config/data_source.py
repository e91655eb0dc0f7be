"""Where problems are read from, which columns contain them, and the chat around them: sections that
tasks share."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from rpg.config.section import CODE, NAME, PROBLEMS, Positive, Section, regular_expression

_PLAIN = re.compile(r"[\w.]+")
_FORM = re.compile(
    r"""(boxed|asked|after|regex)\(\s*(?:(["'])(.*)\2\s*,\s*)?([\w.]+)\s*\)""", re.DOTALL
)
FORMS = (
    'a column, a.b for field b of column a, boxed(a), asked(a), after("####", a) or '
    'regex("pattern", a)'
)


def parsed_column(text: str) -> tuple[str, str, str]:
    """(form, its text, column) of a column expression; the form is empty for the column as it is.
    Raises ValueError: not a column expression; the message says what would be accepted."""
    if _PLAIN.fullmatch(text):
        return "", "", text
    match = _FORM.fullmatch(text.strip())
    if match is None or (match[1] in ("after", "regex")) != bool(match[3]):
        raise ValueError(f"expected {FORMS}")
    if match[1] == "regex":
        regular_expression(match[3])
    return match[1], match[3] or "", match[4]


Column = Annotated[str, NAME, AfterValidator(lambda text: parsed_column(text) and text)]
r"""`boxed(column)` is the last `\boxed{...}` of a column; `asked(column)` the user's message of a
conversation, without the paper's prompt around the problem; `after("####", column)` what follows
the last `####`; `regex("pattern", column)` the first group of the first match of the pattern, or
the whole match."""


class FileColumns(Section):
    """Which columns contain what: a name, `a.b`, `boxed(a)`, `after("####", a)` or
    `regex("pattern", a)`."""

    prompt: Column | None = None
    """The problem, as text or as a list of messages with `role` and `content`. Default: `prompt`,
    else `messages`."""
    answer: Column | None = None
    """The correct answer. Default: `answer`. Not needed with `verifier: {type: reward, ...}`."""
    demonstration: Column | None = None
    """A full response, for the warm start of a tiny model. Default: `demonstration`, if there is
    such a column."""
    cluster: Column | None = None
    """What problems share that tend to be solved together: a template, a source, a year. Variants
    are then compared by means per cluster. Default: `cluster`, if there is such a column."""


class DataSource(Section):
    """A file or a data set on the Hugging Face hub from which problems are read."""

    path: Path | None = None
    """A JSON-lines, Parquet or CSV file."""
    hub: Annotated[str, NAME, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")] | None = None
    """Hub id of a data set, e.g. openai/gsm8k; instead of `path`."""
    config: Annotated[str | None, NAME] = None
    """Configuration of the data set on the hub, e.g. main."""
    split: Annotated[str, NAME, Field(min_length=1)] = "train"
    """Split of a data set on the hub; slices such as `train[:500]` work."""
    revision: Annotated[str | None, NAME] = None
    """Commit of the data set; null: the newest at the time."""
    columns: FileColumns | None = None
    """The columns of this source, where they are not those of the task."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """With several sources: how often its problems are sampled, relative to the others. Every
    problem is sampled at least once in a pass over the data."""
    limit: Annotated[Positive, PROBLEMS] | None = None
    """Use only the first problems, this many; a row that repeats one does not count."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if (self.path is None) == (self.hub is None):
            raise ValueError("give either a file (path) or a data set on the hub (hub)")
        if self.hub is None and (self.config or self.revision or self.split != "train"):
            raise ValueError("config, split and revision apply to a data set on the hub (hub) only")
        return self

    def called(self) -> str:
        """For messages: the file, or the hub id with config and split."""
        if self.path is not None:
            return str(self.path)
        return " ".join(
            filter(None, [f"{self.hub}@{self.revision or 'newest'}", self.config, self.split])
        )


class Example(Section):
    """A worked example that is shown before the problem."""

    prompt: Annotated[str, NAME, Field(min_length=1)]
    response: Annotated[str, NAME, Field(min_length=1)]


class Chat(Section):
    """The conversation around a problem that the model is given."""

    system: Annotated[str | None, NAME] = None
    """The system message, used if the data contain none."""
    examples: tuple[Example, ...] = ()
    """Worked examples, each a `prompt` and a `response`, as earlier turns of the conversation."""
    prefix: Annotated[str, NAME] = ""
    """The start of the assistant's turn. It is graded with the response, but not trained on."""
    template: Annotated[str | None, CODE] = None
    """Chat template in Jinja, or a file `*.jinja` containing one, used instead of the tokenizer's.
    """
    options: dict[
        Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")],
        bool | int | float | Annotated[str, NAME],
    ] = {}  # noqa: RUF012 (pydantic copies it)
    """Further variables for the template, e.g. `{enable_thinking: false}` if it can switch thinking
    off."""

    @classmethod
    def own_paths(cls, raw: Any, at: Callable[[Any], Any]) -> Any:
        """Replace a template's file by its text, which is what identifies the run."""
        named = raw.get("template") if isinstance(raw, dict) else None
        if not isinstance(named, str) or not named.endswith(".jinja") or "\n" in named:
            return raw
        try:
            return {**raw, "template": Path(at(named)).read_text("utf-8")}
        except (OSError, UnicodeDecodeError):
            return {**raw, "template": at(named)}  # refused when the section is checked

    @model_validator(mode="after")
    def _is_template(self) -> Self:
        if self.template is not None and "{" not in self.template:
            raise ValueError(
                f"template: {self.template!r} is neither a Jinja template nor a readable file"
            )
        return self
