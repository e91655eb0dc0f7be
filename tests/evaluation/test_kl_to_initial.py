"""KL between a checkpoint and the model its run began with: true in a case that can be added up,
and in the files."""

import math
from contextlib import closing, suppress

import pytest
import torch

from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.evaluator import Evaluator
from rpg.evaluation.kl_to_initial import summary, terms
from rpg.models import seeds
from rpg.models.initial_policy import warm_folder
from rpg.models.policy import Policy
from rpg.store.atomic_files import read_json_object
from rpg.store.database import build, connect
from rpg.store.layout import Layout
from rpg.store.run_folder import pending_evaluations
from rpg.store.samples import drift_path
from tests.evaluation.runs import register
from tests.evaluation.small_model import SPEC


@pytest.fixture
def policies(checkpoints):
    from rpg.models.model_loading import load_pretrained

    return [Policy(*load_pretrained(path)) for path in checkpoints]


def sampled(policy, problems, group, tokens, key):
    prompts = [policy.tokenizer("<bos>" + p.prompt)["input_ids"] for p in problems]
    uniforms = seeds.uniforms(len(prompts) * group, tokens, 0, key)
    return policy.sample(
        prompts, group_size=group, max_new_tokens=tokens, uniforms=uniforms, temperature=1.0
    )


def exact(p, q, prompt):
    """KL(p || q) of the first token after a prompt, over the whole vocabulary."""
    ids = torch.tensor([p.tokenizer("<bos>" + prompt)["input_ids"]])
    with torch.no_grad():
        log_p, log_q = (one.model(ids).logits[0, -1].log_softmax(-1) for one in (p, q))
    return float((log_p.exp() * (log_p - log_q)).sum())


def test_the_estimate_is_the_kl_of_one_token_within_its_error(policies, problems):
    first, moved = policies
    own, initial = (
        sampled(moved, problems, 200, 1, "own"),
        sampled(first, problems, 200, 1, "initial"),
    )
    for samples, p, q in ((own, moved, first), (initial, first, moved)):
        truth = sum(exact(p, q, problem.prompt) for problem in problems) / len(problems)
        measured = summary(terms(samples, q, 1.0).reshape(len(problems), 200, 3))
        assert measured["problems"] == len(problems) and measured["responses"] == 200 * len(
            problems
        )
        assert measured["per_response"] == pytest.approx(measured["per_token"])
        assert measured["per_response"] == pytest.approx(truth, rel=0.15) and truth > 1e-3
        assert measured["per_response_se"] < truth
    longer = summary([terms(sampled(moved, problems, 8, 12, "own"), first, 1.0)])
    assert longer["per_response"] > 2 * longer["per_token"] > 0


def started(home, checkpoints):
    """A data folder with the initial model."""
    model = warm_folder(SPEC, home)
    model.parent.mkdir(parents=True)
    model.symlink_to(checkpoints[0])
    return Layout.at(home)


def drifts(folder):
    """Of both checkpoints, as a list of numbers."""
    files = [read_json_object(drift_path(folder.eval_path("chain-easy", step))) for step in (0, 1)]
    return [value for drift in files for kl in drift.values() for value in kl.values()]


def test_each_evaluation_measures_it_and_the_database_has_it(tmp_path, checkpoints):
    layout = started(tmp_path, checkpoints)
    folder = register(layout, "one", checkpoints, "local")
    copy = register(layout, "two", checkpoints, "local")
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 4
    start, later = (
        read_json_object(drift_path(folder.eval_path("chain-easy", step))) for step in (0, 1)
    )
    assert abs(start["policy_to_initial"]["per_response"]) < 1e-5
    assert (
        later["policy_to_initial"]["per_response"]
        > 0.01
        < later["initial_to_policy"]["per_response"]
    )
    assert read_json_object(drift_path(copy.eval_path("chain-easy", 1))) == later
    build(layout)
    with closing(connect(layout)) as db:
        rows = db.execute(
            "SELECT step, direction, per_response, per_token_se FROM drift ORDER BY ALL"
        ).fetchall()
    assert len(rows) == 8 and all(math.isfinite(value) for row in rows for value in row[2:])


def test_it_is_that_of_an_evaluations_own_samples_whoever_drew_them(
    tmp_path, checkpoints, monkeypatch
):
    """Fewer samples before or after more, ends in the middle of each draw: equal numbers, and none
    is drawn twice."""
    decode, end, drawn = LocalEngine._decode, iter(()), []

    def counted(self, asked):
        if next(end, False):
            raise KeyboardInterrupt
        drawn.extend(asked)
        return decode(self, asked)

    def evaluated(home, *order):
        layout, before = started(tmp_path / home, checkpoints), len(drawn)
        for k in order:
            how = {"engine": {"type": "local", "rows": 64}, "samples_per_problem": k}
            folder = register(layout, f"of-{k}", checkpoints, **how)
            while pending_evaluations(folder):
                with suppress(KeyboardInterrupt):
                    Evaluator(layout, "sweep", lambda line: None).pass_over()
        return [drifts(layout.run("sweep", f"of-{k}")) for k in sorted(order)], (
            len(drawn) - before
        ) / 64

    monkeypatch.setattr(LocalEngine, "_decode", counted)
    ([two], _), ([three], _) = evaluated("two", 2), evaluated("three", 3)
    same = [pytest.approx(numbers, rel=1e-4, abs=1e-9) for numbers in (two, three)]
    assert evaluated("rising", 2, 3) == (same, 2 * 3)
    assert evaluated("falling", 3, 2) == (same, 2 * 3)
    end = iter(
        [0, 1, 0, 0, 0, 1, 0, 0, 0, 1]
    )  # at both steps, and in the initial model's that are drawn again
    assert evaluated("ended", 3) == (same[1:], 3 * 3) and next(end, None) is None


def test_without_the_initial_model_an_evaluation_is_whole_but_for_this(tmp_path, checkpoints):
    layout = Layout.at(tmp_path)
    folder = register(layout, "one", checkpoints[:1], "local")
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 1
    assert not drift_path(folder.eval_path("chain-easy", 0)).exists()
