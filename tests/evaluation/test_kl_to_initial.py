"""KL between a checkpoint and the model its run began with: true in a case that can be added up, and in the files."""

import math
from contextlib import closing

import pytest
import torch

from rpg.evaluation.evaluator import Evaluator
from rpg.evaluation.kl_to_initial import drift
from rpg.models import seeds
from rpg.models.initial_policy import warm_folder
from rpg.models.policy import Policy
from rpg.store.atomic_files import read_json_object
from rpg.store.database import build, connect
from rpg.store.layout import Layout
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
    return policy.sample(prompts, group_size=group, max_new_tokens=tokens, uniforms=uniforms, temperature=1.0)


def exact(p, q, prompt):
    """KL(p || q) of the first token after a prompt, over the whole vocabulary."""
    ids = torch.tensor([p.tokenizer("<bos>" + prompt)["input_ids"]])
    with torch.no_grad():
        log_p, log_q = (one.model(ids).logits[0, -1].log_softmax(-1) for one in (p, q))
    return float((log_p.exp() * (log_p - log_q)).sum())


def test_the_estimate_is_the_kl_of_one_token_within_its_error(policies, problems):
    first, moved = policies
    own, initial = sampled(moved, problems, 200, 1, "own"), sampled(first, problems, 200, 1, "initial")
    found = drift(moved, first, [own], [initial], 1.0)
    for direction, p, q in (("policy_to_initial", moved, first), ("initial_to_policy", first, moved)):
        truth = sum(exact(p, q, problem.prompt) for problem in problems) / len(problems)
        measured = found[direction]
        assert measured["problems"] == len(problems) and measured["responses"] == 200 * len(problems)
        assert measured["per_response"] == pytest.approx(measured["per_token"])
        assert measured["per_response"] == pytest.approx(truth, rel=0.15) and truth > 1e-3
        assert measured["per_response_se"] < truth


def test_a_policy_has_not_moved_from_itself(policies, problems):
    samples = [sampled(policies[0], problems, 4, 8, "own")]
    found = drift(policies[0], policies[0], samples, samples, 1.0)
    assert all(abs(found[direction]["per_response"]) < 1e-5 for direction in found)


def test_longer_responses_add_up(policies, problems):
    first, moved = policies
    one = drift(moved, first, [sampled(moved, problems, 8, 12, "own")], [], 1.0)
    assert set(one) == {"policy_to_initial"}
    parts = one["policy_to_initial"]
    assert parts["per_response"] > 2 * parts["per_token"] > 0
    twice = drift(moved, first, [sampled(moved, problems, 8, 12, "own")] * 2, [], 1.0)["policy_to_initial"]
    assert twice["per_response"] == pytest.approx(parts["per_response"])


def test_each_evaluation_measures_it_and_the_database_has_it(tmp_path, checkpoints):
    layout = Layout.at(tmp_path)
    folder = register(layout, "one", checkpoints, "local")
    copy = register(layout, "two", checkpoints, "local")
    model = warm_folder(SPEC, tmp_path)
    model.parent.mkdir(parents=True)
    model.symlink_to(checkpoints[0])
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 4
    start, later = (read_json_object(drift_path(folder.eval_path("chain-easy", step))) for step in (0, 1))
    assert abs(start["policy_to_initial"]["per_response"]) < 1e-5
    assert later["policy_to_initial"]["per_response"] > 0.01 < later["initial_to_policy"]["per_response"]
    assert read_json_object(drift_path(copy.eval_path("chain-easy", 1))) == later
    # Alone, without the samples of step 0 in memory, it draws the initial model's again.
    alone = Layout.at(tmp_path / "alone")
    other = register(alone, "one", checkpoints, "local")
    folder_of_model = warm_folder(SPEC, alone.home)
    folder_of_model.parent.mkdir(parents=True)
    folder_of_model.symlink_to(checkpoints[0])
    evaluator = Evaluator(alone, "sweep", lambda line: None)
    assert evaluator._evaluate(other, "chain-easy", 1)
    assert read_json_object(drift_path(other.eval_path("chain-easy", 1))) == later
    build(layout)
    with closing(connect(layout)) as db:
        rows = db.execute(
            "SELECT step, direction, per_response, per_token_se FROM drift ORDER BY ALL"
        ).fetchall()
    assert len(rows) == 8 and all(math.isfinite(value) for row in rows for value in row[2:])


def test_without_the_initial_model_an_evaluation_is_whole_but_for_this(tmp_path, checkpoints):
    layout = Layout.at(tmp_path)
    folder = register(layout, "one", checkpoints[:1], "local")
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 1
    assert not drift_path(folder.eval_path("chain-easy", 0)).exists()
