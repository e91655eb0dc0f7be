"""Training steps: what is reported, what decides the bits, and what every setting changes."""

import math
from dataclasses import replace

import pytest
import torch

from rpg.backends.local.trainer import TrainingError
from rpg.backends.prompts import PromptOrder
from rpg.models.micro_batches import Limits, score
from rpg.models.policy import Policy
from tests.tiny import make_spec, make_trainer

NAMES = """step optimizer_step reward accuracy entropy loss
kl_old_to_policy kl_policy_to_old kl_ref_to_policy kl_policy_to_ref ratio_mean ratio_max ess
clip_fraction clip_fraction_upper clip_fraction_lower clip_fraction_dual grad_norm grad_norm_max
response_length truncation_rate learning_rate groups_sampled groups_kept tokens
tokens_per_second seconds_rollout seconds_reward seconds_log_prob seconds_update seconds_step
reference_age ratio_p01 ratio_p50 ratio_p99 kl_gradient_share
entropy_correct entropy_wrong""".split()
LIMITS = Limits(rows=128, tokens=10**9, tokens_of_long=10**9)
NO_KL = {"kl_gradient_share"}
"""What an algorithm without a KL in its loss does not report."""


def make(home, lean=True, **changes):
    return make_trainer(make_spec(**changes), home, lean)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.policy.model.parameters()])


def plain(metrics):
    return {
        k: v for k, v in metrics.items() if not k.startswith("seconds") and k != "tokens_per_second"
    }


def gradients_of(trainer):
    """A list that gets all gradients in one row at each optimizer step."""
    gradients = []
    inner = trainer.optimizer.step

    def step(*args):
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.optimizer.parameters]))
        return inner(*args)

    trainer.optimizer.step = step
    return gradients


def trained(home, steps=2, **changes):
    trainer = make(home, **changes)
    rows = [plain(trainer.step(s)) for s in range(1, steps + 1)]
    return weights(trainer), rows, trainer


ALGORITHMS = """grpo grpo-corrected dr-grpo dapo reinforce-pp reinforce-pp-baseline
rloo gpg gspo cispo reinforce ppo rpg-fkl rpg-rkl rpg-ufkl rpg-urkl
rpg-reinforce-fkl rpg-reinforce-rkl rpg-reinforce-ufkl
rpg-reinforce-urkl""".split()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_and_reports_every_metric(home, name):
    trainer = make(home, algorithm=name)
    before = weights(trainer)
    row = trainer.step(1)
    assert not before.equal(weights(trainer))
    assert set(NAMES) - NO_KL <= set(row) <= set(NAMES)
    assert ("kl_gradient_share" in row) is (trainer.spec.algorithm.kl.type in ("loss", "objective"))
    assert 0 < row["ratio_p01"] <= row["ratio_p50"] <= row["ratio_p99"]
    assert all(math.isfinite(value) for value in row.values())
    assert row["step"] == 1
    assert row["optimizer_step"] == trainer.optimizer_step == 2
    assert row["tokens"] > 0
    assert 0 < row["accuracy"] < 1
    assert 0 < row["entropy"] < math.log(33)
    assert row["groups_kept"] <= row["groups_sampled"]
    assert row["ratio_max"] >= row["ratio_mean"] > 0
    assert 0 < row["ess"] <= 1 + 1e-6
    assert row["grad_norm_max"] >= row["grad_norm"] > 0


def test_the_share_of_the_kl_in_the_gradient_is_what_beta_and_the_reference_make_it(home):
    shares = []
    for beta in (1e-4, 1.0, 1e4):
        reference = {"type": "every_k", "k": 100}
        algorithm = {"name": "rpg-urkl", "clip": None, "beta": beta, "reference": reference}
        rows = trained(
            home, steps=3, algorithm=algorithm, training={"optimizer": {"learning_rate": 1e-3}}
        )[1]
        shares.append(rows[-1]["kl_gradient_share"])
    assert 0 < shares[0] < 0.01 < shares[1] < 0.99 < shares[2] < 1


