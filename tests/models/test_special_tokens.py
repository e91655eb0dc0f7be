"""What a prompt begins and ends with, and what ends a turn, for tokenizers whose files disagree."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GenerationConfig, GPT2Config, PreTrainedTokenizerFast

from rpg.config.data_source import Chat
from rpg.config.task import EnvironmentTask
from rpg.models.conversations import reply_tokens
from rpg.models.generic_model import CacheEngine
from rpg.models.model_loading import ModelError
from rpg.models.positions import positions_of
from rpg.models.special_tokens import encode, end_of_turn, marked, notes, stop_tokens
from rpg.models.tokenizer import rendered, set_chat_template
from tests.models.expected import gpt2
from tests.models.test_conversations import GAME

WORDS = [
    "<pad>",
    "<s>",
    "</s>",
    "[TURN]",
    "[/TURN]",
    "user",
    "assistant",
    "tool",
    "hello",
    "x",
    "xx",
    "?",
]
TURNS = (
    "{% for m in messages %}[TURN] {{ m['role'] }} {{ m['content'] }} [/TURN] {% endfor %}"
    "{% if add_generation_prompt %}[TURN] assistant {% endif %}"
)


WITH_TOOLS = EnvironmentTask.model_validate(
    GAME | {"train": "train.jsonl", "benchmarks": {"one": "one.jsonl"}, "reply": None}
)


def tokenizer(frame="<s> $A </s>", template=None, added=("[TURN]", "[/TURN]")):
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ids = [(word, WORDS.index(word)) for word in ("<s>", "</s>")]
    words.post_processor = processors.TemplateProcessing(single=frame, special_tokens=ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="?",
        additional_special_tokens=list(added),
        chat_template=template,
    )


def words(tok, ids):
    return tok.convert_ids_to_tokens(ids)


@pytest.mark.parametrize("frame", ["<s> $A </s>", "$A </s>", "<s> $A", "$A"])
def test_a_prompt_never_ends_with_what_ends_a_text(frame):
    tok = tokenizer(frame)
    first = ["<s>"] if frame.startswith("<s>") else []
    assert words(tok, encode(tok, ["hello x"])[0]) == [*first, "hello", "x"]
    said = notes(tok, None)
    assert bool(said) == frame.endswith("</s>")
    assert not said or "puts </s> behind every text" in said[0]


def test_the_end_of_a_turn_in_the_template_ends_a_response():
    tok = tokenizer("<s> $A", TURNS)
    assert words(tok, [end_of_turn(tok)]) == ["[/TURN]"]
    listed = GenerationConfig(eos_token_id=[WORDS.index("</s>")])
    assert words(tok, stop_tokens(tok, listed)) == ["</s>", "[/TURN]"]
    assert any(
        "ends a turn with [/TURN], which is in no list" in note for note in notes(tok, listed)
    )
    named = GenerationConfig(eos_token_id=[WORDS.index("[/TURN]")])
    assert not any("in no list" in note for note in notes(tok, named))


def test_a_template_without_an_end_ends_with_the_text():
    tok = tokenizer("$A", "{% for m in messages %}{{ m['content'] }} {% endfor %}")
    assert end_of_turn(tok) is None
    assert words(tok, stop_tokens(tok, None)) == ["</s>"]


def test_nothing_that_ends_a_response_is_a_warning():
    tok = tokenizer("$A")
    tok.eos_token = None
    assert any("no token ends a response" in note for note in notes(tok, None))


def test_a_task_s_template_begins_as_the_tokenizer_s_texts_do():
    tok = tokenizer("<s> $A")
    set_chat_template(tok, Chat(template=TURNS))
    assert words(tok, encode(tok, [rendered(tok, "hello")])[0])[:2] == ["<s>", "[TURN]"]
    own = tokenizer("<s> $A")
    set_chat_template(own, Chat(template="{{ bos_token }} " + TURNS))
    assert words(own, encode(own, [rendered(own, "hello")])[0])[:2] == ["<s>", "[TURN]"]
    assert any(
        "prompts begin without it" in note for note in notes(tokenizer("<s> $A", TURNS), None)
    )


def test_a_reply_keeps_the_end_of_the_turn_before_it():
    tok = tokenizer("<s> $A", TURNS)
    reply = reply_tokens(tok, WITH_TOOLS, ["hello"], ended=True)
    assert words(tok, reply) == ["[TURN]", "tool", "hello", "[/TURN]", "[TURN]", "assistant"]
    cut = reply_tokens(tok, WITH_TOOLS, ["hello"], ended=False)
    assert words(tok, cut)[:2] == ["[/TURN]", "[TURN]"]


def test_a_prompt_shows_its_special_tokens():
    tok = tokenizer("<s> $A", TURNS)
    shown = marked(tok, encode(tok, [rendered(tok, "hello")])[0])
    assert shown == "⟦[TURN]⟧user hello⟦[/TURN]⟧⟦[TURN]⟧assistant"


@pytest.mark.parametrize(
    ("config", "room"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 512}, 512),
        ({"max_seq_len": 300}, 300),
        ({"text_config": {"max_position_embeddings": 131_072}}, 131_072),
        ({"llm_config": {"n_positions": 77}}, 77),
        ({"vision_config": {"max_position_embeddings": 64}}, None),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_the_room_of_a_model_by_every_name(config, room):
    assert positions_of(config) == room


def test_a_table_of_positions_that_is_too_short_is_named():
    assert positions_of(GPT2Config(n_positions=40)) == 40
    with pytest.raises(
        ModelError, match="GPT2LMHeadModel has 64 positions, too few for a prompt of 3"
    ):
        CacheEngine(gpt2()).prefill([[1, 5, 6]], 62)
