"""Rewards in verl's reward loop are the embedded trainer's."""

import asyncio
import types

import numpy
import pytest
import torch

from tests.models.test_reward_models import classifier
from tests.verl.inside import make_spec, verl_config


@pytest.fixture
def manager(model, cpu_verl, tmp_path):
    """A function that makes verl's manager of rewards of a job, and the tokens of a text."""
    from transformers import AutoTokenizer

    from rpg.backends.verl.reward_manager import VerifierManager

    tokenizer = AutoTokenizer.from_pretrained(model)
    made = []

    def make(*extra, **changes):
        made.append(
            VerifierManager(verl_config(make_spec(**changes), model, tmp_path, *extra), tokenizer)
        )
        return made[-1], lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]

    yield make
    for each in made:
        each.scorer.close()


def test_rewards_are_the_embedded_trainers(manager):
    from rpg.backends.verl.reward_manager import VerlResponse
    from rpg.tasks import Problem
    from rpg.tasks.rewards.scoring import overlong_punishment

    made, ids = manager(algorithm="dapo")
    end = made.tokenizer.eos_token_id

    def score(tokens):
        (found,) = made.score([VerlResponse(tokens, Problem("", "", "", "7", ""))])
        known = found["reward_extra_info"]
        return known["acc"] == 1, known["truncated"] == 1, found["reward_score"]

    assert score([*ids("b+70#7"), end]) == (True, False, 1.0)
    assert score([*ids("b+70#6"), end]) == (False, False, -1.0)
    cut = ids("b+70b+70b+#7")  # the whole budget, and an answer that may go on
    assert len(cut) == 12
    assert score(cut) == (False, True, -1.0 + overlong_punishment(12, 12, 0.25, 1.0))
    assert score([])[:2] == (False, True)


def test_errors_of_grading_are_the_embedded_trainers_and_never_in_verls_validation(manager):
    from rpg.backends.verl.responses import place_of
    from rpg.backends.verl.reward_manager import VerlResponse
    from rpg.models.reward_models import error_draw
    from rpg.tasks import Problem

    reward = {"corrupt": {"false_negative": 0.5}}
    made, ids = manager(reward=reward, seed=11)
    problem = Problem("p", "", "", "7", "")
    tokens = [*ids("b+70#7"), made.tokenizer.eos_token_id]
    size = made.settings.group_size
    places = [place_of({"uid": "s3r0p00002", "session_id": n}, size) for n in range(size)]
    assert places[1] == (3, 0, 2 * size + 1)
    found = made.score([VerlResponse(tokens, problem, None, place) for place in places])
    spec = make_spec(reward=reward, seed=11)
    turned = [error_draw(spec, place, "p", "b+70#7") < 0.5 for place in places]
    assert [result["reward_score"] for result in found] == [-1.0 if t else 1.0 for t in turned]
    assert [result["reward_extra_info"]["acc"] for result in found] == [1.0] * size
    assert 0 < sum(turned) < size

    assert place_of({"uid": "8c1f4a0e", "session_id": 0}, size) is None
    [validated] = made.score([VerlResponse(tokens, problem)])
    assert validated["reward_score"] == 1.0


def test_a_reward_model_is_read_in_verls_reward_loop(manager, tmp_path):
    """A real sequence classifier: the prompt of the row and the decoded response, as in the
    embedded trainer."""
    from rpg.backends.verl.reward_manager import VerlResponse
    from rpg.config.reward import ModelReward
    from rpg.models.reward_models import judge
    from rpg.tasks import Problem
    from rpg.tasks.rewards.scoring import Answered

    classifier(tmp_path / "judge")
    reward = {"type": "model", "path": str(tmp_path / "judge"), "weight": 2.0}
    made, ids = manager(reward=reward)
    problem = Problem("p", "abc", "what is abc?", "7", "")
    found = made.score([VerlResponse([*ids("b+7"), made.tokenizer.eos_token_id], problem)])[0]
    [value] = judge(ModelReward(**reward))([Answered("b+7", 4, False, "7", problem.asked())])
    assert found["reward_score"] == pytest.approx(2 * value)
    assert abs(value) > 1e-3
    assert found["reward_extra_info"]["reward_model"] == pytest.approx(value)
    assert found["reward_extra_info"]["acc"] == 0.0


def test_a_mathematical_answer_is_graded_through_verls_manager(manager):
    """As verl calls it, in its event loop; what has to be simplified is, in the grader's own
    process."""
    pytest.importorskip("math_verify")
    from tensordict import TensorDict
    from verl import DataProto

    made, _ = manager('rpg.verifier=\'{"type": "math"}\'')
    response = torch.tensor([[5, made.tokenizer.eos_token_id, 0]])
    made.tokenizer = types.SimpleNamespace(decode=lambda ids, **_: r"Answer: $\frac{\sqrt{4}}{4}$")
    mask = torch.tensor([[1, 1, 1, 1, 0]])  # a prompt of two tokens before it

    def graded(truth):
        extra = {"reward_model": numpy.array([{"ground_truth": truth}], dtype=object)}
        tensors = TensorDict({"responses": response, "attention_mask": mask}, batch_size=1)
        return asyncio.run(made.run_single(DataProto(batch=tensors, non_tensor_batch=extra)))

    info = {"acc": 1.0, "truncated": 0.0, "earned": 1.0}
    assert graded("0.5") == {"reward_score": 1.0, "reward_extra_info": info}
    assert graded("3")["reward_score"] == -1.0
