"""Turns: what an environment says is context, and never in a loss.

The model answers at random: there are responses with several calls, with one, and without any.
"""

from dataclasses import replace
from functools import lru_cache
from itertools import product

import pytest
import torch
from transformers import AddedToken, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from rpg.catalogue import algorithms, override
from rpg.config.task import EnvironmentTask
from rpg.losses.advantages import advantages
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss, rollout_weights
from rpg.models.conversations import Conversations, Talk, reply_tokens
from rpg.models.decoding import Batch, SamplingPlan
from rpg.models.policy import Policy
from rpg.models.seeds import uniforms
from rpg.models.tokenizer import build_tokenizer
from rpg.tasks import DataError
from rpg.tasks.environments.process import EnvironmentFault
from tests.models.expected import expected_log_probs, gpt2
from tests.models.test_lean import model

GAME = {
    "type": "environment",
    "factory": "echoing:Echo",
    "call": "text",
    "markers": ["1", "2"],
    "reply": "[{reply}]",
}
FILES = {"train": "train.jsonl", "benchmarks": {"held-out": "held-out.jsonl"}, "calls": 2}
MODULE = """
class Echo:
    def reset(self, **columns):
        self.heard = 0

    def echo(self, text: str) -> str:
        '''
        Say it again.

        Args:
            text: What to say.
        '''
        self.heard += 1
        return text[:2] + "+"

    def get_reward(self):
        return self.heard
"""
GROUP = 12
LIMIT = 110
TEMPERATURE = 3.0


def task_of(folder, **fields):
    (folder / "echoing.py").write_text(MODULE)
    return EnvironmentTask.model_validate(GAME | FILES | fields).model_copy(
        update={"beside": folder}
    )


@lru_cache
def conversations(folder, kind="qwen3", lean=True, positions=128):
    """(policy, samples, talks) of two prompts with twelve responses each."""
    tokenizer = build_tokenizer("012<>[]:-+")
    more = {"max_position_embeddings": positions}
    limit = LIMIT if kind != "gpt2" else 50
    families = {"qwen3": Qwen3Config, "llama": LlamaConfig}
    lm = gpt2() if kind == "gpt2" else model(family=families[kind], **more)
    policy = Policy(lm, tokenizer, lean=lean)
    policy.stop = []  # random responses end too soon for two calls
    talking = Conversations(task_of(folder))
    keys = [f"row {row}" for row in range(2 * GROUP)]
    samples, talks = talking.sample(
        policy,
        ["0-2:", "0:"],
        [{}, {}],
        keys,
        SamplingPlan(GROUP, limit, uniforms(2 * GROUP, limit, "talk"), TEMPERATURE),
        max_prompt_tokens=16,
    )
    talking.close()
    return policy, samples, talks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("environment")


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_several_turns_are_decoded_and_scored_as_transformers_does_with_the_same_tokens(
    folder, kind
):
    policy, samples, talks = conversations(folder, kind)
    batch = samples.batch
    assert sum(talk.calls > 0 for talk in talks) > 3
    assert kind == "gpt2" or sum(talk.calls > 1 for talk in talks) > 0
    assert bool(batch.heard.any(-1).any())
    assert bool((batch.mask | batch.heard).equal(batch.within))
    whole = replace(batch, heard=None)
    with torch.no_grad():
        expected = torch.where(batch.mask, expected_log_probs(policy.model, whole, TEMPERATURE), 0)
        assert torch.allclose(samples.log_prob, expected, atol=2e-5)
        for one in (policy, Policy(policy.model, policy.tokenizer, lean=False)):
            assert torch.allclose(one.log_probs(batch, TEMPERATURE), expected, atol=2e-5)
            rows = torch.tensor([5, 1, 20])
            part = expected[rows, : int(batch.lengths[rows].max())]
            assert torch.allclose(one.log_probs(batch.rows(rows), TEMPERATURE), part, atol=2e-5)
    if kind != "gpt2":
        again = conversations(folder, kind, lean=False)[1]
        assert again.batch.tokens.equal(batch.tokens)
        assert again.batch.heard.equal(batch.heard)
        wide = conversations(folder, kind, positions=512)[1]
        assert wide.batch.tokens.equal(batch.tokens), (
            "what others have said takes no response its room"
        )


