"""Columns, a template, a verifier and a split for a source's rows, found by trying; written as
files to train from."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rpg.config.load import assign
from rpg.config.task import RECIPE_TEMPLATE, MathVerifier, RewardVerifier, Verifier
from rpg.errors import UserError
from rpg.interop.adopting.problem_columns import CHOSEN, Columns, find_columns, join, parsed_texts
from rpg.interop.adopting.sources import HUB
from rpg.interop.adopting.taken_over import Source
from rpg.interop.adopting.verifier_choice import candidates, choose
from rpg.tasks.checks import WORKED
from rpg.tasks.problems import DataError, Problem
from rpg.tasks.rows import asked, hub_rows, read_rows, text_of, value_at

LOOKED_AT = 400
"""Rows from which columns and the verifier are chosen."""
LISTED = 20
SHOWN_PROMPTS = 8
_WARM = {"target_accuracy": 0.0, "consolidation_steps": 300, "behaviour_steps": 100}
"""Of a tiny model that learns from demonstrations: 400 steps, whatever it can answer then."""
_COMMENTS = {
    "reward": "adopted_rewards.py has these functions and what they name, copied from the script; "
    "training runs them",
    "rollout": "lengths are in tokens",
    "model": "any other: {type: pretrained, path: Qwen/Qwen3-0.6B}",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Proposal:
    """What was chosen: the columns, the rules by which they become a problem, and the verifier with
    what was measured; `unusable` has a line for each row that cannot be used."""

    columns: Columns
    verifier: str
    unusable: list[str]

    def sentences(self) -> list[str]:
        """First what is left out of the prompts."""
        expressions = self.columns.expressions()
        lines = []
        if self.columns.unused:
            lines.append(f"not used, with text: {', '.join(self.columns.unused)}")
        lines.append(", ".join(f"{name} is {column}" for name, column in expressions.items()))
        lines += self.columns.rules
        lines.append(f"verifier: {self.verifier}")
        return lines


def propose(source: Source, folder: Path, model: str | None) -> Proposal:
    """Write the usable rows, run.yaml and sweep.yaml into a new folder. Raises UserError: no column
    holds prompts, nothing says what is right, or no row can be used."""
    bad: list[DataError] = []
    train_rows = [row for name in source.train for row in _rows(name, bad)]
    held_out_rows = [row for name in source.held_out for row in _rows(name, bad)]
    every_row = [row for _, row in [*train_rows, *held_out_rows]]
    parsed = parsed_texts(every_row)
    columns = find_columns(
        source.name,
        [row for _, row in train_rows[:LOOKED_AT]],
        source.prompt,
        bool(source.rewards or source.reward_models),
        _listed(bad),
    )
    columns.rules.extend(f"column {name}: JSON that was stored as text is read" for name in parsed)
    train = _usable_rows(train_rows, columns, bad)
    held_out = _usable_rows(held_out_rows, columns, bad)
    if not source.held_out:
        train, held_out = _split(train, columns.prompt)
    if not train or not held_out:
        counts = f"{len(train)} rows to train on, {len(held_out)} to hold out"
        raise UserError(f"{source.name}: {counts}; at least one each is needed{_listed(bad)}")
    named = source.settings.pop("model.path", None)
    model = model or named
    verifier, template, measured = _verifier(source, train[:LOOKED_AT], columns, model)
    run = _run(source, train, columns, model, template)
    settings = verifier.model_dump(mode="json", exclude_defaults=True)
    run["task"]["verifier"] = {"type": verifier.type} | settings
    proposal = Proposal(columns, measured, [str(error) for error in bad])
    folder.mkdir(parents=True)
    _write_rows(source, folder / "train.jsonl", train, columns.prompt)
    _write_rows(source, folder / "held-out.jsonl", held_out, columns.prompt)
    if source.code:
        code = f'"""Copied by `rpg adopt`."""\n\n{source.code}\n'
        (folder / "adopted_rewards.py").write_text(code, "utf-8")
    _write_yaml(source, folder, run, proposal)
    return proposal


def _usable_rows(rows: list[tuple[str, Row]], columns: Columns, bad: list[DataError]) -> list[Row]:
    joined = [(where, join(columns, row)) for where, row in rows]
    return [row for where, row in joined if _usable(row, columns, where, bad)]


def _write_rows(source: Source, path: Path, rows: list[Row], prompt: str) -> None:
    lines = []
    for row in rows:
        written = row
        if source.template:
            written = row | {"prompt": _messages(source, row, prompt)}
        lines.append(json.dumps(written, ensure_ascii=False, default=_as_json) + "\n")
    path.write_text("".join(lines), "utf-8", newline="\n")


def _as_json(value: Any) -> str:
    """Values that JSON does not have: decimals and bytes as their text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def shown_prompts(problems: Sequence[Problem]) -> list[str]:
    """Whole prompts of a few problems, with their answers, for somebody to look at."""
    lines = []
    for number, problem in enumerate(problems[:SHOWN_PROMPTS], 1):
        lines.append(f"--- prompt {number}, answer {problem.answer!r}")
        conversation = problem.conversation()
        for message in conversation:
            role = f"{message['role']}: " if len(conversation) > 1 else ""
            lines.append(f"{role}{message['content']}")
    return lines


