"""Grading measured against calling math-verify one by one.

    python -m benchmarks.grading speed        # 10,000 answers: seconds, and the ratio
    python -m benchmarks.grading disagreements --list FILE   # other graders on a sample of those
    python -m benchmarks.grading classes      # 19,000 answers as models write them: mistakes and time by class

Answers are made from the gold answers of the benchmarks whose files lie in $RPG_DATA (or --data): right ones in other
forms, and near misses (tests/answers/variants.py). The number of processes is that of --workers.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import time
from collections import Counter
from pathlib import Path

from rpg.answers.extraction import normalise
from rpg.rewards import Grader
from rpg.tasks.benchmarks import benchmark, load_benchmark
from tests.answers.generated import cases as cases_of
from tests.answers.generated import real_golds, sample_golds
from tests.answers.variants import equivalents, near_misses

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
    """The library with its default settings, on the same two answers without their typesetting, as one formula each."""
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
    prepared = time.process_time()
    with Grader(workers=arguments.workers) as grader:
        began = time.perf_counter()
        grades = grader.grade(items)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        grader.grade(items)
        again = time.perf_counter() - began
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = children.ru_utime + children.ru_stime + time.process_time() - prepared
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
    """Mistakes by class on the answers of tests/answers/generated, and the processor time of each distinct answer."""
    golds = real_golds() or sample_golds()
    chosen = cases_of(golds)
    before = _processor_seconds()
    with Grader(workers=arguments.workers) as grader:
        grades = grader.grade([(case.response, case.gold) for case in chosen])
    seconds = _processor_seconds() - before
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
        f"{len(chosen)} distinct answers over {len(golds)} gold answers: {seconds:.1f} s of processor time, "
        f"{1000 * seconds / len(chosen):.2f} ms each"
    )
    if arguments.list:
        Path(arguments.list).write_text("".join(json.dumps(line) + "\n" for line in lines))
        print(f"{len(lines)} mistakes in {arguments.list}")


def others(response: str, gold: str) -> dict[str, bool]:
    """Verdicts of math-verify on the whole response (as it is meant to be used), and of verl's two rules where it is
    installed.
    """
    from math_verify import parse, verify

    try:
        found = {"math-verify": bool(verify(parse(f"${gold.strip('$')}$"), parse(response)))}
    except Exception:  # noqa: BLE001 - math-verify raises many kinds on what it cannot read
        found = {"math-verify": False}
    try:
        from verl.utils.reward_score import math_dapo, math_reward
    except ImportError:
        return found
    found["math_dapo"] = bool(math_dapo.compute_score(response, gold)["acc"])
    if "boxed" in response:  # it reads nothing else
        found["math_reward"] = bool(math_reward.compute_score(response, gold))
    return found


def disagreements(arguments) -> None:
    """Where other graders decide otherwise, by class, over a sample of the answers of tests/answers/generated."""
    chosen = cases_of(real_golds() or sample_golds())
    rng = random.Random(arguments.seed)
    chosen = rng.sample(chosen, min(arguments.compare, len(chosen)))
    with Grader(workers=arguments.workers) as grader:
        grades = grader.grade([(case.response, case.gold) for case in chosen])
    table, lines, names = Counter[tuple[tuple[str, str], str]](), [], list[str]()
    for case, grade in zip(chosen, grades, strict=True):
        theirs = others(case.response, case.gold)
        names = list(dict.fromkeys([*names, *theirs]))
        key = case.group, case.kind
        table[key, "answers"] += 1
        table[key, "ours"] += grade.correct != case.right
        for name, verdict in theirs.items():
            table[key, name] += verdict != case.right
        if any(verdict != grade.correct for verdict in theirs.values()):
            lines.append({**case._asdict(), "ours": grade.correct, "reason": grade.reason, **theirs})
    print(f"| group | class | answers | {' | '.join(f'{n} wrong' for n in ('ours', *names))} |")
    print("|---|---|" + "---|" * (2 + len(names)))
    for group, kind in sorted({key for key, _ in table}):
        counts = " | ".join(str(table[(group, kind), name]) for name in ("answers", "ours", *names))
        print(f"| {group} | {kind} | {counts} |")
    print(f"{len(lines)} answers on which at least one of them disagrees with ours")
    if arguments.list:
        kept = sorted(
            rng.sample(lines, min(arguments.keep, len(lines))), key=lambda one: (one["group"], one["kind"])
        )
        Path(arguments.list).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))
        print(f"{len(kept)} of them, drawn at random, in {arguments.list}")


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["speed", "classes", "disagreements"])
    parser.add_argument("--data", type=Path, default=os.environ.get("RPG_DATA"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--compare", type=int, default=1_000, help="answers that math-verify is timed on")
    parser.add_argument("--list", help="file for the disagreements, one JSON line each")
    parser.add_argument(
        "--keep", type=int, default=240, help="disagreements that --list keeps, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    {"speed": speed, "classes": classes, "disagreements": disagreements}[arguments.what](arguments)


if __name__ == "__main__":
    main()