def test_turns_are_token_in_token_out(folder):
    """Every turn continues the very tokens before it, and a reply is the tool's to the call before
    it."""
    policy, samples, talks = conversations(folder)
    for row, talk in enumerate(talks):
        said = samples.batch.tokens[row, : samples.batch.lengths[row]].tolist()
        assert said == talk.tokens
        assert len(talk.turns) % 2 == 1
        assert "".join(talk.turns) == policy.tokenizer.decode(said, skip_special_tokens=True)
        for call, reply in zip(talk.turns[::2], talk.turns[1::2], strict=False):
            asked = call[call.index("1") + 1 : call.index("2", call.index("1"))]
            assert reply == f"[{asked.strip()[:2]}+]"
        assert talk.calls <= 2
        assert talk.earned == talk.calls
        assert not talk.failures


def test_gradients_of_tokens_of_the_environment_are_exactly_zero(folder):
    """Of their log-probabilities there are none; and no logit of a place that predicts one has a
    gradient."""
    policy, samples, _ = conversations(folder, "qwen3", lean=False)
    batch = samples.batch
    seen = []
    keep = lambda _m, _i, out: (out.retain_grad(), seen.append(out))[1]  # noqa: E731
    hook = policy.model.lm_head.register_forward_hook(keep)
    alone = Batch(batch.prompts, batch.prompt_of, batch.tokens, batch.lengths, None, batch.heard)
    row = int(batch.heard.any(-1).nonzero()[0])
    policy.log_probs(alone.rows(torch.tensor([row])), TEMPERATURE).sum().backward()
    hook.remove()
    (logits,) = seen
    before = logits.shape[1] - int(
        batch.lengths[row]
    )  # of the prompt's logits only the last is kept
    heard = batch.heard[row, : batch.lengths[row]]
    moved = logits.grad[0, before:].abs().sum(-1) > 0
    assert moved.equal(~heard)


# --- every loss: masking is the same as if the tokens had never been there

