"""A KL to another model: what it trains, exactly; what is refused; that a killed training goes on
to the same bits."""

import itertools
import shutil

import pytest
import torch
from pydantic import ValidationError
from transformers import GPT2Config, GPT2LMHeadModel

import rpg
from rpg.backends.local import next_tokens
from rpg.backends.local.reference import Reference
from rpg.backends.local.training_loop import train
from rpg.losses.advantages import advantages
from rpg.models.decoding import Batch, Scored
from rpg.models.initial_policy import initial_policy
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.models.teacher import teacher_of
from rpg.models.tokenizer import build_tokenizer
from rpg.planning.model_shapes import shape_and_source
from rpg.planning.space import memory
from tests.local.test_trainer import LIMITS, gradients_of
from tests.losses.test_teacher_kl import by_definition
from tests.tiny import (
    Killed,
    killed_in,
    make_run,
    make_spec,
    make_trainer,
    numbers,
    whole_and_resumed,
)


def quiet(line):
    pass


@pytest.fixture(scope="module")
def student(home):
    return initial_policy(make_spec(), home, quiet)


@pytest.fixture(scope="module")
def teacher(home, student):
    """The folder of a GPT-2 of random weights with the tiny models' tokens."""
    return save_gpt2(home / "teacher", student.tokenizer)


def save_gpt2(folder, tokenizer, seed=3):
    torch.manual_seed(seed)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.5}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    ends["bos_token_id"] = None
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **ends)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def distilled(folder, algorithm=None, **changes):
    """A run whose only objective is the KL: the reward has weight 0."""
    settings = {
        "name": "rpg-urkl",
        "beta": 1.0,
        "clip": None,
        "dynamic_sampling": False,
        "overlong": None,
    }
    settings |= {"reference": {"type": "model", "path": str(folder)}, **(algorithm or {})}
    return make_spec(algorithm=settings, reward={"type": "correctness", "weight": 0.0}, **changes)


# --- the gradient, by enumeration of all responses


def every_response(size):
    """All responses of two tokens to one prompt; nothing ends one early."""
    tokens = torch.tensor(list(itertools.product(range(size), repeat=2)))
    none = torch.zeros(len(tokens), dtype=torch.long)
    return Batch([[4, 7, 5]], none, tokens, none + 2)


def sequence_log_probs(model, batch):
    """(N,) log-probabilities of whole responses, from the model's own forward pass."""
    ids = torch.cat([torch.tensor(batch.prompts).expand(len(batch), -1), batch.tokens], dim=1)
    logits = model(ids).logits[:, -3:-1].double()
    return logits.log_softmax(-1).gather(-1, batch.tokens[..., None]).sum((-1, -2))


def gradient(value, model):
    gradients = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in gradients])


def perturbed(policy, size):
    copy = policy.frozen_copy()
    torch.manual_seed(0)
    with torch.no_grad():
        for value in copy.model.parameters():
            value += size * torch.randn_like(value)
    return copy


@pytest.mark.parametrize(
    "name", ["rpg-rkl", "rpg-fkl", "rpg-reinforce-rkl", "rpg-reinforce-fkl", "reward"]
)
def test_the_gradient_is_that_of_the_kl_to_the_teacher(home, student, teacher, name):
    """E over the sampler's responses of the loss's gradient, against autograd through the KL of the
    two models' joint distributions over all responses, with the reward's weight zero. The sampler
    is another policy, but for the policy gradient that has no ratio."""
    spec = distilled(teacher)
    sampler = perturbed(student, 0.05 * (name != "reward"))
    model = student.frozen_copy().model.requires_grad_(True)
    policy = Policy(model, student.tokenizer)
    batch = every_response(len(student.tokenizer))
    reference = Reference(spec.algorithm, teacher_of(spec, student.tokenizer, home, quiet))
    ref = reference.log_probs(batch, 1.0, LIMITS)
    with torch.no_grad():
        old = sampler.log_probs(batch, 1.0)
    p_old = old.double().sum(-1).exp()
    mask = torch.ones(len(batch), 2, dtype=torch.bool)
    assert float(p_old.sum()) == pytest.approx(1, abs=1e-4)
    common = {
        "beta": 1.0,
        "loss_agg_mode": "seq-mean-token-sum",
        "reference": spec.algorithm.reference,
    }
    if name == "reward":
        algo = rpg.algorithm("rloo", advantage="none", **common)
    else:
        algo = rpg.algorithm(name, clip=None, ratio="sequence", dynamic_sampling=False, **common)
    rows = {"old_log_prob": old, "ref_log_prob": ref, "response_mask": mask}
    group = torch.zeros(len(batch), dtype=torch.long)
    given = advantages(algo, rewards=torch.zeros(len(batch)), group=group, **rows)
    weights = (len(batch) * p_old[:, None]).float()  # turns the mean over rows into an expectation
    log_prob = policy.log_probs(batch, 1.0)
    out = rpg.policy_loss(
        algo, log_prob=log_prob, advantages=given, rollout_weights=weights, **rows
    )
    found = gradient(out.loss, model)

    now = sequence_log_probs(model, batch)
    theirs = sequence_log_probs(reference.policy.model, batch).detach()
    reverse = (now.exp() * (now - theirs)).sum()
    forward = (theirs.exp() * (theirs - now)).sum()
    meant, other = (forward, reverse) if name.endswith("fkl") else (reverse, forward)
    meant = gradient(meant, model)
    other = gradient(other, model)
    assert (found - meant).norm() < 1e-3 * meant.norm()
    assert meant.norm() > 1e-3
    assert (found - other).norm() > 0.1 * other.norm(), "the two directions have to differ here"


