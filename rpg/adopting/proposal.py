"""Columns, a verifier and a split for a source's rows, found by trying; written as files to train from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from rpg.adopting.sources import DATA, Source
from rpg.config.load import assign
from rpg.config.task import MarkerVerifier, MathVerifier, RewardVerifier, Verifier
from rpg.errors import UserError
from rpg.rewards import Item, grader_for
from rpg.tasks.checks import WORKED
from rpg.tasks.problems import DataError
from rpg.tasks.rows import asked, hub_rows, read_rows, text_of, value_at

PROMPTS = "prompt question problem messages input instruction query text".split()
ANSWERS = "reward_model.ground_truth answer gold target ground_truth final_answer solution label output response".split()
LOOKED_AT = 400
"""Rows from which columns and the verifier are chosen."""
_WARM = {"target_accuracy": 0.0, "consolidation_steps": 300, "behaviour_steps": 100}
"""Of a tiny model that learns from demonstrations: 400 steps, whatever it can answer then."""
Row = dict[str, Any]


def propose(source: Source, folder: Path, model: str | None) -> tuple[str, list[str]]:
    """Write the usable rows, run.yaml and sweep.yaml into a new folder. Returns what was chosen, and a line for each row that
    cannot be used. Raises UserError: no column holds prompts, or no row can be used."""
    bad: list[DataError] = []
    train, held_out = (
        list(chain.from_iterable(_rows(name, bad) for name in names))
        for names in (source.train, source.held_out)
    )
    columns = _columns(source, [row for _, row in train[:LOOKED_AT]])
    train, held_out = (
        [_checked(row, columns, where, bad) for where, row in rows] for rows in (train, held_out)
    )
    train, held_out = ([row for row in rows if row] for rows in (train, held_out))
    if not source.held_out:  # a tenth, by the text of the problem: its repeats stay together
        digests = [
            hashlib.sha256(str(value_at(row, columns["prompt"])).encode()).digest()[0] for row in train
        ]
        held_out = [row for row, digest in zip(train, digests, strict=True) if digest < 26]
        train = [row for row, digest in zip(train, digests, strict=True) if digest >= 26]
    if not train or not held_out:
        raise UserError(
            f"{source.name}: {len(train)} rows to train on, {len(held_out)} to hold out; unusable: {len(bad)}"
        )
    golds = (
        [text_of(row, columns["answer"], "") or "" for row in train[:LOOKED_AT]]
        if "answer" in columns
        else []
    )
    verifier, tried = _verifier(golds, source)
    run = _run(source, train, columns, verifier, model)
    folder.mkdir(parents=True)
    for name, rows in (("train", train), ("held-out", held_out)):
        shown = (
            [row | {"prompt": _messages(source, row, columns["prompt"])} for row in rows]
            if source.template
            else rows
        )
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in shown)
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    (folder / "unusable.txt").write_text("".join(f"{error}\n" for error in bad), "utf-8")
    if source.code:
        (folder / "adopted_rewards.py").write_text(
            f"# From {source.name}, as they were.\n\n{source.code}\n", "utf-8"
        )
    _yaml(source, folder, run, tried)
    return f"{', '.join(f'{k} is {v}' for k, v in columns.items())}\nverifiers: {tried}", [
        str(error) for error in bad
    ]


def _rows(name: str, bad: list[DataError]) -> Iterator[tuple[str, Row]]:
    if Path(name).suffix.lower() in DATA:
        return read_rows(Path(name).expanduser(), bad=bad)
    return hub_rows("rpg adopt", name, (None,), "train", None, otherwise="; or adopt the rows as a file")


def _checked(row: Row, columns: Mapping[str, str], where: str, bad: list[DataError]) -> Row | None:
    try:
        for name in ("prompt", "answer"):
            column = columns.get(name)
            if not column or isinstance(value_at(row, column), list) and asked(value_at(row, column), where):
                continue
            if text_of(row, column, where) is None:
                raise DataError(f"{where}: column {column}: nothing there")
        return row
    except DataError as error:
        bad.append(error)
        return None


def _columns(source: Source, rows: list[Row]) -> dict[str, str]:
    """prompt, answer and demonstration -> column expressions that most rows have."""

    def has(column: str, ending: str = "") -> bool:
        values = [str(value_at(row, column) or "") for row in rows]
        return sum(ending in value and value != "" for value in values) > len(rows) / 2

    prompt = next((name for name in filter(None, [source.prompt, *PROMPTS]) if has(name)), None)
    if prompt is None:
        there = ", ".join(dict.fromkeys(name for row in rows for name in row)) or "none"
        raise UserError(
            f"{source.name}: no column holds prompts; expected one of {', '.join(PROMPTS)}; columns: {there}"
        )
    answer = next((name for name in ANSWERS if name != prompt and has(name)), None)
    if answer is None:
        return {"prompt": prompt}
    forms = ((WORKED, f'after("{WORKED}", {answer})'), ("\\boxed{", f"boxed({answer})"))
    form = next((form for ending, form in forms if has(answer, ending)), None)
    return {"prompt": prompt, "answer": form or answer, **({"demonstration": answer} if form else {})}


def _verifier(golds: list[str], source: Source) -> tuple[Verifier, str]:
    """The verifier that best accepts the golds as answers, and not those of other problems; and what was measured."""
    if not golds:
        return RewardVerifier(
            type="reward", at_least=0.5
        ), "no answers: a reward of 0.5 or more counts as right"
    marker = WORKED if WORKED in f"{source.system} {source.template} {source.code}" else "Answer:"
    candidates: dict[str, Verifier] = {
        "number": MarkerVerifier(marker=marker, match="number"), "math": MathVerifier(fallback="boxed"),
        "text": MarkerVerifier(marker=marker),
    }  # fmt: skip
    others = [next((other for other in golds if other != gold), "") for gold in golds]
    scores: dict[str, tuple[float, float]] = {}
    for name, verifier in candidates.items():
        with grader_for(verifier) as grader:
            grades = [
                [grade.correct for grade in grader.grade([Item(verifier.written(a), g) for a, g in zip(texts, golds, strict=True)])]
                for texts in (golds, others)
            ]  # fmt: skip
        scores[name] = sum(grades[0]) / len(golds), sum(grades[1]) / len(golds)
    best = max(scores, key=lambda name: round(scores[name][0] - scores[name][1], 2))
    told = (
        f"{name} accepts {right:.0%} of the answers, {wrong:.0%} of wrong ones"
        for name, (right, wrong) in scores.items()
    )
    return candidates[best], f"{best} is chosen; {'; '.join(told)}"


def _messages(source: Source, row: Row, column: str) -> list[dict[str, str]]:
    user = {
        "role": "user",
        "content": (source.template or "").replace("{prompt}", str(value_at(row, column))),
    }
    return [*([{"role": "system", "content": source.system}] if source.system else []), user]


def _run(
    source: Source, rows: list[Row], columns: dict[str, str], verifier: Verifier, model: str | None
) -> Row:
    path = model or source.settings.get("model.path")
    path = str(Path(path).resolve()) if path and Path(path).is_dir() else path
    task = {"type": "file", "train": "train.jsonl", "benchmarks": {"held-out": "held-out.jsonl"}}
    checked = verifier.model_dump(mode="json", exclude_defaults=True) | {"type": verifier.type}
    run: Row = {
        "task": {
            **task,
            "columns": columns | ({"prompt": "prompt"} if source.template else {}),
            "verifier": checked,
        }
    }
    if source.rewards:
        parts = source.rewards.items()
        run["reward"] = [
            {"type": "python", "function": f"adopted_rewards:{name}", "weight": weight}
            for name, weight in parts
        ]
    run |= {
        "model": {"type": "pretrained", "path": path},
        "algorithm": {"name": "grpo"},
        "training": {"steps": 12, "prompts_per_step": 32, "mini_batch_prompts": 8},
        "rollout": {"group_size": 8, "max_prompt_tokens": 256, "max_response_tokens": 256},
        "evaluation": {"every": 4, "samples_per_problem": 4},
    }
    if not path:  # a model of characters, made from scratch
        longest = {name: max(len(str(value_at(row, name))) for row in rows) for name in _plain(columns)}
        sizes = longest[columns["prompt"]] + 16, longest.get(columns.get("demonstration", ""), 16) + 16
        run["rollout"] |= dict(zip(("max_prompt_tokens", "max_response_tokens"), sizes, strict=True))
        warm = _WARM if "demonstration" in columns else None
        run["model"] = {"type": "tiny", "max_positions": sum(sizes) + 16, "warm_start": warm}
    for dotted, value in source.settings.items():
        if dotted != "model.path":
            assign(run, dotted, value, source.name)
    run["evaluation"]["every"] = min(4, run["training"]["steps"])
    return run


def _plain(columns: Mapping[str, str]) -> Iterable[str]:
    return [columns[name] for name in ("prompt", "demonstration") if name in columns]


def _yaml(source: Source, folder: Path, run: Row, tried: str) -> None:
    """run.yaml and sweep.yaml, with what was chosen and what was not taken over as comments."""
    comments = {"task": tried, "reward": "copied from the script as they were", "rollout": "lengths are in tokens",
                "model": "any other: {type: pretrained, path: Qwen/Qwen3-0.6B}"}  # fmt: skip
    algorithm = run.pop("algorithm")
    text = f"Proposed by `rpg adopt` from {source.name}; every line can be changed."
    text = "".join(f"# {' '.join(line.split())}\n" for line in [text, *source.remarks])
    for name, section in run.items():
        text += f"\n# {comments[name]}\n" if name in comments else "\n"
        text += yaml.safe_dump({name: section}, sort_keys=False, allow_unicode=True, width=110)
    (folder / "run.yaml").write_text(text, "utf-8")
    axes = {
        "algorithm": [algorithm if len(algorithm) > 1 else algorithm["name"], "rpg-reinforce-urkl"],
        "seed": [0, 1, 2],
    }
    sweep = {"name": folder.resolve().name, "base": "run.yaml", "baseline": algorithm["name"], "axes": axes}
    text = "# Two algorithms, three seeds, compared on the held-out problems.\n" + yaml.safe_dump(
        sweep, sort_keys=False
    )
    (folder / "sweep.yaml").write_text(text, "utf-8")
