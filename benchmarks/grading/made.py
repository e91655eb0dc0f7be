"""Answers made from the gold answers of the benchmarks, graded: speed, mistakes by class, and what
other graders decide."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

from benchmarks.grading.generated import cases as cases_of
from benchmarks.grading.generated import real_golds, sample_golds
from benchmarks.grading.judges import Judge, others, processor_seconds
from benchmarks.grading.variants import equivalents, near_misses
from rpg.answers.typesetting import normalise
from rpg.tasks.benchmarks import benchmark, load_benchmark
from rpg.tasks.rewards import Grader, Item

NAMES = ("aime24", "aime25", "amc23", "minerva_math", "olympiadbench")


def cases(names, data):
    """(benchmark, gold, how it was written, answer, whether it is right)."""
    for name in names:
        for problem in load_benchmark(benchmark(name), folder=data).problems:
            gold = problem.answer
            yield name, gold, "gold", gold, True
            yield from ((name, gold, how, text, True) for how, text in equivalents(gold).items())
            yield from ((name, gold, how, text, False) for how, text in near_misses(gold).items())


def by_math_verify(gold: str, answer: str) -> bool:
    """The library with its default settings, on the same two answers without their typesetting, as
    one formula each."""
    from math_verify import parse, verify

    try:
        return bool(verify(parse(f"${normalise(gold)}$"), parse(f"${normalise(answer)}$")))
    except Exception:  # noqa: BLE001 - math-verify raises many kinds on what it cannot read
        return False


def speed(arguments) -> None:
    rng = random.Random(0)
    pool = list(cases(NAMES, arguments.data))
    chosen = [rng.choice(pool) for _ in range(arguments.answers)]
    items = [(f"Some reasoning.\nAnswer: {text}", gold) for _, gold, _, text, _ in chosen]
    distinct = len({(gold, text) for _, gold, _, text, _ in chosen})
    prepared = processor_seconds()
    with Grader(workers=arguments.workers) as grader:
        began = time.perf_counter()
        grades = grader.grade(items)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        grader.grade(items)
        again = time.perf_counter() - began
    processor = processor_seconds() - prepared
    wrong = sum(grade.correct != case[4] for grade, case in zip(grades, chosen, strict=True))
    sample = rng.sample(chosen, min(arguments.compare, len(chosen)))
    by_math_verify("1", "2")  # its grammar is loaded once
    began = time.perf_counter()
    theirs = sum(by_math_verify(gold, text) != right for _, gold, _, text, right in sample)
    each = (time.perf_counter() - began) / len(sample)
    found = {
        "answers": len(items),
        "distinct pairs": distinct,
        "workers": arguments.workers,
        "processors": os.cpu_count(),
        "seconds": round(seconds, 2),
        "processor seconds": round(processor, 1),
        "seconds when known": round(again, 2),
        "wrong verdicts": wrong,
        "math-verify, seconds for as many": round(each * len(items), 1),
        "math-verify, wrong verdicts in 1,000": round(1000 * theirs / len(sample)),
        "ratio": round(each * len(items) / seconds, 1),
    }
    print(json.dumps(found, indent=1))


def classes(arguments) -> None:
    """Mistakes by class on the answers of benchmarks/grading/generated, and the processor time of
    each distinct answer."""
    golds = real_golds() or sample_golds()
    chosen = cases_of(golds)
    before = processor_seconds()
    with Grader(workers=arguments.workers) as grader:
        grades = grader.grade([(case.response, case.gold) for case in chosen])
    seconds = processor_seconds() - before
    counts, missed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    lines = []
    for case, grade in zip(chosen, grades, strict=True):
        for key in ((case.group, case.kind), (case.group, "all")):
            counts[key] += 1
            missed[key] += grade.correct != case.right
        if grade.correct != case.right:
            lines.append([*case, grade.extracted, grade.reason])
    print("| group | class | answers | mistakes | share |\n|---|---|---|---|---|")
    for (group, kind), count in counts.items():
        wrong = missed[group, kind]
        print(f"| {group} | {kind} | {count} | {wrong} | {100 * wrong / count:.2f} % |")
    print(
        f"{len(chosen)} distinct answers over {len(golds)} gold answers: {seconds:.1f} s of "
        "processor time, "
        f"{1000 * seconds / len(chosen):.2f} ms each"
    )
    if arguments.list:
        Path(arguments.list).write_text("".join(json.dumps(line) + "\n" for line in lines))
        print(f"{len(lines)} mistakes in {arguments.list}")


def disagreements(arguments, judges: dict[str, Judge]) -> None:
    """Where other graders decide otherwise, by class, over a sample of the answers of
    benchmarks/grading/generated."""
    chosen = cases_of(real_golds() or sample_golds())
    rng = random.Random(arguments.seed)
    chosen = rng.sample(chosen, min(arguments.compare, len(chosen)))
    items = [Item(case.response, case.gold) for case in chosen]
    with Grader(workers=arguments.workers) as grader:
        grades = grader.grade(items)
    theirs = {name: others(judge, items).verdicts for name, judge in judges.items()}
    table, lines = Counter[tuple[tuple[str, str], str]](), []
    for number, (case, grade) in enumerate(zip(chosen, grades, strict=True)):
        verdicts = {
            "ours": grade.correct,
            **{name: found[number] for name, found in theirs.items()},
        }
        for key in ((case.group, case.kind), (case.group, "all")):
            table[key, "answers"] += 1
            for name, verdict in verdicts.items():
                table[key, name] += verdict != case.right
        if len(set(verdicts.values())) > 1:
            lines.append({**case._asdict(), **verdicts, "reason": grade.reason})
    names = ["answers", "ours", *theirs]
    print(f"| group | class | {' | '.join(names)} |\n|---|---|" + "--:|" * len(names))
    for group, kind in sorted({key for key, _ in table}):
        print(
            f"| {group} | {kind} | "
            f"{' | '.join(str(table[(group, kind), name]) for name in names)} |"
        )
    print(f"{len(lines)} answers on which at least one of them disagrees with ours")
    if arguments.list:
        kept = sorted(
            rng.sample(lines, min(arguments.keep, len(lines))),
            key=lambda one: (one["group"], one["kind"]),
        )
        Path(arguments.list).write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
        )
        print(f"{len(kept)} of them, drawn at random, in {arguments.list}")
