"""Does a night see a change of the mathematics, and is it silent when there is none?

    python -m benchmarks.nights [--unchanged 30] [--load 2] [--only NAME ...]

Plants one mistake after another in a copy of the source (a sign, a bound, a stale reference, a draw ...), runs a night
with each and says what the night said; then as many nights of unchanged code, each under another code version, while
`--load` processes keep the cores busy. Exit code 1 when fewer than 24 of 26 are seen, or when one unchanged night is red.

Night, numbers, digests, comparison and source are real. The set is a small one, and its trainings run one after the
other in the night's own process, without Prefect: a night takes seconds. Mistakes in rpg.backends.verl, in warm starts
and in data that is cached are out of its reach.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rpg.store.run_writer import write_failed

ROOT = Path(__file__).resolve().parents[1]

COMMON = """\
  task: {type: chain, tiers: {one: 1, two: 2}, train_problems: 400, benchmark_problems: 8}
  model:
    type: tiny
    hidden_size: 32
    intermediate_size: 64
    warm_start: {target_accuracy: 0, consolidation_steps: 0, behaviour_steps: 120, behaviour_learning_rate: 3.0e-3}
  training:
    steps: 3
    prompts_per_step: 8
    mini_batch_prompts: 2
    max_grad_norm: 0.5
    optimizer: {type: %s, learning_rate: 1.0e-2, warmup_steps: 4}
  rollout: {group_size: 8, temperature: 0.9, max_prompt_tokens: 16, max_response_tokens: 12}
  evaluation: {every: 3, samples_per_problem: 2}
"""
BUSY = "import os; us = os.getppid()\nwhile os.getppid() == us: pass"
"""Until whoever started it is gone."""
SWEEPS = {
    "losses": f"""\
name: losses
run:
{COMMON % "adamw"}
axes:
  algorithm:
    - grpo
    - dapo
    - dr-grpo
    - reinforce-pp
    - {{name: rloo, reference: fixed, beta: 0.05}}
    - {{name: gspo, clip: {{low: 0.01, high: 0.02, c: null}}}}
    - {{name: cispo, clip: {{low: 0.01, high: 0.02, c: null}}}}
    - {{name: rpg-fkl, beta: 0.05, reference: {{type: every_k, k: 4}}}}
    - {{name: rpg-urkl, beta: 0.05, clip: {{low: 0.01, high: 0.02, c: 1.05}}}}
    - {{name: rpg-reinforce-ufkl, beta: 0.05, clip: {{low: 0.01, high: 0.02, c: 1.05}}}}
    - {{name: rpg-reinforce-rkl, beta: 0.05, ratio: prefix, reference: {{type: kl_above, kappa: 0.1}}}}
  seed: [0]
""",
    "schedule-free": f"""\
name: schedule-free
run:
{COMMON % "schedule_free"}
axes:
  algorithm: [rpg-reinforce-urkl]
  seed: [0, 1]