# --- runs


def test_without_a_reward_the_policy_comes_closer_to_its_teacher(home, teacher):
    spec = distilled(teacher, training={"steps": 6, "optimizer": {"learning_rate": 3e-3}})
    trainer = make_trainer(spec, home)
    rows = [trainer.step(step) for step in range(1, 7)]
    assert all(row["reward"] == 0 for row in rows)
    assert rows[-1]["kl_policy_to_ref"] < 0.8 * rows[0]["kl_policy_to_ref"]


def test_a_killed_distillation_goes_on_to_the_same_bits_and_refuses_another_teacher(
    home, student, teacher
):
    own = shutil.copytree(teacher, home / "own")
    spec = distilled(own, training={"steps": 4}, evaluation={"every": 4})
    whole = make_run(home, "taught-whole", spec)
    parts = make_run(home, "taught-parts", spec)
    train(whole, home, quiet)
    with pytest.raises(Killed):
        train(parts, home, killed_in(2))
    save_gpt2(own, student.tokenizer, seed=4)
    with pytest.raises(
        ModelError, match=r"reference.path: the weights of the teacher .* began with"
    ):
        train(parts, home, quiet)
    shutil.rmtree(own)
    shutil.copytree(teacher, own)
    train(parts, home, quiet)
    assert numbers(parts) == numbers(whole)
    assert len(numbers(whole)) == 4


@pytest.mark.parametrize(
    ("kl", "chunked"),
    [
        ({"divergence": "rkl"}, False),
        ({"divergence": "fkl", "top_k": 3}, True),
        ({"mix": 0.2}, True),
    ],
)
def test_the_gradient_of_whole_distributions_is_that_of_all_logits(
    home, teacher, monkeypatch, kl, chunked
):
    """A step's gradient, against autograd through all logits of both models, each response by
    itself."""
    kl = {"type": "distribution", "divergence": "jsd"} | kl
    changes = {"training": {"prompts_per_step": 4, "mini_batch_prompts": 4}}
    spec = distilled(teacher, algorithm={"name": "opd-jsd", "kl": kl}, **changes)
    trainer = make_trainer(spec, home)
    if chunked:
        monkeypatch.setattr(next_tokens, "_PLAIN", 0)
        monkeypatch.setattr(next_tokens, "_PART", 200)
    batch = trainer.roller.roll(trainer.policy, 1).kept.samples.batch
    models = (trainer.policy.model, trainer.reference.policy.model)
    total = 0.0
    exact = 0.0
    tokens = 0
    for row, length in zip(range(len(batch)), batch.lengths.tolist(), strict=True):
        prompt = batch.prompts[int(batch.prompt_of[row])]
        ids = torch.tensor([prompt + batch.tokens[row, :length].tolist()])
        p, q = (model(ids).logits[0, len(prompt) - 1 : -1].double().softmax(-1) for model in models)
        tokens = tokens + length
        exact = exact + float((p * (p / q).log()).sum().detach())
        total = total + by_definition(spec.algorithm.kl, p, q.detach())
    meant = gradient(total / tokens, trainer.policy.model)
    gradients = gradients_of(trainer)
    metrics = trainer.step(1)
    assert (gradients[0] - meant).norm() < 1e-4 * meant.norm()
    assert metrics["kl_policy_to_ref"] == pytest.approx(exact / tokens, rel=1e-4)
    assert ("ref_mass_left_out" in metrics) == ("top_k" in kl)


