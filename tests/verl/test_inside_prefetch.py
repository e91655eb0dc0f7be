"""Rollouts drawn ahead: from which weights, whatever is fast or slow, and through a checkpoint;
what the loss then reads."""

import types

import pytest
import torch

import rpg
from rpg.backends.gaps import kl_and_error
from rpg.errors import UserError
from rpg.models.micro_batches import Limits, score
from tests.tiny import make_trainer
from tests.verl.inside import make_spec, verl_config

pytestmark = pytest.mark.usefixtures("cpu_verl")


class Servers:
    """Rollout servers and verl's queue as far as rollouts see them: what is asked for is answered
    from today's weights."""

    def __init__(self, version=0):
        self.version = version
        self.rows = {}
        self.asked = []

    def ask(self, step, numbers, names):
        self.asked += names
        for place, (number, name) in enumerate(zip(numbers, names, strict=True)):
            for i in range(4):
                reward = float((number + i * place + step) % 3 == 0)
                known = {"acc": reward, "truncated": 0.0, "earned": reward, "reward_style": 0.5}
                self.rows[f"{name}_{i}_0"] = {
                    "tag": {"response_len": i + 1, "max_global_steps": self.version},
                    "rm_scores": torch.tensor([0.0] * i + [reward]),
                    "rollout_log_probs": torch.full((i + 1,), -0.5 - self.version),
                    "extra_fields": {"reward_extra_info": known},
                }

    def collect(self, names, round_):
        from rpg.backends.verl import rollout

        return rollout.read_groups(names, {key: row["tag"] for key, row in self.rows.items()})

    def get(self, keys, partition_id, select_fields=None):
        from verl.utils.tensordict_utils import get_tensordict

        rows = [self.rows[key] for key in keys]

        def jagged(name):
            return torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged)

        tensors = {name: jagged(name) for name in ("rm_scores", "rollout_log_probs")}
        return get_tensordict({**tensors, "extra_fields": [row["extra_fields"] for row in rows]})

    def put(self, keys, partition_id, fields, tags):
        extra = fields.get("extra_fields").tolist()
        for i, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            row = {name: fields[name].unbind()[i] for name in ("rm_scores", "rollout_log_probs")}
            self.rows[key] = {"tag": tag, "extra_fields": extra[i], **row}


@pytest.fixture
def make_ahead(model, tmp_path, monkeypatch):
    from rpg.backends.verl import prefetch, rollout
    from rpg.backends.verl.job_settings import JobSettings

    def made(servers, staleness, beside, algorithm="dapo"):
        fake = types.SimpleNamespace(kv_batch_get=servers.get, kv_batch_put=servers.put)
        monkeypatch.setattr(rollout, "tq", fake)
        monkeypatch.setattr(prefetch, "tq", fake)
        spec = make_spec(algorithm=algorithm, rollout={"group_size": 4, "staleness": staleness})
        settings = JobSettings.inside(verl_config(spec, model, tmp_path).actor_rollout_ref)
        assert settings.staleness == staleness
        return prefetch.Prefetch(settings, 400, servers.ask, servers.collect, beside)

    return made


def told(rolled):
    return [(r.key, r.tag, r.reward, r.surprise) for group in rolled.sampled for r in group]


@pytest.mark.parametrize(
    ("staleness", "beside"), [(0, True), (1, False), (1, True), (3, False), (3, True)]
)
def test_a_rollout_is_drawn_from_weights_that_are_as_old_as_asked(
    make_ahead, tmp_path, staleness, beside
):
    servers = Servers()
    ahead = make_ahead(servers, staleness, beside)
    seen = []
    for step in range(1, 7):
        rolled = ahead.begin(step)
        seen.append(told(rolled))
        assert rolled.age(step) == min(step - 1, staleness)
        assert {name.split("r")[0] for name in (r.key for g in rolled.sampled for r in g)} == {
            f"s{step}"
        }
        later = [name for name in servers.asked if name.startswith(f"s{step + staleness}r")]
        assert later, "it is begun while the policy is updated, at the latest"
        ahead.finish()
        assert len(ahead.waiting) == staleness
        if step == 3:
            ahead.save(tmp_path)
        servers.version = step
    assert len(servers.asked) == len(set(servers.asked))

    again = Servers(version=3)
    resumed = make_ahead(again, staleness, beside)
    resumed.restore(tmp_path, 3)
    for step in range(4, 7):
        assert told(resumed.begin(step)) == seen[step - 1]
        resumed.finish()
        again.version = step
    assert all(int(name[1 : name.index("r")]) > 3 + staleness for name in again.asked), (
        "none is drawn twice"
    )


def test_a_checkpoint_without_them_is_named(make_ahead, tmp_path):
    with pytest.raises(UserError, match=r"ahead\.json is missing"):
        make_ahead(Servers(), 1, True).restore(tmp_path, 3)