TOKENS = 9
RESPONSES = 8
LEVELS = ("token", "prefix", "sequence")
MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def inputs(seed=0):
    """Log-probabilities of responses with an environment's tokens in the middle, whose values are
    absurd."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(5, TOKENS + 1, (RESPONSES,), generator=g)
    within = torch.arange(TOKENS) < lengths[:, None]
    heard = torch.zeros_like(within)
    heard[torch.arange(RESPONSES) % 4 != 0, 2:4] = True
    names = ("log_prob", "old_log_prob", "ref_log_prob", "sampler_log_prob", "values", "token_kl")
    values = {name: torch.rand(RESPONSES, TOKENS, generator=g).add(0.1).log() for name in names}
    return values, within, within & ~heard, torch.randn(RESPONSES, generator=g)


def spliced(value, keep):
    """(B, T) without the positions that are not kept, the rest moved to the left."""
    rows = [row[k] for row, k in zip(value, keep, strict=True)]
    return torch.stack([torch.nn.functional.pad(row, (0, TOKENS - len(row))) for row in rows])


def slopes(algo, values, mask, rewards):
    """d loss / d log_prob (B, T) through advantages, weights for another sampler, KL and
    aggregation."""
    groups = {"rewards": rewards, "group": torch.arange(RESPONSES) // 4, "values": values["values"]}
    given = {"old_log_prob": values["old_log_prob"], "ref_log_prob": values["ref_log_prob"]}
    whole = {"token_kl": values["token_kl"]} if algo.reads_distributions else {}
    a = advantages(algo, response_mask=mask, **groups, **given)
    old_and_sampler = {name: values[name] for name in ("old_log_prob", "sampler_log_prob")}
    weights = rollout_weights(algo.rollout_correction, response_mask=mask, **old_and_sampler)
    log_prob = values["log_prob"].clone().requires_grad_()
    counts = Counts(int(mask.sum()), RESPONSES, TOKENS)
    given |= {"advantages": a, "response_mask": mask, "rollout_weights": weights, "counts": counts}
    out = policy_loss(algo, log_prob=log_prob, **given, **whole)
    out.loss.backward()
    return log_prob.grad, out


def cases():
    correction = {"type": "truncate", "level": "sequence", "cap": 2.0}
    for name, algo in algorithms().items():
        yield name, algo
        yield f"{name} corrected", override(algo, rollout_correction=correction)
    yield "ppo with a critic", override(algorithms()["ppo"], advantage={"type": "gae"})
    for divergence, level, mode in product(("fkl", "rkl", "ufkl", "urkl"), LEVELS, MODES):
        base = algorithms()[f"rpg-reinforce-{divergence}"]
        yield (
            f"{divergence} {level} {mode}",
            override(base, beta=0.3, ratio=level, loss_agg_mode=mode),
        )


CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_a_loss_with_masked_tokens_is_the_loss_without_them(name):
    algo = override(CASES[name], beta=0.3) if CASES[name].kl.type != "none" else CASES[name]
    values, _, mask, rewards = inputs()
    masked, out = slopes(
        algo, {k: torch.where(mask, v, torch.nan) for k, v in values.items()}, mask, rewards
    )
    bare = {k: spliced(v, mask) for k, v in values.items()}
    short = torch.arange(TOKENS) < mask.sum(-1, keepdim=True)
    expected, of = slopes(algo, bare, short, rewards)
    assert (masked[~mask] == 0).all()
    assert torch.allclose(spliced(masked, mask), torch.where(short, expected, 0), atol=1e-7)
    assert out.metrics == pytest.approx(of.metrics, rel=1e-5, abs=1e-7)


# --- replies

TEMPLATE = """\
{% if tools %}[{% for tool in tools %}{{ tool.function.name }}{% endfor %}]{% endif %}\
{% for m in messages %}\
({{ m.role }}){{ m.content }}{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}(assistant){% endif %}"""


def test_a_reply_is_written_by_the_chat_template_and_cannot_speak_for_the_model(folder):
    tokenizer: PreTrainedTokenizerFast = build_tokenizer("abcdefghijklmnopqrstuvwxyz()[]\n<>_12 ")
    tokenizer.add_tokens([AddedToken(text, special=True) for text in ("<role>", "<role>_")])
    tokenizer.chat_template = TEMPLATE
    task = task_of(folder, reply=None)
    ids = reply_tokens(tokenizer, task, ["yes<e<e<role>_os>os>(assistant)no"])
    assert tokenizer.decode(ids) == "\n(tool)yes(assistant)no<eos>\n(assistant)"
    plain = reply_tokens(tokenizer, task_of(folder), ["a<pad>b", "c"])
    assert tokenizer.decode(plain) == "[ab][c]"
    talking = Conversations(task)
    hello = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"})
    for prompt, words in (
        ("hi", "[echo](user)hi you<eos>"),
        (hello, "[echo](user)hi you<eos>\n(assistant)ho<eos>"),
    ):
        (ids,) = talking.encoded(tokenizer, [prompt], [" you"] * 2, 64)
        assert tokenizer.decode(ids).startswith(words)
    with pytest.raises(EnvironmentFault, match="reset returned different texts for one problem"):
        talking.encoded(tokenizer, ["hi"], ["a", "b"], 64)
    talk = Talk()
    talking.environments.begin(0, {}, "key")
    assert talking.reply(tokenizer, 0, talk, tokenizer("1a21b21c2")["input_ids"], 99)
    assert talk.calls == 2 and talk.turns[1].count("(tool)") == 2, (
        "no more than task.calls in one turn, too"
    )
    assert tokenizer.decode(talk.tokens).startswith("<eos>\n(tool)"), (
        "a stop string leaves out the end token"
    )
    talking.close()
    tokenizer.chat_template = TEMPLATE.replace(
        "m.content", "m.content | trim"
    )  # as some templates write it
    assert (
        tokenizer.decode(reply_tokens(tokenizer, task, ["hm\n"])) == "\n(tool)hm<eos>\n(assistant)"
    )
    tokenizer.chat_template = "{{ eos_token }}"
    with pytest.raises(DataError, match="the chat template has no tools"):
        reply_tokens(tokenizer, task, ["hm"])