def test_the_gradient_is_held_against_the_exact_one(home):
    """Exact losses without a clip are their own target; everything that bends a gradient shows."""

    def measured(staleness=0, **algorithm):
        algorithm = {"beta": 0.5, "reference": "fixed", "dynamic_sampling": False, **algorithm}
        changes = {"optimizer": {"learning_rate": 3e-3}, "fidelity_every": 2}
        stale = {"staleness": staleness}
        rows = trained(home, steps=4, algorithm=algorithm, training=changes, rollout=stale)[1]
        assert ["gradient_cosine" in row for row in rows] == [False, True, False, True]
        return rows[-1]["gradient_cosine"], rows[-1]["gradient_bias"]

    exact = [{"name": name} for name in ("rpg-urkl", "rpg-reinforce-ufkl", "grpo-corrected")]
    for own in (
        *exact,
        *({"name": "rpg-urkl", "ratio": level} for level in ("prefix", "sequence")),
    ):
        assert measured(**own, clip=None, staleness=1) == pytest.approx((1, 0), abs=1e-4), own
    for bent in (
        {"name": "grpo", "clip": None},
        {"name": "rpg-urkl", "clip": {"low": 0.01, "high": 0.01}},
        {"name": "rpg-urkl", "clip": None, "rollout_correction": "ignore"},
    ):
        cosine, bias = measured(**bent, staleness=1)
        assert bias > 0.01 and cosine < 1 - 1e-5, bent


def test_measuring_the_gradient_changes_no_bit_of_the_training(home):
    algorithm = {"name": "rpg-urkl", "beta": 0.1}
    every = ({"fidelity_every": number} for number in (0, 1))
    plain_, measured = (
        trained(home, algorithm=algorithm, training=training)[0] for training in every
    )
    assert plain_.equal(measured)