EVERY = {"name": "rpg-reinforce-urkl", "beta": 0.5, "reference": {"type": "every_k", "k": 1}}


@pytest.mark.parametrize(
    "algorithm",
    [
        "rpg-urkl",
        EVERY,
        {"name": "grpo", "rollout_correction": "ignore"},
        {"name": "grpo", "rollout_correction": {"type": "truncate", "cap": 1.1}},
        {"name": "rpg-urkl", "rollout_correction": {"type": "mask", "level": "sequence"}},
        {"name": "ppo", "positive_lm_loss": 0.1},
    ],
)
def test_the_loss_reads_what_the_embedded_trainers_reads(home, model, tmp_path, algorithm):
    from rpg.backends.verl.experience import experience
    from rpg.backends.verl.job_settings import JobSettings

    training = {"optimizer": {"learning_rate": 1e-3}}
    spec = make_spec(algorithm=algorithm, training=training, rollout={"staleness": 1})
    settings = JobSettings.inside(verl_config(spec, model, tmp_path).actor_rollout_ref)
    trainer = make_trainer(spec, home)
    rollouts = []
    log_probs_before = []
    experiences = []
    references = []
    make_experience = trainer._experience
    reference_log_probs = trainer.reference.log_probs

    def watched(kept, sampler):
        limits = Limits.of(spec.training, trainer.policy)
        rollouts.append(kept)
        log_probs_before.append(score(trainer.policy, kept.samples.batch, 1.0, limits))
        experiences.append(make_experience(kept, sampler))
        return experiences[-1]

    def looked(*asked, **options):
        references.append(reference_log_probs(*asked, **options))
        return references[-1]

    trainer._experience = watched
    trainer.reference.log_probs = looked
    rows = [trainer.step(step) for step in (1, 2)]
    kept = rollouts[1]
    before = log_probs_before[1]
    theirs = experiences[1]
    log_ratio = theirs.policy_log_prob - theirs.engine_log_prob
    batch = kept.samples.batch
    last = torch.zeros(batch.mask.shape).scatter(
        1, batch.lengths[:, None] - 1, kept.rewards[:, None].float()
    )
    fields = {"response_mask": batch.mask.long(), "rm_scores": last, "old_log_probs": before}
    fields |= {"rollout_log_probs": kept.samples.log_prob, "correct": kept.correct}
    if references[1] is not None:
        fields["ref_log_prob"] = references[1]
    prompts = [f"p{i}" for i in batch.prompt_of.tolist()]
    ours, metrics = experience(settings, fields, prompts)

    def same(a, b):
        torch.testing.assert_close(a[batch.mask], b[batch.mask].to(a.dtype), rtol=1e-5, atol=2e-6)

    same(ours["advantages"], theirs.advantages)
    read = {**fields, **ours}
    same(read["old_log_probs"], theirs.old_log_prob)
    if theirs.ref_log_prob is not None:
        same(read.get("ref_log_prob", read["old_log_probs"]), theirs.ref_log_prob)
    for name, value in (
        ("lm_weights", theirs.lm_weights),
        ("rollout_is_weights", theirs.rollout_weights),
    ):
        assert (value is None) == (name not in ours)
        if value is not None:
            same(ours[name], value.expand_as(before))
    for name in {"rollout_weight_mean", "rollout_weight_ess", "rollout_weight_bounded"} & rows[
        1
    ].keys():
        assert metrics[name] == pytest.approx(rows[1][name], rel=1e-5)
    kl, error = kl_and_error(log_ratio, batch.mask)
    assert metrics["kl_sampler_to_policy"] == pytest.approx(kl, rel=1e-3, abs=1e-7)
    assert metrics["kl_sampler_to_policy_error"] == pytest.approx(error, rel=1e-3, abs=1e-7)
    near = fields | {"rollout_log_probs": before * (1 + 1e-7)}
    assert experience(settings, near, prompts)[1]["kl_sampler_to_policy"] == 0, (
        "rounding is no distance"
    )


@pytest.mark.parametrize("name", ["reinforce-pp", "rloo", "ppo"])
def test_while_no_reference_is_kept_the_policy_is_the_reference_of_a_kl_in_the_reward(name):
    from rpg.backends.verl.experience import experience
    from rpg.backends.verl.job_settings import JobSettings

    algorithms = rpg.algorithm(name), rpg.algorithm(name, reference="old")
    settings = [JobSettings.model_construct(algorithm=each, staleness=0) for each in algorithms]
    fields = dict(
        zip(("rm_scores", "rollout_log_probs", "old_log_probs"), -torch.rand(3, 4, 5), strict=True)
    )
    fields |= {"response_mask": torch.ones(4, 5), "correct": torch.ones(4)}
    first, same = (experience(each, fields, [*"aabb"])[0]["advantages"] for each in settings)
    assert first.equal(same)
    assert first.any()
