"""Training steps: what is reported, what decides the bits, and what every setting changes."""

import math
from dataclasses import replace

import pytest
import torch

from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.trainer import TrainingError
from rpg.backends.prompts import PromptOrder
from rpg.models.initial_policy import initial_policy
from rpg.models.micro_batches import Limits, score
from rpg.models.policy import Policy
from tests.models.test_reward_models import classifier
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


def ages(home, reference, **changes):
    algorithm = {"name": "rpg-reinforce-urkl", "beta": 0.1, "dynamic_sampling": False}
    trainer = make(home, algorithm={**algorithm, "reference": reference}, **changes)
    return [trainer.step(s) for s in range(1, 6)], trainer


def test_references_are_renewed_at_every_rollout_every_k_optimizer_steps_or_never(home):
    rows, trainer = ages(home, "old")
    assert [r["reference_age"] for r in rows] == [0] * 5
    assert trainer.reference.policy is None
    rows, _ = ages(home, {"type": "every_k", "k": 5})  # two per rollout
    assert [r["reference_age"] for r in rows] == [0, 2, 4, 0, 2]
    assert [int(r["kl_ref_to_policy"] > r["kl_old_to_policy"] * 1.01) for r in rows] == [
        0,
        1,
        1,
        0,
        1,
    ]
    rows, trainer = ages(home, "fixed")
    assert [r["reference_age"] for r in rows] == [0, 2, 4, 6, 8]
    initial = initial_policy(make_spec(), home)
    kept = trainer.reference.policy.model.parameters()
    assert all(a.equal(b) for a, b in zip(kept, initial.model.parameters(), strict=True))


def test_reference_kl_above_is_renewed_when_the_average_is_exceeded(home):
    rows, _ = ages(home, {"type": "kl_above", "kappa": 1e9})
    assert [r["reference_age"] for r in rows] == [0, 2, 4, 6, 8]
    rows, _ = ages(home, {"type": "kl_above", "kappa": 1e-12, "decay": 0.0})
    assert [r["reference_age"] for r in rows] == [0] * 5
    average = 0.0
    seen = []
    expected = []
    one_update = {"mini_batch_prompts": 8}  # per rollout: its KL is in the metrics
    reference = {"type": "kl_above", "kappa": 5e-4, "decay": 0.5}
    rows, trainer = ages(home, reference, training=one_update)
    rows += [trainer.step(step) for step in (6, 7, 8)]
    age = 0
    for row in rows:
        if average > 5e-4:
            average = 0.0
            age = 0
        seen.append(row["reference_age"])
        expected.append(age)
        average = 0.5 * average + 0.5 * row["kl_policy_to_ref"]
        age += 1
    assert seen == expected
    assert 1 < seen.count(0) < 8


def test_a_kl_in_the_reward_changes_training(home):
    """A beta that counts must move the weights elsewhere. One in the loss:
    test_token_records.py."""
    kl = {"name": "reinforce-pp", "reference": "fixed", "dynamic_sampling": False}
    ends = [trained(home, algorithm={**kl, "beta": beta})[0] for beta in (1.0, 0.0)]
    assert not ends[0].equal(ends[1])


def test_clipping_bounds_the_gradient_and_reports_it_before():
    parameter = torch.nn.Linear(3, 1, bias=False)
    optimizer = Optimizer(parameter, make_spec().training.optimizer)
    for limit, left in ((None, 5.0), (1.0, 1.0), (10.0, 5.0)):
        parameter.weight.grad = torch.tensor([[3.0, 4.0, 0.0]])
        norm, _ = optimizer.step(1, limit)
        assert norm == pytest.approx(5.0)
        assert float(parameter.weight.grad.norm()) == pytest.approx(left, rel=1e-4)


def test_schedule_free_samples_from_the_average(home):
    schedule = {"type": "schedule_free", "learning_rate": 1e-3, "warmup_steps": 2}
    trainer = make(home, training={"optimizer": schedule})
    for step in (1, 2):
        trainer.step(step)
    averaged = weights(trainer)
    samples = trainer.roller.roll(trainer.policy, 3).first.samples
    assert torch.allclose(
        score(trainer.policy, samples.batch, 1.0, LIMITS), samples.log_prob, atol=1e-5
    )
    trainer.optimizer.update_mode()
    assert not weights(trainer).equal(averaged)  # gradients are taken elsewhere
    trainer.optimizer.rollout_mode()
    assert torch.allclose(weights(trainer), averaged, atol=1e-6)


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


GRADED = """
def score(responses, prompts, answer):
    letters = [len(set(r)) / 10 for r in responses]
    return {"letters": letters, "even": [None if len(r) % 2 else 1.0 for r in responses]}
"""


