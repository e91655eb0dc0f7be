"""Log-probabilities as a plain forward pass of transformers gives them, each response with its own prompt."""

import torch


def expected_log_probs(model, batch, temperature):
    """(N, T), zero after a row's last token; differentiable."""
    rows = []
    for prompt, tokens, length in zip(
        batch.prompt_of.tolist(), batch.tokens, batch.lengths.tolist(), strict=True
    ):
        start = torch.tensor(batch.prompts[prompt], device=tokens.device)
        logits = model(torch.cat([start, tokens[: length - 1]])[None], use_cache=False).logits[0].float()
        log_p = (logits[len(start) - 1 :] / temperature).log_softmax(-1)
        values = log_p.gather(1, tokens[:length, None])[:, 0]
        rows.append(torch.nn.functional.pad(values, (0, len(tokens) - length)))
    return torch.stack(rows)


def log_probs(implementation, model, batch, temperature):
    """Those of `rpg.models.lean` or `rpg.models.generic_model`."""
    return implementation.log_probs_and_entropy(model, batch, temperature, entropy=False)[0]
