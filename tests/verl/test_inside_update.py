"""The update of a verl worker is the embedded trainer's: same data and weights, same losses,
gradients and weights."""

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import rpg
from rpg.backends.reference_schedule import ReferenceSchedule
from rpg.models.decoding import Batch
from rpg.models.micro_batches import Limits
from rpg.store.token_records import VALUES
from tests.tiny import make_trainer
from tests.verl import NOT_ON_VERL
from tests.verl.inside import (
    an_experience,
    as_verl,
    make_spec,
    make_worker,
    nested,
    one_process_group,
    unpadded,
    verl_config,
    verl_update,
    weights,
)

pytestmark = pytest.mark.usefixtures("cpu_verl")


@pytest.mark.component
@pytest.mark.parametrize(
    ("algorithm", "optimizer", "bonus", "temperature"),
    [
        ("rpg-reinforce-urkl", {"type": "adamw", "warmup_steps": 3}, 0.0, 1.0),
        (
            {"name": "rpg-urkl", "reference": {"type": "kl_above"}},
            {"type": "schedule_free"},
            0.0,
            1.0,
        ),
        ({"name": "dr-grpo", "positive_lm_loss": 0.5}, {"type": "adamw"}, 0.3, 0.7),
    ],
)
def test_a_step_is_the_embedded_trainers(
    home, model, tmp_path, algorithm, optimizer, bonus, temperature
):
    training = {"optimizer": optimizer, "entropy_coeff": bonus}
    spec = make_spec(algorithm=algorithm, training=training, rollout={"temperature": temperature})
    trainer = make_trainer(spec, home)
    worker = make_worker(verl_config(spec, model, tmp_path))
    torch.testing.assert_close(weights(worker.actor.engine.module), weights(trainer.policy.model))

    trainer.optimizer.rollout_mode()
    rollout = trainer.roller.roll(trainer.policy, 1)
    experience = trainer._experience(rollout.kept, trainer.policy)
    trainer.reference.begin_updates(trainer.policy)
    trainer.optimizer.update_mode()
    theirs = trainer._update(1, experience)
    trainer.optimizer.rollout_mode()

    more = {} if experience.lm_weights is None else {"lm_weights": experience.lm_weights}
    ours = verl_update(
        worker, rollout.kept.samples.batch, experience.old_log_prob, experience.advantages, **more
    )
    assert ours.optimizer_steps == trainer.optimizer_step == 4
    for name, value in theirs.items():
        if name in NOT_ON_VERL:
            assert name not in ours.metrics, (
                f"{name} is measured on verl, too, and must be compared"
            )
            continue
        assert ours.metrics[name] == pytest.approx(value, rel=2e-4, abs=2e-6), name
    assert ours.metrics["ratio_max"] > 1.001  # the later mini-batches are off-policy
    schedule = ReferenceSchedule(spec.algorithm)
    for step_kl_to_ref in ours.step_kls_to_ref:
        schedule.observe(step_kl_to_ref)
    assert schedule.average == pytest.approx(trainer.reference.average, rel=1e-3)
    moved = weights(trainer.policy.model)
    torch.testing.assert_close(weights(worker.actor.engine.module), moved, rtol=1e-3, atol=2e-6)


def verl_scores(log_prob, prompt, lengths):
    """verl's engine scores prompt and response; a score stands one place before its token."""
    rows, width = log_prob.shape
    scores = torch.zeros(rows, prompt + width)
    scores[:, prompt - 1 : prompt - 1 + width] = log_prob
    ends = [prompt + length for length in lengths]
    return [row[:end].clone().requires_grad_() for row, end in zip(scores, ends, strict=True)]