def _rows(name: str, bad: list[DataError]) -> Iterator[tuple[str, Row]]:
    hub = HUB.fullmatch(name)
    if hub and not Path(name).exists():
        hint = "; or adopt its rows as a file"
        return hub_rows(
            "rpg adopt", hub[1], (hub[2] or None,), hub[3] or "train", None, otherwise=hint
        )
    return read_rows(Path(name).expanduser(), bad=bad)


def _listed(bad: list[DataError]) -> str:
    more = [f"... and {len(bad) - LISTED} more"] if len(bad) > LISTED else []
    return "".join(f"\n  {line}" for line in [*bad[:LISTED], *more])


def _usable(row: Row, columns: Columns, where: str, bad: list[DataError]) -> bool:
    needed = [columns.prompt] if columns.answer is None else [columns.prompt, columns.answer]
    try:
        for column in needed:
            value = value_at(row, column)
            if isinstance(value, list) and column == columns.prompt:
                asked(value, where)
            elif column == CHOSEN and value is None:
                raise DataError(
                    f"{where}: column {columns.named_by}: "
                    f"{value_at(row, columns.named_by or '')!r} names none of the choices"
                )
            elif text_of(row, column, where) is None:
                raise DataError(f"{where}: column {column}: nothing there")
    except DataError as error:
        bad.append(error)
        return False
    return True