""",
}
# name: (file, what stands there, what is planted)
MUTATIONS = {
    "loss: sign of the gradient": (
        "losses/policy_loss.py", "apply(log_prob, sums[0], slope)", "apply(log_prob, sums[0], -slope)"),
    "loss: sign of the KL in RPG": (
        "losses/surrogates.py", "W = reward - algo.beta * level.kl_slope", "W = reward + algo.beta * level.kl_slope"),
    "loss: KL beside the loss without its gradient": (
        "losses/surrogates.py", "slope + algo.beta * kl_slope, ratio", "slope, ratio"),
    "loss: GSPO without its length": (
        "losses/surrogates.py", "x.log_w.sum(-1, keepdim=True) / length", "x.log_w.sum(-1, keepdim=True)"),
    "loss: URKL slope": ("losses/kl_terms.py", "    slope = w * d\n", "    slope = w * d + w\n"),
    "loss: forward KL without the reference": (
        "losses/kl_terms.py", "return -v * log_prob, -v", "return -log_prob, -torch.ones_like(v)"),
    "loss: prefix sums the wrong way": (
        "losses/kl_terms.py", "return terms.flip(-1).cumsum(-1).flip(-1)", "return terms.cumsum(-1)"),
    "loss: k3 with its sign turned": (
        "losses/kl_terms.py", "slope = 1 - bounded_exp(-d)", "slope = 1 - bounded_exp(d)"),
    "aggregation: a response's tokens not averaged": (
        "losses/aggregation.py", "weights / weights.sum(-1, keepdim=True).clamp(min=1)", "weights"),
    "aggregation: tokens counted as responses": (
        "losses/aggregation.py", "total = counts.tokens if counts", "total = counts.sequences if counts"),
    "advantage: no baseline": (
        "losses/advantages.py", "centred = reward - mean[index]", "centred = reward"),
    "advantage: biased standard deviation": (
        "losses/advantages.py", "variance = zeros.index_add(0, index, centred * centred) / (size - 1)",
        "variance = zeros.index_add(0, index, centred * centred) / size"),
    "advantage: leave-one-out without its factor": (
        "losses/advantages.py", "result = centred * (size / (size - 1).clamp(min=1))[index]", "result = centred"),
    "advantage: sign of the KL in the reward": (
        "losses/advantages.py", "result = reward[:, None] - remaining", "result = reward[:, None] + remaining"),
    "clip: the upper bound is the lower one": (
        "losses/surrogates.py", "(w >= 1 + high) & ~negative", "(w >= 1 + low) & ~negative"),
    "clip: sign of the advantage": ("losses/surrogates.py", "negative = sign < 0", "negative = sign > 0"),
    "clip: dual clip on the other side": (
        "losses/surrogates.py", "dual = (w >= c) & negative", "dual = (w >= c) & ~negative"),
    "clip: CISPO's lower bound": (
        "losses/surrogates.py", "w.clamp(1 - low, 1 + high)", "w.clamp(1 - high, 1 + high)"),
    "reference: renewed one step late": (
        "backends/optimizer_steps.py", "self.renewed_at >= schedule.k", "self.renewed_at > schedule.k"),
    "reference: average with its weights swapped": (
        "backends/optimizer_steps.py", "decay * self.average + (1 - decay) * token_kl",
        "(1 - decay) * self.average + decay * token_kl"),
    "reference: not a copy": (
        "backends/local/reference.py", "self.policy = policy.frozen_copy(share=True)", "self.policy = policy"),
    "optimizer: gradients never cleared": (
        "backends/local/optimizers.py", "self._inner.zero_grad(set_to_none=True)", "pass"),
    "optimizer: gradient not clipped": (
        "backends/local/optimizers.py", "if max_grad_norm is not None:", "if False:"),
    "optimizer: warm-up one step late": (
        "backends/local/trainer.py",
        "self.optimizer.step(self.optimizer_step + 1,", "self.optimizer.step(self.optimizer_step,"),
    "optimizer: samples from the wrong weights": (
        "backends/local/optimizers.py", "            self._inner.eval()", "            self._inner.train()"),
    "optimizer: mini-batches in order": (
        "backends/local/trainer.py",
        'seeds.permutation(groups, self.spec.seed, "mini-batches", step, epoch)', "torch.arange(groups)"),
    "sampling: temperature inverted": (
        "models/decoding.py", "logits / temperature\n    if row_of is", "logits * temperature\n    if row_of is"),
    "sampling: the same draws at every step": (
        "backends/local/rollout.py", '"rollout", step, round_)', '"rollout", 0, round_)'),
    "sampling: prompts one step ahead": (
        "backends/prompts.py", "range((step - 1) * count, step * count)", "range(step * count, (step + 1) * count)"),
    "sampling: groups that are all right are kept": (
        "backends/local/rollout.py", "earned.amax(-1) > earned.amin(-1)", "earned.amax(-1) > 0"),
    "grading: a wrong response costs nothing": (
        "rewards/scoring.py", "part.right if grade.correct else part.wrong", "part.right if grade.correct else 0.0"),
    "grading: length rewarded": (
        "rewards/scoring.py", "return -factor * min(", "return factor * min("),
    "grading: an answer that was cut off counts": (
        "rewards/graders.py", "if truncated and not newline:", "if False:"),
    "grading: first marker instead of the last": (
        "rewards/graders.py", "_, marker, tail = response.rpartition(verifier.marker)",
        "_, marker, tail = response.partition(verifier.marker)"),
}  # fmt: skip
WANTED = 24 / 26


def tree(folder: Path, mutation: str | None, mark: str) -> Path:
    """A copy of the source with one mistake, and with a comment that makes it a version of its own."""
    for part in ("rpg", "flows", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "flows" / "__init__.py").open("a") as file:
        file.write(f"# {mark}\n")
    if mutation:
        name, there, planted = MUTATIONS[mutation]
        path = folder / "rpg" / name
        text = path.read_text(encoding="utf-8")
        if text.count(there) < 1:
            raise SystemExit(f"{mutation}: {name} has no {there!r} any more; write the mutation anew")
        path.write_text(text.replace(there, planted, 1), encoding="utf-8")
    return folder


def one_night(home: Path, sets: Path) -> dict[str, object]:
    """A night in this process."""
    from flows.nightly import run_night
    from flows.sweep.conductor import register
    from flows.sweep.evaluation import mark_done
    from rpg.backends.local.training_loop import train
    from rpg.config.sweep_spec import Sweep
    from rpg.errors import UserError
    from rpg.evaluation.evaluator import Evaluator
    from rpg.store import Layout

    layout = Layout.at(home)

    def run(sweep: Sweep) -> None:
        folders = register(sweep, layout)
        for folder in folders:
            try:
                train(folder, home, lambda line: None)
            except UserError as error:
                write_failed(folder, str(error))
        Evaluator(layout, sweep.spec.name, say=lambda line: None).pass_over()
        mark_done(folders)

    night = run_night(layout, sets, {}, run)
    assert night is not None
    numbers = [str(finding) for finding in night.findings if finding.red]
    return {
        "red": night.red,
        "bits": night.bits,
        "said": night.said,
        "numbers": numbers,
        "failed": night.failed,
    }


def night_of(source: Path, home: Path, sets: Path) -> dict[str, Any]:
    """A night with the code in `source`, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.nights", "--night", str(home), str(sets)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {
            "red": True,
            "bits": False,
            "said": f"the night crashed: {done.stderr.splitlines()[-1]}",
            "numbers": [],
        }
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nights", description=__doc__)
    parser.add_argument("--unchanged", type=int, default=30, help="nights of unchanged code")
    parser.add_argument("--load", type=int, default=2, help="processes that keep the cores busy meanwhile")
    parser.add_argument("--only", nargs="*", help="mutations whose name begins so")
    parser.add_argument("--night", nargs=2, metavar=("HOME", "SETS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.night:
        print(json.dumps(one_night(Path(options.night[0]), Path(options.night[1]))))
        return 0
    names = [n for n in MUTATIONS if not options.only or n.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory(prefix="rpg-nights-") as temporary:
        root = Path(temporary)
        home, sets = root / "data", root / "small"
        sets.mkdir()
        for name, text in SWEEPS.items():
            (sets / f"{name}.yaml").write_text(text)
        began = time.monotonic()
        first = night_of(tree(root / "first", None, "the first night"), home, sets)
        assert not first["red"], first
        print(f"first night: {first['said']} ({time.monotonic() - began:.0f} s)", flush=True)
        print(
            "\n| mistake | seen | by the bits | numbers out of their bands |\n|---|---|---|--:|", flush=True
        )
        seen = by_numbers = 0
        for number, name in enumerate(names):
            source = tree(root / f"mutation-{number}", name, name)
            night = night_of(source, home, sets)
            shutil.rmtree(source)
            seen += bool(night["red"])
            by_numbers += bool(night["numbers"])
            found = (
                str(night["said"]).partition("bits changed since ")[2].partition(": ")[2].partition("; ")[0]
            )
            said = found or str(night["said"])
            print(
                f"| {name} | {'yes' if night['red'] else '**no**'} | {said} | {len(night['numbers'])} |",
                flush=True,
            )
        print(f"\nseen: {seen} of {len(names)}; by the bands alone: {by_numbers}", flush=True)
        load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.load)]
        alarms = 0
        try:
            for number in range(options.unchanged):
                source = tree(root / f"unchanged-{number}", None, f"unchanged {number}")
                night = night_of(source, home, sets)
                shutil.rmtree(source)
                if night["red"]:
                    alarms += 1
                    print(f"false alarm: {night['said']} {night['numbers']}", flush=True)
        finally:
            for process in load:
                process.kill()
                process.wait()
        nights = f"{options.unchanged} nights of unchanged code"
        print(f"false alarms: {alarms} of {nights}, {options.load} busy processes beside them")
    return 0 if seen >= WANTED * len(names) and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
