"""The records of tokens hold the loss's own numbers, change no bit, and stay within the size that
was foretold."""

import itertools

import pytest
import torch

from rpg.backends.local.training_loop import train
from rpg.planning.space import disk, token_records
from rpg.store.token_records import read_records, recorded_steps, records_path
from tests.tiny import make_run, make_spec, make_trainer

ALL = {"every": 1, "groups": 1000, "most_tokens": 10**9}
"""Of every response."""


def flat(rows, name):
    return torch.tensor([value for row in rows for value in row[name]], dtype=torch.float64)


@pytest.mark.parametrize("name", ["grpo", "rpg-urkl", "rpg-reinforce-ufkl", "gspo"])
def test_the_numbers_are_those_of_the_loss(home, name):
    """With all responses in one update: means are the metrics, and the slopes give the gradient, by
    a pass of their own."""
    prompts = make_spec().training.prompts_per_step
    algorithm = {"name": name, "dynamic_sampling": False}
    algorithm |= {"beta": 0.5, "reference": "fixed"} if name != "gspo" else {}
    training = {
        "mini_batch_prompts": prompts,
        "token_records": ALL,
        "optimizer": {"learning_rate": 3e-3},
    }
    spec = make_spec(algorithm=algorithm, training=training, rollout={"staleness": 1})
    trainer = make_trainer(spec, home)
    trainer.step(1)
    trainer.step(2)
    found = {}
    inner = trainer.optimizer.step
    make_experience = trainer._experience
    trainer._experience = lambda graded, *rest: make_experience(
        found.setdefault("graded", graded), *rest
    )

    def step(*arguments):
        found["gradient"] = torch.cat([p.grad.flatten() for p in trainer.policy.model.parameters()])
        batch = found["graded"].samples.batch
        slopes = batch.placed(flat(trainer.recorder.rows(), "slope").float())
        log_prob = trainer.policy.log_probs(batch, spec.rollout.temperature)
        parts = torch.autograd.grad(log_prob, list(trainer.policy.model.parameters()), slopes)
        found["from slopes"] = torch.cat([part.flatten() for part in parts])
        return inner(*arguments)

    trainer.optimizer.step = step
    metrics = trainer.step(3)
    rows = trainer.recorder.rows()
    assert found["from slopes"].allclose(found["gradient"], rtol=1e-3, atol=1e-7)
    policy, old, sampler, reference = (
        flat(rows, of) for of in ("policy", "old", "sampler", "reference")
    )
    ratio = flat(rows, "ratio")
    clipped = flat(rows, "clipped")
    assert metrics["ratio_max"] == pytest.approx(float(ratio.max()), rel=1e-5)
    assert ratio.std() > 1e-4
    assert metrics["clip_fraction"] == pytest.approx(float((clipped > 0).double().mean()), abs=1e-6)
    assert metrics["kl_policy_to_ref"] == pytest.approx(float(flat(rows, "kl").mean()), rel=1e-4)
    assert old.allclose(sampler)  # the loss corrects for the staler sampler by its ratio
    if name != "gspo":  # whose ratio is one of a whole response
        assert ratio.allclose((policy - old).exp(), rtol=1e-4)
        d = policy - reference
        assert flat(rows, "kl").allclose(
            (policy - old).exp() * ((-d).exp() - 1 + d), rtol=1e-2, atol=1e-5
        )
    if (
        name == "grpo"
    ):  # by hand: clipped surrogate and k3, each response's mean, then over responses
        lengths = torch.tensor([len(row["ids"]) for row in rows for _ in row["ids"]])
        kl_slope = 1 - (-(policy - reference)).exp()
        surrogate = torch.where(clipped > 0, 0, ratio * flat(rows, "advantage"))
        slope = (0.5 * kl_slope - surrogate) / lengths / len(rows)
        assert flat(rows, "slope").allclose(slope, rtol=1e-3, atol=1e-7)
    for row in rows:
        assert trainer.policy.tokenizer.decode(row["ids"]) == "".join(row["tokens"])


def test_the_reference_of_a_kl_over_whole_distributions_is_recorded(home):
    algorithm = {"name": "grpo", "kl": {"type": "distribution"}, "beta": 0.5, "reference": "fixed"}
    trainer = make_trainer(make_spec(algorithm=algorithm, training={"token_records": ALL}), home)
    trainer.step(1)
    trainer.step(2)
    old, reference = (flat(trainer.recorder.rows(), name) for name in ("old", "reference"))
    assert (old - reference).abs().max() > 1e-3


def test_recording_changes_no_bit_and_stays_within_its_budget(home):
    """A prompt's group is kept whole or not at all, every `every` steps, in no more bytes than
    foretold."""
    kept = []
    for number, records in enumerate(
        ({"every": 0}, {"every": 2, "groups": 2, "most_tokens": 10**6})
    ):
        spec = make_spec(training={"token_records": records, "steps": 4})
        folder = make_run(home, f"run-{number}", spec)
        train(folder, home, lambda line: None)
        kept.append((folder.read_metrics()[-1]["grad_norm"], recorded_steps(folder)))
    assert kept[0][0] == kept[1][0]
    assert [steps for _, steps in kept] == [[], [2, 4]]
    rows = read_records(folder, 4)
    groups = [len(list(part)) for _, part in itertools.groupby(rows, key=lambda row: row["prompt"])]
    assert groups == [spec.rollout.group_size] * 2
    assert (
        0 < sum(records_path(folder, step).stat().st_size for step in (2, 4)) <= token_records(spec)
    )
    trainer = make_trainer(
        make_spec(training={"token_records": {"every": 1, "most_tokens": 1}}), home
    )
    trainer.step(1)
    assert trainer.recorder.rows() == []


@pytest.mark.parametrize("backend", ["local", "verl"])
def test_the_disk_that_is_foretold_includes_them(backend):
    parts = [{"token_records": {"every": every}} for every in (0, 2)]
    none, some = (make_spec(backend={"type": backend}, training=part) for part in parts)
    more = disk(some, 16).after - disk(none, 16).after
    assert more == pytest.approx(token_records(some))
    assert more > 0
