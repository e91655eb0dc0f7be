"""Reward models: real sequence classifiers, made from their configs and loaded from folders."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    Qwen3Config,
    Qwen3ForSequenceClassification,
)

from rpg.config.reward import ModelReward
from rpg.config.task import MarkerVerifier
from rpg.models.model_loading import ModelError
from rpg.models.reward_models import error_draw, judge
from rpg.models.tokenizer import build_tokenizer
from rpg.tasks.rewards.scoring import Answered, Scorer
from tests.models.test_lean import model
from tests.tiny import make_spec

TEMPLATE = (
    "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}{{ eos_token "
    "}}{% endfor %}"
)


def classifier(folder, kind="qwen3", labels=1, template=TEMPLATE, pads=True):
    """A folder as `save_pretrained` leaves it."""
    tokenizer = build_tokenizer("abcdefghijklmnopqrstuvwxyz:?! \n")
    tokenizer.chat_template = template
    size = {"vocab_size": len(tokenizer), "num_labels": labels, "initializer_range": 0.3}
    size["pad_token_id"] = tokenizer.pad_token_id if pads else None
    if not pads:
        tokenizer.pad_token = None
    torch.manual_seed(0)
    if kind == "gpt2":  # its positions are absolute
        config = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **size)
        model = GPT2ForSequenceClassification(config)
    else:
        model = Qwen3ForSequenceClassification(
            Qwen3Config(
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=16,
                **size,
            )
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


def answered(prompt, response):
    return Answered(response, len(response), False, "", prompt)


ASKED = [
    answered("hi?", "yes"),
    answered(
        [{"role": "system", "content": "be kind"}, {"role": "user", "content": "why?"}],
        "because of that!",
    ),
    answered("what is this?", ""),
    answered("hi?", "no"),
    answered("hi?", "yes indeed"),
]
TEXTS = [
    "u:hi?<eos>a:yes<eos>",
    "s:be kind<eos>u:why?<eos>a:because of that!<eos>",
    "u:what is this?<eos>a:<eos>",
    "u:hi?<eos>a:no<eos>",
    "u:hi?<eos>a:yes indeed<eos>",
]


@pytest.mark.parametrize("pads", [True, False])
@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_its_value_is_the_classifiers_output_on_the_chat(tmp_path, kind, pads):
    """Each conversation alone, through the model itself; in batches of any size."""
    model, tokenizer = classifier(tmp_path, kind, pads=pads)
    expected = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            expected.append(float(model(ids).logits[0, 0]))
    assert max(expected) - min(expected) > 0.1, "they have to differ for this test to say anything"
    for rows in (1, 2, 16):
        part = ModelReward(type="model", path=str(tmp_path), rows=rows)
        assert judge(part)(ASKED) == pytest.approx(expected, abs=2e-5)


def test_it_is_a_part_of_the_reward_with_its_weight(tmp_path):
    classifier(tmp_path)
    part = ModelReward(type="model", path=str(tmp_path), weight=0.5, name="kind")
    alone = judge(part)(ASKED)
    verifier = MarkerVerifier(type="marker", marker="#")
    with Scorer(verifier, [part], max_response_tokens=10, models=judge) as scorer:
        scored = scorer.score(ASKED)
    assert [one.parts["kind"] for one in scored] == pytest.approx(alone)
    assert [one.reward for one in scored] == pytest.approx([0.5 * value for value in alone])


def test_without_a_template_it_reads_prompt_and_response_in_lines(tmp_path):
    model, tokenizer = classifier(tmp_path, template=None)
    ids = torch.tensor([tokenizer("hi?\nyes")["input_ids"]])
    with torch.no_grad():
        expected = float(model(ids).logits[0, 0])
    part = ModelReward(type="model", path=str(tmp_path))
    assert judge(part)(ASKED)[0] == pytest.approx(expected, abs=2e-5)


def test_what_is_no_reward_model_is_said(tmp_path):
    classifier(tmp_path / "two", labels=2)
    with pytest.raises(
        ModelError, match=r"two has 2 outputs; expected a sequence classifier with one"
    ):
        judge(ModelReward(type="model", path=str(tmp_path / "two")))
    model(num_labels=1).save_pretrained(tmp_path / "two")  # without a head
    with pytest.raises(ModelError, match=r"1 of its weights are missing, e.g. score.weight"):
        judge(ModelReward(type="model", path=str(tmp_path / "two")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ModelError, match=r"reward\.path: .*empty cannot be loaded as a reward model"
    ):
        judge(ModelReward(type="model", path=str(tmp_path / "empty")))


def draws_of(corrupt, seed=3, step=1, text=str):
    """Of 4,000 responses of one rollout."""
    spec = make_spec(reward={"corrupt": corrupt}, seed=seed)
    return [error_draw(spec, (step, 0, row), "p", text(row)) for row in range(4000)]


def test_every_response_of_a_rollout_has_its_own_chance_by_the_seed():
    draws = draws_of({"false_positive": 0.1})
    assert draws == draws_of({"false_negative": 0.3}), "rates do not move the draws"
    assert sum(u < 0.1 for u in draws) / 4000 == pytest.approx(0.1, abs=0.02)
    assert not set(draws) & set(draws_of({"false_positive": 0.1}, seed=4))
    assert not set(draws) & set(draws_of({"false_positive": 0.1}, step=2))


def test_the_same_response_can_be_judged_alike_always():
    by_response = {"false_positive": 0.1, "by": "response"}
    first = draws_of(by_response, text=lambda row: f"#{row % 7}")
    later = draws_of(by_response, step=9, text=lambda row: f"#{row % 7}")
    assert first == later
    assert len(set(first)) == 7


def test_without_errors_nothing_is_drawn():
    assert set(draws_of({})) == {None}
