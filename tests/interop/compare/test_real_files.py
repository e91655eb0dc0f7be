"""Files that harnesses wrote: lm-eval 0.4.13 and Inspect 0.3.285 run on their stand-in models,
dumps by the function that verl 0.9.1 writes them with. Pairing and p are computed here again."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as distributions

from rpg.interop.compare import judging, pairing
from rpg.interop.compare.rows import Choice
from rpg.interop.compare.sources import sources_of

FILES = Path(__file__).parent / "files"


def compared(*paths, metric=""):
    sources = sources_of([str(FILES / path) for path in paths], Choice(metric))
    return judging.compare(pairing.pair(sources))


def lines(folder):
    [path] = (FILES / folder).glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_of_lm_eval_give_the_paired_t_test_of_their_own_numbers():
    right = [
        {row["doc_id"]: row["acc_norm"] for row in lines(f"lm_eval/{model}")}
        for model in ("model1", "model2")
    ]
    one, two = (np.array([answers[number] for number in range(40)]) for answers in right)
    comparison = compared("lm_eval/model1", "lm_eval/model2", metric="acc_norm,none")
    [difference] = comparison.differences
    assert comparison.benchmarks == ["sums"]
    assert difference.difference == pytest.approx(two.mean() - one.mean())
    assert difference.others.p == pytest.approx(distributions.ttest_rel(two, one).pvalue)
    assert difference.these.word == "not testable"  # one sample of each problem


def test_logs_of_inspect_give_the_difference_that_inspects_own_reader_gives():
    # Right of two epochs for each of 16 problems, as Inspect's own reader gives them.
    one = np.array([2, 0, 0, 2, 2, 2, 1, 1, 2, 2, 1, 2, 0, 1, 2, 2]) / 2
    two = np.array([0, 0, 2, 2, 2, 2, 2, 2, 1, 2, 0, 2, 2, 2, 2, 1]) / 2
    [difference] = compared("inspect/one.eval", "inspect/two.eval").differences
    assert difference.difference == pytest.approx(two.mean() - one.mean())
    # Fewer than ten problems have any spread, so no word is said; the family has the p.
    assert difference.others.word == "too few problems move"


def test_verls_validation_dumps_give_the_difference_and_error_of_their_own_numbers():
    accuracies = []
    samples = []
    for model in ("model1", "model2"):
        table: dict[str, list[float]] = {}
        for row in lines(f"verl/{model}"):
            table.setdefault(row["input"], []).append(row["acc"])
        samples.append(np.array([table[prompt] for prompt in sorted(table)], float))
        accuracies.append(samples[-1].mean(axis=1))
    [difference] = compared("verl/model1", "verl/model2").differences
    one, two = accuracies
    of_problems = (two - one).var(ddof=1) / len(one)
    of_samples = sum((each.var(axis=1, ddof=1) / 4).sum() for each in samples) / len(one) ** 2
    assert difference.difference == pytest.approx(two.mean() - one.mean())
    # Problems add nothing to the spread of samples here: both verdicts have the same error.
    assert of_problems < of_samples
    squares = sum(((each.var(axis=1, ddof=1) / 4) ** 2).sum() for each in samples)
    df = of_samples**2 / (squares / len(one) ** 4 / 3)
    t = (two.mean() - one.mean()) / np.sqrt(of_samples)
    assert difference.these.p == pytest.approx(2 * distributions.t.sf(t, df))
    assert difference.these.word == "better"


def test_a_model_is_compared_over_harnesses_if_problems_have_one_name(tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{row['doc_id']},{row['acc']}" for row in lines("lm_eval/model1")]
    table.write_text("\n".join(["problem,score", *rows]))
    [difference] = compared("lm_eval/model1", table, metric="").differences
    assert difference.difference == 0
