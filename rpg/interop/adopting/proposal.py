"""Columns, a template, a verifier and a split for a source's rows, found by trying; written as
files to train from."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rpg.config.load import assign
from rpg.config.task import RECIPE_TEMPLATE, MarkerVerifier, MathVerifier, RewardVerifier, Verifier
from rpg.errors import UserError
from rpg.interop.adopting.sources import HUB
from rpg.interop.adopting.taken_over import Source
from rpg.tasks.checks import WORKED
from rpg.tasks.problems import DataError
from rpg.tasks.rewards import Item, grader_for
from rpg.tasks.rows import asked, hub_rows, read_rows, text_of, value_at

PROMPTS = "prompt question problem messages input instruction query text".split()
ANSWERS = "reward_model.ground_truth answer gold target ground_truth final_answer solution label output response".split()
LOOKED_AT = 400
"""Rows from which columns and the verifier are chosen."""
LISTED = 20
_WARM = {"target_accuracy": 0.0, "consolidation_steps": 300, "behaviour_steps": 100}
"""Of a tiny model that learns from demonstrations: 400 steps, whatever it can answer then."""
_COMMENTS = {
    "reward": "adopted_rewards.py has these functions and what they name, copied from the script; training runs them",
    "rollout": "lengths are in tokens",
    "model": "any other: {type: pretrained, path: Qwen/Qwen3-0.6B}",
}
Row = dict[str, Any]


def propose(source: Source, folder: Path, model: str | None) -> tuple[str, list[str]]:
    """Write the usable rows, run.yaml and sweep.yaml into a new folder. Returns what was chosen,
    and a line for each row that cannot be used. Raises UserError: no column holds prompts, nothing
    says what is right, or no row can be used."""
    bad: list[DataError] = []
    parts = [
        [row for name in names for row in _rows(name, bad)]
        for names in (source.train, source.held_out)
    ]
    columns = _columns(source, [row for _, row in parts[0][:LOOKED_AT]], bad)
    train, held_out = (
        [row for where, row in rows if _usable(row, columns, where, bad)] for rows in parts
    )
    if not source.held_out:
        train, held_out = _split(train, columns["prompt"])
    if not train or not held_out:
        counts = f"{len(train)} rows to train on, {len(held_out)} to hold out"
        raise UserError(f"{source.name}: {counts}; at least one each is needed{_listed(bad)}")
    named = source.settings.pop("model.path", None)
    model = model or named
    verifier, template, measured = _verifier(source, train[:LOOKED_AT], columns, model)
    run = _run(source, train, columns, model, template)
    settings = verifier.model_dump(mode="json", exclude_defaults=True)
    run["task"]["verifier"] = {"type": verifier.type} | settings
    folder.mkdir(parents=True)
    for name, rows in (("train", train), ("held-out", held_out)):
        if source.template:
            rows = [row | {"prompt": _messages(source, row, columns["prompt"])} for row in rows]
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8", newline="\n")
    if source.code:
        code = f'"""Copied by `rpg adopt`."""\n\n{source.code}\n'
        (folder / "adopted_rewards.py").write_text(code, "utf-8")
    _write_yaml(source, folder, run, measured)
    chosen = ", ".join(f"{name} is {column}" for name, column in columns.items())
    return f"{chosen}\nverifier: {measured}", [str(error) for error in bad]


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


def _usable(row: Row, columns: Mapping[str, str], where: str, bad: list[DataError]) -> bool:
    try:
        for column in (columns[name] for name in ("prompt", "answer") if name in columns):
            if isinstance(value := value_at(row, column), list) and column == columns["prompt"]:
                asked(value, where)
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


def _columns(source: Source, rows: list[Row], bad: list[DataError]) -> dict[str, str]:
    """prompt, answer and demonstration -> column expressions that most rows have."""

    def has(column: str, part: str = "") -> bool:
        values = [str(value) for row in rows if (value := value_at(row, column)) is not None]
        return 2 * sum(part in value and value != "" for value in values) > len(rows)

    prompt = next((name for name in filter(None, [source.prompt, *PROMPTS]) if has(name)), None)
    answer = next((name for name in ANSWERS if name != prompt and has(name)), None)
    if prompt is None or (answer is None and not source.rewards and not source.reward_models):
        answers = ("answers, and no function gives rewards", ANSWERS)
        what, names = ("prompts", PROMPTS) if prompt is None else answers
        existing = ", ".join(dict.fromkeys(name for row in rows for name in row)) or "none"
        raise UserError(
            f"{source.name}: no column holds {what}; looked for {', '.join(names)}; columns: {existing}{_listed(bad)}"
        )
    if answer is None:
        return {"prompt": prompt}
    forms = ((WORKED, f'after("{WORKED}", {answer})'), ("\\boxed{", f"boxed({answer})"))
    form = next((form for part, form in forms if has(answer, part)), None)
    return {
        "prompt": prompt,
        "answer": form or answer,
        **({"demonstration": answer} if form else {}),
    }


def _verifier(
    source: Source, rows: list[Row], columns: dict[str, str], model: str | None
) -> tuple[Verifier, str | None, str]:
    """The first verifier that accepts most of the golds; a template that asks for what it reads,
    unless the prompts do or a tiny model learns it from demonstrations; and what was measured."""
    if "answer" not in columns:
        measured = "no answers: a reward of 0.5 or more counts as right"
        return RewardVerifier(type="reward", at_least=0.5), None, measured
    golds = [text_of(row, columns["answer"], "") or "" for row in rows]
    script = f"{source.system} {source.template} {source.code}"
    prompts = [f"{script} {value_at(row, columns['prompt'])}" for row in rows]
    words = (WORKED, "\\boxed", "Answer:")
    asked_for = [word for word in words if 2 * sum(word in text for text in prompts) > len(prompts)]
    marker = WORKED if WORKED in (asked_for or columns["answer"]) else "Answer:"
    candidates: dict[str, Verifier] = {
        "number": MarkerVerifier(marker=marker, match="number"),
        "math": MathVerifier(fallback="boxed"),
        "text": MarkerVerifier(marker=marker),
    }
    if asked_for[:1] == ["\\boxed"] or (not model and columns["answer"].startswith("boxed")):
        candidates = {"math": candidates["math"]}
    accepted: dict[str, float] = {}
    for name, verifier in candidates.items():
        with grader_for(verifier) as grader:
            grades = grader.grade([Item(verifier.written(gold), gold) for gold in golds])
        accepted[name] = sum(grade.correct for grade in grades) / len(golds)
    best = max(accepted, key=lambda name: round(accepted[name], 2))
    template = None
    if model and not asked_for and not source.template:
        asks = f'{{prompt}}\nThe last line of your response should be "{marker}" and the answer.'
        template = RECIPE_TEMPLATE if best == "math" else asks
    shares = (f"{name} accepts {share:.0%} of the answers" for name, share in accepted.items())
    return candidates[best], template, f"{best} ({', '.join(shares)})"


def _messages(source: Source, row: Row, column: str) -> list[dict[str, str]]:
    """The conversation that the script makes of a row."""
    user = (source.template or "").replace("{prompt}", str(value_at(row, column)))
    system = [{"role": "system", "content": source.system}] if source.system else []
    return [*system, {"role": "user", "content": user}]


def _run(
    source: Source, rows: list[Row], columns: dict[str, str], path: str | None, template: str | None
) -> Row:
    """The sections of run.yaml, and `algorithm`."""
    task: Row = {
        "type": "file",
        "train": "train.jsonl",
        "benchmarks": {"held-out": "held-out.jsonl"},
    }
    task["columns"] = columns | ({"prompt": "prompt"} if source.template else {})
    if template:
        task["template"] = template
    texts = {name: column for name, column in columns.items() if name != "answer"}
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
        warm = _WARM if "demonstration" in columns else None
        run["model"] = {"type": "tiny", "warm_start": warm}
        source.remarks.append(
            "no model is named: a tiny one made from scratch shows that all works; name yours with --model"
        )
    for dotted, value in source.settings.items():
        assign(run, dotted, value, source.name)
    if not path:
        lengths = (run["rollout"][name] for name in ("max_prompt_tokens", "max_response_tokens"))
        run["model"]["max_positions"] = sum(lengths) + 16
    run["evaluation"]["every"] = min(4, run["training"]["steps"])
    return run


def _write_yaml(source: Source, folder: Path, run: Row, measured: str) -> None:
    """run.yaml and sweep.yaml, with what was chosen and what was not taken over as comments."""
    algorithm = run["algorithm"]
    remarks = [
        f"Proposed by `rpg adopt` from {source.name}; every line can be changed.",
        *source.remarks,
    ]
    text = "".join(
        f"# {''.join(filter(str.isprintable, ' '.join(line.split())))}\n" for line in remarks
    )
    for name, section in run.items():
        comment = {"task": f"verifier: {measured}"} | _COMMENTS
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