def test_entropy_by_answer_adds_up(home):
    trainer = make(home)
    graded = trainer.roller.roll(trainer.policy, 1).first
    row = trainer.step(1)
    lengths = graded.samples.batch.lengths
    right = float(lengths[graded.correct].sum() / lengths.sum())
    whole = right * row["entropy_correct"] + (1 - right) * row["entropy_wrong"]
    assert whole == pytest.approx(row["entropy"], rel=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_truncated_rollout_is_on_policy_too(home, dynamic):
    """Also where groups are dropped and rounds joined; a reference beside it is a policy over the
    same tokens."""
    rollout = {"top_k": 4, "top_p": 0.9, "min_response_tokens": 2, "stop": ["7"]}
    algorithm = {
        "name": "rpg-rkl",
        "reference": {"type": "every_k", "k": 100},
        "dynamic_sampling": dynamic,
    }
    trainer = make(home, rollout=rollout, algorithm=algorithm, training={"mini_batch_prompts": 8})
    samples = trainer.roller.roll(trainer.policy, 1).first.samples
    texts = trainer.policy.text(samples.batch)
    assert any("7" in text for text in texts)
    assert all("7" not in text[2:-1] for text in texts)
    rows = [plain(trainer.step(step)) for step in (1, 2)]
    assert rows[0]["ratio_max"] == pytest.approx(1, abs=1e-4)
    assert abs(rows[0]["kl_policy_to_ref"]) < 1e-9 < rows[1]["kl_policy_to_ref"]
    assert rows[1]["ratio_max"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("mode", "lean"), [("token-mean", True), ("seq-mean-token-mean", False)])
def test_entropy_bonus_and_likelihood_of_right_responses_have_the_exact_gradient(home, mode, lean):
    """Of softmax entropies, averaged as the loss, and of VAPO's mean over tokens of right
    responses."""

    def first_gradient(coefficient, **training):
        training = {"mini_batch_prompts": 8, "entropy_coeff": coefficient, **training}
        algorithm = {"name": "grpo", "loss_agg_mode": mode, "positive_lm_loss": 2 * coefficient}
        trainer = make(
            home, lean, algorithm=algorithm, rollout={"temperature": 0.8}, training=training
        )
        gradients = gradients_of(trainer)
        parameters = trainer.optimizer.parameters
        graded = trainer.roller.roll(trainer.policy, 1).first
        batch = graded.samples.batch
        entropies = []
        right = batch.rows(graded.correct.nonzero()[:, 0])
        likelihood = trainer.policy.log_probs(right, 0.8)[right.mask].mean()
        for row, length in enumerate(batch.lengths.tolist()):
            ids = batch.prompts[batch.prompt_of[row]] + batch.tokens[row, :length].tolist()
            logits = trainer.policy.model(torch.tensor([ids])).logits[0, -length - 1 : -1] / 0.8
            entropies.append(torch.distributions.Categorical(logits=logits).entropy())
        mean = torch.cat(entropies).mean()
        if mode == "seq-mean-token-mean":
            mean = torch.stack([one.mean() for one in entropies]).mean()
        exact = torch.cat(
            [g.flatten() for g in torch.autograd.grad(mean + 2 * likelihood, parameters)]
        )
        metrics = trainer.step(1)
        assert ("policy_entropy" in metrics) is (coefficient > 0)
        if coefficient:
            assert metrics["policy_entropy"] == pytest.approx(
                torch.cat(entropies).mean().item(), rel=1e-4
            )
        return gradients[0], exact

    without, exact = first_gradient(0.0)
    for changes in ({}, {"micro_batch_rows": 5}):
        with_bonus, _ = first_gradient(0.3, **changes)
        assert ((with_bonus - without) + 0.3 * exact).norm() < 1e-4 * exact.norm()


def test_an_entropy_bonus_keeps_the_entropy_up_and_is_part_of_the_objective(home):
    """Its gradient counts as exact where the loss's is measured."""
    entropies = []
    for coefficient in (0.0, 3.0):
        training = {"entropy_coeff": coefficient, "fidelity_every": 1, "mini_batch_prompts": 8}
        training["optimizer"] = {"learning_rate": 1e-2}
        algorithm = {
            "name": "dr-grpo",
            "positive_lm_loss": coefficient / 30,
        }  # of the objective, too
        _, rows, _ = trained(home, steps=3, algorithm=algorithm, training=training)
        entropies.append(rows[-1]["entropy"])
        assert rows[0]["gradient_cosine"] > 0.999
    assert entropies[1] > entropies[0] + 0.05


def test_the_same_seed_gives_the_same_bits_and_another_does_not(home):
    first, rows, _ = trained(home)
    again, same, _ = trained(home)
    assert first.equal(again)
    assert rows == same
    assert not first.equal(trained(home, seed=1)[0])


def test_lean_and_transformers_train_alike(home):
    lean, rows, _ = trained(home)
    full, other, _ = trained(home, lean=False)
    assert (
        lean - full
    ).abs().max() < 2e-4  # Adam's first steps blow rounding up, to a tenth of one
    assert rows[0]["reward"] == other[0]["reward"]
    assert rows[0]["tokens"] == other[0]["tokens"]
    assert rows[0]["grad_norm"] == pytest.approx(other[0]["grad_norm"], rel=1e-4)


@pytest.mark.parametrize(
    ("mode", "lean"),
    [("token-mean", True), ("seq-mean-token-mean", False), ("seq-mean-token-sum-norm", True)],
)
def test_micro_batches_never_change_the_gradient(home, mode, lean):
    def first_gradient(rows):
        training = {"micro_batch_rows": rows, "mini_batch_prompts": 8}
        trainer = make(
            home, lean, algorithm={"name": "grpo", "loss_agg_mode": mode}, training=training
        )
        return gradients_of(trainer), plain(trainer.step(1))

    (whole,), row = first_gradient(128)
    (parts,), split = first_gradient(5)
    assert (whole - parts).abs().max() < 1e-5 * whole.abs().max()
    for name, value in row.items():
        assert split[name] == pytest.approx(value, rel=1e-3, abs=1e-6), name


def test_seeds_are_paired_across_algorithms(home):
    def first_prompts(algorithm):
        trainer = make(home, algorithm=algorithm)
        rollout = trainer.roller.roll(trainer.policy, 1)
        return rollout.first.samples.batch.prompts, rollout.first.samples.batch.tokens

    prompts, tokens = first_prompts("grpo")
    other_prompts, other_tokens = first_prompts("dapo")  # it drops and refills groups
    assert prompts == other_prompts
    assert tokens.equal(other_tokens)


def test_every_problem_is_seen_once_per_pass():
    order = PromptOrder(400, 0)
    seen = [i for step in range(1, 101) for i in order.first(step, 8)]
    assert sorted(seen[:400]) == sorted(seen[400:]) == list(range(400))
    assert seen[:400] != seen[400:]


def test_dynamic_sampling_refills_with_useful_groups(home):
    trainer = make(home, algorithm={"name": "grpo", "dynamic_sampling": True})
    rollout = trainer.roller.roll(trainer.policy, 1)
    right = rollout.kept.correct.view(-1, 8).sum(-1)
    assert len(right) == 8
    assert bool(((right > 0) & (right < 8)).all())
    assert rollout.groups_sampled > 8 == len(rollout.first) // 8
    batch = rollout.kept.samples.batch
    assert batch.prompt_of.tolist() == [i // 8 for i in range(64)]
    assert len({tuple(p) for p in batch.prompts}) == 8
    # What was joined from several rounds still belongs together.
    again = score(trainer.policy, batch, 1.0, LIMITS)
    assert torch.allclose(again, rollout.kept.samples.log_prob, atol=1e-5)


def test_a_step_without_a_useful_group_is_recorded_without_an_update(home):
    # One token is never an answer, so every response is wrong.
    trainer = make(home, algorithm="dapo", rollout={"max_response_tokens": 1, "max_refills": 1})
    before = weights(trainer)
    row = trainer.step(1)
    assert weights(trainer).equal(before)
    assert row["groups_kept"] == 0
    assert row["groups_sampled"] == 24
    assert row["optimizer_step"] == 0
    assert row["accuracy"] == 0
    assert "grad_norm" not in row
    assert "loss" not in row


def test_overlong_punishment_lowers_the_reward_of_long_responses_only(home):
    without = make(home, algorithm={"name": "dapo", "overlong": None})
    punished = make(
        home, algorithm={"name": "dapo", "overlong": {"buffer_fraction": 0.9, "factor": 0.5}}
    )
    plain_, other = (t.roller.roll(t.policy, 1).first for t in (without, punished))
    lengths = plain_.samples.batch.lengths
    expected = plain_.rewards - 0.5 * ((lengths - 1.2).clamp(min=0) / 10.8)
    assert torch.allclose(other.rewards, expected, atol=1e-6)
    assert set(plain_.rewards.tolist()) == {1.0, -1.0}


def with_log_prob(policy, changed):
    """Every forward pass of `policy` gives changed log-probabilities."""
    inner = policy.scored

    def scored(*args, **options):
        result = inner(*args, **options)
        return replace(result, log_prob=changed(result.log_prob))

    policy.scored = scored


def test_a_loss_or_a_gradient_that_is_not_finite_names_step_and_metric_and_leaves_the_weights(home):
    trainer = make(home)
    trainer.step(1)
    before = weights(trainer)
    intact = trainer.policy.scored
    with_log_prob(trainer.policy, lambda log_prob: log_prob * float("nan"))
    with pytest.raises(
        TrainingError, match=r"training step 2, optimizer step 3: log_prob\[0, 0\] is nan"
    ):
        trainer.step(2)
    assert weights(trainer).equal(before)
    trainer.policy.scored = intact

    def poisoned(log_prob):
        if log_prob.requires_grad:
            log_prob.register_hook(lambda grad: grad * float("inf"))
        return log_prob

    with_log_prob(trainer.policy, poisoned)
    with pytest.raises(TrainingError, match=r"step 2, optimizer step 3: grad_norm is (nan|inf)"):
        trainer.step(2)
    assert weights(trainer).equal(before)


def test_bfloat16_scores_old_log_probabilities_as_it_trains(home):
    trainer = make(home, training={"mini_batch_prompts": 8}, algorithm="rpg-reinforce-urkl")
    trainer.policy = Policy(trainer.policy.model, trainer.policy.tokenizer, bfloat16=True)
    assert trainer.policy.lean
    row = trainer.step(1)
    assert row["ratio_max"] == pytest.approx(1, abs=1e-6)  # sampler and scorer round differently
    assert all(p.dtype == torch.float32 for p in trainer.policy.model.parameters())


def test_responses_drawn_some_at_a_time_are_those_drawn_at_once(home):
    """Parts of 1, 3 and all rows: equal tokens, log-probabilities within rounding; parts of one
    size repeat to the bit."""
    trainer = make_trainer(make_spec(), home)
    rollouts = {}
    for rows in (None, 3, 3, 1):
        trainer.roller.rows_at_once = rows
        samples = trainer.roller.roll(trainer.policy, 1).first.samples
        if rows in rollouts:
            assert samples.log_prob.equal(rollouts[rows].log_prob)
        rollouts[rows] = samples
    for samples in rollouts.values():
        assert samples.batch.tokens.equal(rollouts[None].batch.tokens)
        assert torch.allclose(samples.log_prob, rollouts[None].log_prob, atol=1e-5)
        assert samples.batch.prompts == rollouts[None].batch.prompts