def test_no_matrix_of_tokens_and_vocabulary_is_kept_for_the_backward_pass(monkeypatch):
    tokens = 500
    vocabulary = 300
    kl = rpg.algorithm("opd-jsd").kl

    def largest():
        sides = [(torch.randn(tokens, 8), torch.randn(vocabulary, 8)) for _ in "ab"]
        ours, theirs = (Scored(torch.zeros(1), None, *side) for side in sides)
        ours.states.requires_grad_()
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        ):
            value, _ = next_tokens.next_token_kl(kl, ours, theirs, 1.0)
        value.sum().backward()
        return max(sizes, default=0)

    assert largest() >= tokens * vocabulary
    monkeypatch.setattr(next_tokens, "_PLAIN", 0)
    monkeypatch.setattr(next_tokens, "_PART", 10 * vocabulary)
    assert largest() <= 10 * vocabulary


def test_gkd_mixes_demonstrations_and_goes_on_to_the_same_bits(home, teacher):
    changes = {"training": {"steps": 3}, "evaluation": {"every": 3}}
    spec = distilled(teacher, algorithm={"name": "gkd"}, **changes)
    trainer = make_trainer(spec, home)
    sampled = trainer.roller.roll(trainer.policy, 1).kept
    mixed = trainer.roller.with_demonstrations(sampled, trainer.policy, 1)
    texts = trainer.policy.text(mixed.samples.batch)
    size = len(sampled)
    assert len(mixed) == size and mixed.correct[size // 2 :].all(), (
        "half of the groups are demonstrations"
    )
    assert set(texts[: size // 2]) <= set(trainer.policy.text(sampled.samples.batch))
    batch = mixed.samples.batch
    prompts = [trainer.policy.tokenizer.decode(batch.prompts[i]) for i in batch.prompt_of]
    assert len(set(prompts[size // 2 :])) > size // 4
    whole_and_resumed(home, "gkd", spec, 1)


def test_a_moving_average_of_the_policy_is_a_reference(home):
    algorithm = {"name": "rpg-urkl", "beta": 0.5, "reference": {"type": "ema", "decay": 0.75}}
    trainer = make_trainer(make_spec(algorithm=algorithm), home)
    average = {
        name: value.detach().clone() for name, value in trainer.policy.model.named_parameters()
    }
    for step in (1, 2):
        trainer.step(step)
        now = dict(trainer.policy.model.named_parameters())
        average = {
            name: 0.75 * value + 0.25 * now[name].detach() for name, value in average.items()
        }
    for name, value in trainer.reference.policy.model.named_parameters():
        torch.testing.assert_close(value, average[name])


# --- what is refused, and what it costs


def test_a_teacher_with_other_tokens_is_refused_by_both_names(home, student):
    folder = save_gpt2(home / "other", build_tokenizer("abcdefghijklmnopqrstuvwxyz?!"))
    with pytest.raises(
        ModelError, match=r"algorithm.reference.path: .*other' and .* differ in \d+ of their"
    ):
        teacher_of(distilled(folder), student.tokenizer, home, quiet)
    with pytest.raises(ModelError, match=r"algorithm.reference.path: .* config.json is missing"):
        teacher_of(distilled(home), student.tokenizer, home, quiet)


def test_what_verl_cannot_do_with_a_teacher_is_refused_before_anything_starts(teacher):
    words = r"reference model: with model.lora, backend verl .* accepted: fixed"
    with pytest.raises(ValidationError, match=words):
        distilled(teacher, backend={"type": "verl"}, model={"lora": {"rank": 2}})
    with pytest.raises(
        ValidationError, match=r"algorithm.kl distribution: backend verl .* not of the whole"
    ):
        make_spec(algorithm={"name": "opd-rkl", "reference": "fixed"}, backend={"type": "verl"})
    with pytest.raises(ValidationError, match=r"algorithm.reference.path: gkd needs a teacher"):
        make_spec(algorithm="gkd")
    with pytest.raises(
        ValidationError, match=r"rollout.top_p: kl of type distribution compares whole"
    ):
        distilled(teacher, algorithm={"name": "opd-rkl"}, rollout={"top_p": 0.9})


def test_the_teacher_counts_as_memory_where_it_is_read(home, student):
    folder = home / "qwen"
    student.model.save_pretrained(folder)
    without = memory(distilled(folder, algorithm={"reference": {"type": "old"}}))
    size = 4 * shape_and_source(str(folder))[0].parameters
    assert memory(distilled(folder)).fixed - without.fixed == size > 0
    assert memory(distilled(folder, algorithm={"beta": 0.0})).fixed == without.fixed