def graded(tmp_path, *more):
    (tmp_path / "mine.py").write_text(GRADED)
    function = {
        "type": "python",
        "function": "mine:score",
        "beside": str(tmp_path),
        "weights": {"even": 0.0},
    }
    return [function, *more]


def test_a_graded_reward_trains_and_each_part_is_a_metric(home, tmp_path):
    reward = graded(tmp_path, {"type": "correctness", "weight": 0.5, "wrong": 0.0})
    trainer = make(home, reward=reward, algorithm={"name": "grpo", "dynamic_sampling": True})
    rollout = trainer.roller.roll(trainer.policy, 1)
    first = rollout.first
    texts = trainer.policy.text(first.samples.batch)
    graded_texts = zip(texts, first.correct.tolist(), strict=True)
    expected = [len(set(text)) / 10 + 0.5 * right for text, right in graded_texts]
    assert torch.allclose(first.rewards, torch.tensor(expected), atol=1e-6)
    means = first.part_means()
    assert set(means) == {"reward_score_letters", "reward_score_even", "reward_correctness"}
    assert means["reward_score_even"] == 1.0  # of those to which it applies
    assert means["reward_correctness"] == pytest.approx(float(first.correct.float().mean()))
    # Groups that are all wrong are kept where their rewards differ, and none whose rewards are
    # equal.
    kept = rollout.kept.rewards.view(-1, 8)
    assert bool((kept.amax(-1) > kept.amin(-1)).all())
    assert not bool(rollout.kept.correct.view(-1, 8).any(-1).all())
    row = trainer.step(1)
    assert row["reward"] == pytest.approx(sum(expected) / len(expected))
    assert row["reward_correctness"] == row["accuracy"]
    trainer.roller.scorer.close()


def test_a_reward_model_trains(home, tmp_path):
    classifier(tmp_path)
    reward = {"type": "model", "path": str(tmp_path), "weight": 3.0, "name": "judge"}
    before = weights(make(home))
    after, (row,), _ = trained(home, steps=1, reward=reward)
    assert row["reward"] == pytest.approx(3 * row["reward_judge"], rel=1e-5)
    assert not after.equal(before)


def test_a_reward_that_fails_ends_the_step_before_anything_changed(home, tmp_path):
    from rpg.tasks.rewards.function_process import RewardError

    (tmp_path / "mine.py").write_text("def score(responses): return [1.0]\n")
    part = {"type": "python", "function": "mine:score", "beside": str(tmp_path)}
    trainer = make(home, reward=part)
    before = weights(trainer)
    with pytest.raises(
        RewardError, match="mine:score: returned 1 values for 64 responses; response 2 of 64"
    ):
        trainer.step(1)
    assert weights(trainer).equal(before)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_schedules_are_transformers_after_a_warm_up_that_reaches_the_rate(schedule):
    from transformers import get_scheduler

    from rpg.backends.learning_rates import rate_factor

    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    name = schedule if schedule != "constant" else "constant_with_warmup"
    scheduler = get_scheduler(name, theirs, num_warmup_steps=3, num_training_steps=10)
    for step in range(1, 11):
        expected = step / 3 if step <= 3 else scheduler.get_last_lr()[0]
        assert rate_factor(schedule, 3, step, 10) == pytest.approx(expected), step
        theirs.step()
        scheduler.step()


def test_a_rate_falls_over_the_whole_run(home):
    """After its warm-up, by optimizer steps: two a rollout."""
    optimizer = {"schedule": "linear", "learning_rate": 1e-3, "warmup_steps": 3}
    trainer = make(home, training={"optimizer": optimizer})
    rates = [trainer.step(step)["learning_rate"] for step in (1, 2, 3)]
    assert rates == pytest.approx([1e-3 * share for share in (2 / 3, 1, 1 / 3)])


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


ALWAYS_WRONG = {"corrupt": {"false_positive": 1.0, "false_negative": 1.0}}


def test_an_always_wrong_grader_is_in_the_reward_and_in_no_accuracy(home):
    (true,) = trained(home, steps=1)[1]
    (false,) = trained(home, steps=1, reward=ALWAYS_WRONG)[1]
    assert false["accuracy"] == true["accuracy"]
    assert false["reward"] == pytest.approx(-true["reward"])
    assert false["reward_grading_errors"] == 1.0
    assert "reward_grading_errors" not in true


def test_a_resumed_training_makes_the_same_errors(home):
    corrupt = {"false_positive": 0.3, "false_negative": 0.2}
    changes = {"reward": {"corrupt": corrupt}, "seed": 5}
    whole = trained(home, steps=2, **changes)[1]
    assert 0 < whole[1]["reward_grading_errors"] < 1
    again = make(home, **changes)
    again.step(1)
    assert plain(again.step(2)) == whole[1]
