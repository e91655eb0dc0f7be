"""Samples, and log-probabilities as a plain forward pass of transformers gives them, each response
with its own prompt."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rpg.models.decoding import SamplingPlan, generate
from rpg.models.seeds import uniforms


def gpt2(layers=2):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=19,
        n_embd=32,
        n_layer=layers,
        n_head=2,
        n_positions=64,
        initializer_range=0.3,
        eos_token_id=2,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def sampled(
    engine, prompts, group_size=4, limit=12, key="test", stop=(2,), temperature=0.7, **options
):
    """Responses that depend on `key` only; engines that are right give the same ones."""
    stopper = options.pop("stopper", None)
    if "uniforms" not in options:
        options["uniforms"] = uniforms(len(prompts) * group_size, limit, key)
    plan = SamplingPlan(group_size, limit, temperature=temperature, **options)
    return generate(engine, prompts, plan, stop=stop, stopper=stopper)


def expected_log_probs(model, batch, temperature):
    """(N, T), zero after a row's last token; differentiable."""
    rows = []
    lengths = batch.lengths.tolist()
    for prompt, tokens, length in zip(batch.prompt_of.tolist(), batch.tokens, lengths, strict=True):
        start = torch.tensor(batch.prompts[prompt], device=tokens.device)
        logits = (
            model(torch.cat([start, tokens[: length - 1]])[None], use_cache=False).logits[0].float()
        )
        log_p = (logits[len(start) - 1 :] / temperature).log_softmax(-1)
        values = log_p.gather(1, tokens[:length, None])[:, 0]
        rows.append(torch.nn.functional.pad(values, (0, len(tokens) - length)))
    return torch.stack(rows)


def log_probs(implementation, model, batch, temperature):
    """Those of `rpg.models.lean` or `rpg.models.generic_model`."""
    return implementation.scored(model, batch, temperature).log_prob