@pytest.mark.parametrize(
    "name", [n for n, a in rpg.algorithms().items() if not a.reads_distributions]
)
def test_the_actor_loss_is_policy_loss(name):
    """Whole batches, and micro-batches of shards of them, for every algorithm of the catalogue; and
    what is recorded of tokens is what followed from the loss.
    """
    from verl.utils import tensordict_utils as tu

    from rpg.backends.verl.update import ActorLoss
    from rpg.losses.aggregation import Counts

    algorithm = rpg.algorithm(name)
    lengths = [5, 3, 7, 1, 4, 6]
    horizon = 9
    prompt = 2
    generator = torch.Generator().manual_seed(0)
    width = max(lengths)
    tokens = torch.zeros(len(lengths), width, dtype=torch.long)
    batch = Batch([[0] * prompt], tokens[:, 0], tokens, torch.tensor(lengths))
    draw = lambda: torch.randn(len(lengths), width, generator=generator)  # noqa: E731
    old = -draw().abs()
    log_prob = -draw().abs()
    fields = {
        "old_log_probs": old,
        "ref_log_prob": old + 0.3 * draw(),
        "advantages": draw()[:, :1].expand_as(old),
        "rollout_is_weights": draw().exp(),
        "rollout_log_probs": -draw().abs(),
    }
    leaf = log_prob.clone().requires_grad_()
    given = {name: fields[name] for name in ("ref_log_prob", "advantages")}
    mask = batch.mask
    given |= {
        "rollout_weights": fields["rollout_is_weights"],
        "old_log_prob": old,
        "response_mask": mask,
    }
    counts = Counts.of(mask, horizon)
    whole = rpg.policy_loss(algorithm, log_prob=leaf, counts=counts, **given)
    whole.loss.backward()

    loss_fn = ActorLoss(algorithm, horizon)
    gradient = torch.zeros_like(old)
    total = 0.0
    shards = ([0, 3, 4], [2, 5, 1])
    recorded = {}
    for shard in shards:
        for rows in (shard[:2], shard[2:]):
            scores = verl_scores(log_prob[rows], prompt, [lengths[r] for r in rows])
            part = batch.rows(torch.tensor(rows))
            data = as_verl(part)
            for key, value in fields.items():
                data[key] = unpadded(value[rows], part)
            sizes = {"mini_batch_tokens": sum(lengths), "mini_batch_sequences": len(lengths)}
            tu.assign_non_tensor(data, dp_size=len(shards), optimizer_step=7, **sizes)
            data["marks"] = torch.tensor([row if row > 1 else -1 for row in rows])
            loss, metrics = loss_fn({"log_probs": nested(scores)}, data)
            assert metrics["rpg"][1] == sum(lengths[r] for r in rows)
            recorded |= metrics["rpg"][2]
            loss.backward()
            total += loss.item() / len(shards)  # FSDP averages over data-parallel workers
            for row, score in zip(rows, scores, strict=True):
                gradient[row, : lengths[row]] = score.grad[prompt - 1 : -1] / len(shards)
    assert total == pytest.approx(whole.loss.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-4, atol=1e-7)
    assert leaf.grad.abs().sum() > 0
    assert sorted(recorded) == [2, 3, 4, 5]
    for row, (step, numbers) in recorded.items():
        assert step == 7
        named = dict(zip(VALUES, numbers[:, : lengths[row]], strict=False))
        torch.testing.assert_close(
            named["slope"], leaf.grad[row, : lengths[row]], rtol=1e-4, atol=1e-7
        )
        expected = {"policy": log_prob, "old": old, "sampler": fields["rollout_log_probs"]}
        for key, value in (expected | {"advantage": given["advantages"]}).items():
            assert named[key].equal(value[row, : lengths[row]]), key