def _split(rows: list[Row], prompt: str) -> tuple[list[Row], list[Row]]:
    """A tenth of the problems is held out, by the digest of their text: repeats of a problem stay
    together."""
    texts = (" ".join(str(value_at(row, prompt)).split()) for row in rows)
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    problems = sorted(set(digests))
    chosen = set(problems[: max(1, len(problems) // 10)])
    parts: tuple[list[Row], list[Row]] = ([], [])
    for row, digest in zip(rows, digests, strict=True):
        parts[digest in chosen].append(row)
    return parts


def _verifier(
    source: Source, rows: list[Row], columns: Columns, model: str | None
) -> tuple[Verifier, str | None, str]:
    """The verifier that fits the golds best; a template that asks for what it reads, unless the
    prompts do or a tiny model learns it from demonstrations; and what was measured."""
    if columns.answer is None:
        measured = "no answers: a reward of 0.5 or more counts as right"
        return RewardVerifier(type="reward", at_least=0.5), None, measured
    golds = [text_of(row, columns.answer, "") or "" for row in rows]
    asked_for = _asked_for(source, rows, columns)
    marker = WORKED if WORKED in (asked_for or columns.answer) else "Answer:"
    verifiers = candidates(golds, marker)
    boxed = asked_for[:1] == ["\\boxed"] or (not model and columns.answer.startswith("boxed"))
    if columns.choices:
        verifiers = {"text": verifiers["text"]}
    elif boxed:
        verifiers = {"math": MathVerifier(fallback="boxed")}
    best, measured = choose(verifiers, golds)
    template = None
    if model and not asked_for and not source.template:
        what = "letter of the right choice" if columns.choices else "answer"
        asks = f'{{prompt}}\nThe last line of your response should be "{marker}" and the {what}.'
        template = RECIPE_TEMPLATE if best == "math" else asks
    return verifiers[best], template, measured


def _asked_for(source: Source, rows: list[Row], columns: Columns) -> list[str]:
    """The forms of an answer that most prompts ask for."""
    script = f"{source.system} {source.template} {source.code}"
    prompts = [f"{script} {value_at(row, columns.prompt)}" for row in rows]
    asked_for = []
    for word in (WORKED, "\\boxed", "Answer:"):
        count = sum(word in prompt for prompt in prompts)
        if 2 * count > len(prompts):
            asked_for.append(word)
    return asked_for


def _messages(source: Source, row: Row, column: str) -> list[dict[str, str]]:
    """The conversation that the script makes of a row."""
    user = (source.template or "").replace("{prompt}", str(value_at(row, column)))
    system = [{"role": "system", "content": source.system}] if source.system else []
    return [*system, {"role": "user", "content": user}]


def _run(
    source: Source, rows: list[Row], columns: Columns, path: str | None, template: str | None
) -> Row:
    """The sections of run.yaml, and `algorithm`."""
    task: Row = {
        "type": "file",
        "train": "train.jsonl",
        "benchmarks": {"held-out": "held-out.jsonl"},
    }
    expressions = columns.expressions()
    task["columns"] = expressions | ({"prompt": "prompt"} if source.template else {})
    if template:
        task["template"] = template
    texts = {name: column for name, column in expressions.items() if name != "answer"}
    longest = {
        name: max(len(str(value_at(row, column))) for row in rows) for name, column in texts.items()
    }
    prompt = (
        longest["prompt"] + len(f"{source.system or ''}{source.template or template or ''}") + 64
    )
    local = str(Path(path).resolve()) if path and Path(path).is_dir() else path
    run: Row = {
        "task": task,
        "model": {"type": "pretrained", "path": local},
        "algorithm": {"name": "grpo"},
        "training": {"steps": 12, "prompts_per_step": 32, "mini_batch_prompts": 8},
        # A token has at least two characters, on average over a prompt.
        "rollout": {
            "group_size": 8,
            "max_prompt_tokens": max(256, prompt // 2),
            "max_response_tokens": 256,
        },
        "evaluation": {"every": 4, "samples_per_problem": 4},
    }
    rewards = [
        {"type": "python", "function": f"adopted_rewards:{name}", "weight": weight}
        for name, weight in source.rewards.items()
    ]
    rewards += [
        {"type": "model", "path": name, "weight": weight}
        for name, weight in source.reward_models.items()
    ]
    if rewards:
        run["reward"] = rewards
    if not path:  # a model of characters, made from scratch
        response = longest.get("demonstration", 16) + 16
        run["rollout"] |= {"max_prompt_tokens": prompt, "max_response_tokens": response}
        warm = _WARM if columns.demonstration else None
        run["model"] = {"type": "tiny", "warm_start": warm}
        source.remarks.append(
            "no model is named: a tiny one made from scratch shows that all works; name "
            "yours with --model"
        )
    for dotted, value in source.settings.items():
        assign(run, dotted, value, source.name)
    if not path:
        lengths = (run["rollout"][name] for name in ("max_prompt_tokens", "max_response_tokens"))
        run["model"]["max_positions"] = sum(lengths) + 16
    run["evaluation"]["every"] = min(4, run["training"]["steps"])
    return run


def _write_yaml(source: Source, folder: Path, run: Row, proposal: Proposal) -> None:
    """run.yaml and sweep.yaml, with what was chosen and what was not taken over as comments."""
    algorithm = run["algorithm"]
    remarks = [
        f"Proposed by `rpg adopt` from {source.name}; every line can be changed.",
        *proposal.sentences()[:-1],
        *source.remarks,
    ]
    text = "".join(
        f"# {''.join(filter(str.isprintable, ' '.join(line.split())))}\n" for line in remarks
    )
    for name, section in run.items():
        comment = {"task": f"verifier: {proposal.verifier}"} | _COMMENTS
        text += f"\n# {comment[name]}\n" if name in comment else "\n"
        text += yaml.safe_dump({name: section}, sort_keys=False, allow_unicode=True, width=110)
    (folder / "run.yaml").write_text(text, "utf-8")
    name = (
        re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).strip("-._")[:64] or "adopted"
    )
    ours = algorithm if len(algorithm) > 1 else algorithm["name"]
    axes = {"algorithm": [ours, "rpg-reinforce-urkl"], "seed": [0, 1, 2]}
    sweep = {"name": name, "base": "run.yaml", "baseline": algorithm["name"], "axes": axes}
    text = "# Two algorithms, three seeds, compared on the held-out problems.\n"
    (folder / "sweep.yaml").write_text(text + yaml.safe_dump(sweep, sort_keys=False), "utf-8")
