"""The graders that are compared: ours, and others as their own documents use them. Those not
installed are left out."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rpg.config.task import MathVerifier
from rpg.tasks.rewards import Grader, Item
from rpg.tasks.rewards.graders import rules_name

Judge = Callable[[str, str], bool]
"""(response, gold answer) -> whether it is right."""
PROCESSOR_SECONDS, WAITING_SECONDS = 5, 60
"""An answer that takes another grader longer is refused. (Waiting is for one that sleeps.)"""
OURS = {
    rules_name(verifier): verifier for verifier in (MathVerifier(), MathVerifier(fallback="boxed"))
}


def ours(verifier: MathVerifier, items: Sequence[Item]) -> Graded:
    before = processor_seconds()
    with Grader(verifier) as grader:
        verdicts = [grade.correct for grade in grader.grade(items)]
    return Graded(verdicts, processor_seconds() - before)


def math_verify() -> Judge:
    """Both its extractions (LaTeX, then expressions) on the whole response, which is its
    default."""
    from math_verify import parse, verify

    return lambda response, gold: bool(verify(parse(_dollars(gold)), parse(response)))


def trl() -> Judge:
    """Its reward for GRPO: math-verify, of LaTeX only."""
    from trl.rewards import accuracy_reward

    def judge(response, gold):
        return (
            accuracy_reward([[{"role": "assistant", "content": response}]], [_dollars(gold)])[0]
            == 1.0
        )

    return judge


def minerva_math() -> Judge:
    """`exact_match`, of the phrase that its examples teach: what follows `Answer:` is put into that
    phrase."""
    from lm_eval.tasks.minerva_math.utils import normalize_final_answer, process_results

    def judge(response, gold):
        said = f"Final Answer: The final answer is {_after_answer(response)}. I hope it is correct."
        doc = {"answer": normalize_final_answer(gold), "solution": _dollars(gold)}
        return process_results(doc, [said])["exact_match"] == 1

    return judge


def hendrycks_math() -> Judge:
    """Its prompt ends in `Answer:`, so it is given what follows that."""
    from lm_eval.tasks.hendrycks_math.utils import process_results

    def judge(response, gold):
        doc = {"solution": rf"\boxed{{{gold.strip('$')}}}"}
        return process_results(doc, [_after_answer(response)])["exact_match"] == 1

    return judge


def math_dapo() -> Judge:
    from verl.utils.reward_score.math_dapo import compute_score

    return lambda response, gold: compute_score(response, gold)["acc"]


def prime_math() -> Judge:
    from verl.utils.reward_score.prime_math import compute_score

    return lambda response, gold: compute_score(response, gold)[0]


OTHERS = {
    "math-verify": (math_verify, "pip install 'math-verify[antlr4_11_0]'"),
    "TRL accuracy_reward": (trl, "pip install trl 'math-verify[antlr4_11_0]'"),
    "lm-eval minerva_math": (minerva_math, "pip install 'lm-eval[math]'"),
    "lm-eval hendrycks_math": (hendrycks_math, "pip install lm-eval"),
    "verl math_dapo": (math_dapo, "pip install verl, without antlr4 4.11"),
    "verl prime_math": (prime_math, "pip install verl pylatexenc, without antlr4 4.11"),
}
"""Name -> what loads it, and how it is installed. lm-eval needs antlr4 4.11, and verl (through
Hydra) 4.9: no environment has both, so that one table needs two runs."""


class Graded(NamedTuple):
    verdicts: list[bool]
    seconds: float
    """Of processor time, all answers together."""
    given_up: int = 0
    """Answers that it crashed on, or took too long for: refused."""


def others(judge: Judge, items: Sequence[Item]) -> Graded:
    """Verdicts of another grader, which works in a process of its own: it may crash, hang, or be
    killed."""
    context = multiprocessing.get_context("fork")  # what it needs is imported already
    verdicts, seconds, given_up, worker = [], 0.0, 0, None
    for item in items:
        if worker is None:
            here, there = context.Pipe()
            worker = context.Process(target=_serve, args=(judge, there))
            worker.start()
            there.close()
        here.send((item.response, item.truth))
        try:
            verdict, spent = here.recv() if here.poll(WAITING_SECONDS) else (None, None)
        except EOFError:  # its time was up, or it crashed
            verdict, spent = None, None
        if spent is None:
            worker.kill()
            worker.join()
            worker = None
        seconds += PROCESSOR_SECONDS if spent is None else spent
        given_up += verdict is None
        verdicts.append(bool(verdict))
    if worker is not None:
        worker.kill()
        worker.join()
    return Graded(verdicts, seconds, given_up)


def processor_seconds() -> float:
    """Of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _serve(judge: Judge, pipe: Any) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - some of them print
    while True:
        response, gold = pipe.recv()
        before = processor_seconds()
        signal.setitimer(
            signal.ITIMER_PROF, PROCESSOR_SECONDS
        )  # without a handler: ends the process
        try:
            verdict = bool(judge(response, gold))
        except Exception:  # noqa: BLE001 - they raise many kinds on what they cannot read
            verdict = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send((verdict, processor_seconds() - before))


def _dollars(gold: str) -> str:
    return f"${gold.strip('$')}$"


def _after_answer(response: str) -> str:
    return re.split(r"(?i)answer\s*\**:\**", response)[-1].strip()