def test_micro_batches_are_bounded_with_their_padding():
    """On lengths as responses have them; verl's own are several times the limit once their rows are
    padded."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.seqlen_balancing import rearrange_micro_batches

    from rpg.backends.verl.padded_batches import prepare_micro_batches

    limit = 2048
    spread = torch.randn(64, generator=torch.Generator().manual_seed(0))
    lengths = (0.9 * spread + 4.2).exp().long().clamp(8, 512)
    data = TensorDict({"input_ids": nested([[0] * n for n in lengths.tolist()])}, batch_size=64)
    tu.assign_non_tensor(data, use_remove_padding=False, max_token_len_per_gpu=limit)
    one_process_group()
    _, rows = prepare_micro_batches(data)
    padded = lambda parts: [len(part) * int(lengths[part].max()) for part in parts]  # noqa: E731
    theirs = padded(rearrange_micro_batches(data, limit)[1])
    ours = padded(rows)
    assert max(theirs) > 1.7 * limit
    assert max(ours) <= limit
    assert 2 * sum(ours) < sum(theirs)
    assert sorted(row for part in rows for row in part) == [*range(64)]


@pytest.mark.component
def test_a_gradient_that_is_not_finite_ends_the_update(home, model, tmp_path):
    spec = make_spec(algorithm="rpg-reinforce-urkl")
    experience = an_experience(make_trainer(spec, home))
    worker = make_worker(verl_config(spec, model, tmp_path))
    before = weights(worker.actor.engine.module)
    with pytest.raises(FloatingPointError, match="optimizer step 1: grad_norm is inf"):
        verl_update(worker, experience.batch, experience.old_log_prob, experience.advantages * 1e25)
    assert weights(worker.actor.engine.module).equal(before)


def test_a_teacher_of_another_architecture_scores_as_in_the_embedded_trainer(home, model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(
        tmp_path / "teacher"
    )
    tokenizer.save_pretrained(tmp_path / "teacher")
    reference = {"type": "model", "path": str(tmp_path / "teacher")}
    spec = make_spec(algorithm={"name": "opd", "reference": reference})
    worker = make_worker(verl_config(spec, model, tmp_path), "actor_rollout_ref")
    trainer = make_trainer(spec, home)
    batch = an_experience(trainer).batch
    scored = worker.compute_ref_log_prob(as_verl(batch))["log_probs"].unbind()
    theirs = trainer.reference.log_probs(batch, 1.0, Limits(99, 9999, 9999))
    for row, expected, length in zip(scored, theirs, batch.lengths.tolist(), strict=True):
        # a row is prompt and response; at each token stands the log-probability of the next
        torch.testing.assert_close(row[-length - 1 : -1], expected[:length], rtol=1e-4, atol=1e-5)


def test_a_critics_step_is_the_embedded_trainers(home, model, tmp_path):
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import TrainingWorkerConfig

    from rpg.backends.verl.critic_worker import CriticWorker, ValueLoss
    from rpg.backends.verl.experience import arrange
    from rpg.backends.verl.job_settings import JobSettings
    from rpg.backends.verl.update import UpdatePlan, update

    advantage = {"type": "gae", "lam": 0.9, "critic_learning_rate": 1e-2, "critic_warmup": 1}
    spec = make_spec(algorithm={"name": "ppo", "advantage": advantage})
    config = verl_config(spec, model, tmp_path)
    theirs = omega_conf_to_dataclass(config.critic)
    theirs.engine.infer_max_token_len_per_gpu = theirs.engine.max_token_len_per_gpu = 2000
    parts = {
        "model_config": theirs.model,
        "engine_config": theirs.engine,
        "optimizer_config": theirs.optim,
    }
    one_process_group()
    worker = CriticWorker(
        TrainingWorkerConfig(model_type="value_model", checkpoint_config=theirs.checkpoint, **parts)
    )
    worker.reset()
    settings = JobSettings.inside(config.actor_rollout_ref)
    worker.set_loss_fn(ValueLoss.of(settings))

    trainer = make_trainer(spec, home)
    limits = Limits(99, 9999, 9999)
    assert settings.optimizer_steps == trainer.optimizer.total
    assert worker.loss_fn.settings.optimizer_steps == trainer.critic.optimizer.total
    experience = an_experience(trainer)
    batch = experience.batch
    data = as_verl(batch)
    data["values"] = unpadded(experience.values, batch)
    data["returns"] = unpadded(experience.targets, batch)
    order, sizes = arrange(worker.loss_fn.settings, 1, 8, batch.total_lengths().tolist(), 1)
    data = tu.index_select_tensor_dict(data, torch.tensor(order))
    ours = update(
        worker, data, UpdatePlan(sizes, [[0, 1, 2, 3]], 0, False, []), worker.loss_fn.settings
    )
    rows = torch.tensor(order).split(sizes)
    minis = [experience.rows(part.sort().values) for part in rows]
    losses = [
        trainer.critic.update(m.batch, m.values, m.targets, limits)["value_loss"] for m in minis
    ]
    assert ours.optimizer_steps == 4
    assert losses[0] > 0
    assert ours.metrics["loss"] == pytest.approx(sum(losses) / 4, rel=1e-4)
    moved = trainer.critic.score(batch, limits)
    assert moved[batch.mask].abs().max() > 0.05
    head = dict(worker.engine.module.named_parameters())["score.weight"].full_tensor()
    torch.testing.assert_close(head, trainer.critic.head.weight, rtol=1e-3, atol=1e-5)
