"""The driver's decisions, without Ray: settings, order of rows, rounds of a rollout, which
checkpoint is whole."""

import asyncio
import json
import os
import re
import subprocess
import sys
import traceback
import types

import numpy
import pytest
import torch
from safetensors.torch import save_file

import rpg
from rpg.backends.progress_reporter import Progress
from rpg.backends.prompts import PromptOrder
from rpg.backends.ray_connection import RayNotUp
from rpg.backends.verl.checkpoints import State, newest
from rpg.backends.verl.experience import arrange, mini_batch_order
from rpg.backends.verl.job_settings import JobSettings, SettingsError
from rpg.backends.verl.main import main, one_line
from rpg.errors import UserError, first_line
from rpg.models import seeds
from rpg.store.atomic_files import StoreError
from tests.models.test_reward_models import classifier
from tests.verl.inside import make_spec, verl_config

ACTOR = "actor_rollout_ref.actor"


def settings(config):
    return JobSettings.inside(config.actor_rollout_ref)


@pytest.fixture
def config(tmp_path):
    pytest.importorskip("verl")
    return lambda *extra, **changes: verl_config(
        make_spec(**changes), tmp_path / "model", tmp_path, *extra
    )


def fresh(code):
    """Output of a process that nobody has told about verl."""
    told = ("VERL_PLATFORM", "VERL_USE_EXTERNAL_MODULES")
    environment = {name: value for name, value in os.environ.items() if name not in told}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_importing_it_loads_no_verl():
    code = "import sys, rpg.backends.verl.plugin, rpg.backends.verl.main\n"
    assert fresh(code + "print({'verl', 'torch', 'ray'} & {*sys.modules})").strip() == "set()"


@pytest.mark.component
def test_on_a_cluster_it_needs_no_other_extra_and_leaves_verl_as_it_is():
    """Every module of the back end without the packages of flows and dashboard, and with no CPU
    asked for."""
    pytest.importorskip("verl")
    code = (
        "import os; os.environ['VERL_USE_EXTERNAL_MODULES'] = 'rpg.backends.verl.plugin'\n"
        "import sys, pkgutil, importlib\n"
        "for name in ('prefect', 'streamlit', 'duckdb', 'altair', 'typer'): "
        "sys.modules[name] = None\n"
        "import verl, rpg.backends.verl as package\n"
        "assert 'rpg.backends.verl.plugin' in sys.modules\n"
        "for module in pkgutil.walk_packages(package.__path__, 'rpg.backends.verl.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "assert not any(name.startswith('verl_cpu') for name in sys.modules)\n"
        "from verl.plugin.platform import PlatformRegistry\n"
        "from verl.utils import distributed\n"
        "from verl.workers.engine import EngineRegistry\n"
        "print(PlatformRegistry.get('cpu'), "
        "distributed.initialize_global_process_group_ray.__module__,\n"
        "      importlib.metadata.version.__module__, 'cpu' in "
        "EngineRegistry._engines['language_model']['fsdp2'])\n"
    )
    assert fresh(code).split() == ["None", "verl.utils.distributed", "importlib.metadata", "False"]


def test_what_follows_from_the_algorithm_is_set(config):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    for reference, needed in (("old", False), ("fixed", True), ({"type": "kl_above"}, True)):
        derived = config(algorithm={"name": "rpg-urkl", "reference": reference})
        assert need_reference_policy(derived) is needed
        assert not need_critic(derived)
        assert derived.trainer.v1.trainer_mode == "rpg"
        assert "rpg" not in derived
        assert settings(derived).algorithm == rpg.algorithm("rpg-urkl", reference=reference)
    assert not need_reference_policy(config(algorithm={"name": "dapo"}))


@pytest.mark.parametrize(("elements", "megabytes"), [([3, 5], 16), ([1024, 20 * 256 + 1], 21)])
def test_on_a_cpu_the_largest_weight_fits_into_what_vllm_gets_new_weights_by(
    tmp_path, elements, megabytes
):
    """In float32, as verl sends it; a vocabulary of 49,152 ended the job at its first step."""
    weights = {"small": torch.zeros(2), "large": torch.zeros(elements, dtype=torch.int8)}
    save_file(weights, tmp_path / "model.safetensors")
    config = verl_config(make_spec(), tmp_path, tmp_path)
    assert (
        config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
        == megabytes
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("~rpg.algorithm", "+rpg.algorithm: Field required"),
        ('rpg.algorithm=\'{"name": "rpg-urk"}\'', "did you mean 'rpg-urkl'?"),
        ("rpg.algorithm='{\"name\"'", "+rpg.algorithm: not JSON"),
        ('rpg.verifier=\'{"type": "magic"}\'', "+rpg.verifier"),
        ("+rpg.sed=3", "+rpg.sed"),
        (f"{ACTOR}.ppo_mini_batch_size=3", "3 does not divide data.train_batch_size 8"),
        ("trainer.n_gpus_per_node=3", "does not spread evenly over 3 data-parallel workers"),
    ],
)
def test_a_setting_that_cannot_be_is_named(config, override, words):
    with pytest.raises(SettingsError) as error:
        config(override)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_last_line_of_a_failed_job_says_why(cpu_verl, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["trainer.total_training_steps=1", "data.nonsense=1"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "nonsense" in last
    assert list(tmp_path.iterdir()) == []  # Hydra leaves no folder behind


@pytest.mark.parametrize(
    ("error", "comes"),
    [
        (
            Exception("The current node timed out during startup.\nThe raylet failed to start."),
            True,
        ),
        (ConnectionError("no GCS"), True),
        (OSError("AF_UNIX path length cannot exceed 107 bytes: /a/long/path"), False),
        (RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1.0"), False),
        (ValueError("address: nonsense"), False),
    ],
)
def test_only_a_ray_that_may_come_up_is_worth_another_attempt(
    config, cpu_verl, monkeypatch, error, comes
):
    from rpg.backends.verl import task_runner

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(task_runner, "run_ppo", refuse)
    with pytest.raises(Exception, match=re.escape(first_line(error))) as told:
        task_runner.run(config())
    assert isinstance(told.value, RayNotUp) == comes
    assert str(error) in "".join(traceback.format_exception(told.value)), "all that Ray said"
    assert one_line(told.value).startswith("Ray did not start: ") == comes


def test_the_root_of_a_chain_of_errors_is_told():
    told = (
        "The actor died because of an error raised in its creation task, "
        "\x1b[36mray::Worker\x1b[39m\n"
        '  File "x.py", line 1, in f\nray.exceptions.RayTaskError: no\nValueError: the '
        "root: of it\n"
    )
    assert one_line(RuntimeError(told)) == "ValueError: the root: of it"
    assert one_line(UserError("model.path: gone")) == "model.path: gone"
    theirs = RuntimeError("a\nTraceback\nrpg.backends.verl.job_settings.SettingsError: +rpg.x: no")
    assert one_line(theirs) == "+rpg.x: no"
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = OSError("inner")
    assert one_line(wrapped) == "OSError: inner"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(("workers", "groups"), [(1, 8), (2, 8), (4, 7), (8, 3), (1, 1)])
def test_every_row_is_in_one_mini_batch_of_one_worker(config, workers, groups):
    found = settings(config())
    size = found.group_size
    step = 3
    rows = groups * size
    padded = rows + -rows % workers
    lengths = torch.randint(1, 20, (padded,), generator=torch.Generator().manual_seed(1)).tolist()
    order, sizes = arrange(found, step, groups, lengths, workers)
    assert sorted(order) == list(range(padded))
    assert sum(sizes) * workers == padded
    drawn = seeds.permutation(groups, found.seed, "mini-batches", step, 0).tolist()
    for number in range(len(sizes)):  # whole groups, those of the embedded trainer's mini-batch
        start = sum(sizes[:number])
        mini = []
        tokens = []
        for worker in range(workers):
            part = order[worker * sum(sizes) :][start : start + sizes[number]]
            mini += part
            tokens.append(sum(lengths[row] for row in part))
        wanted = drawn[number * found.mini_batch_prompts : (number + 1) * found.mini_batch_prompts]
        real = [row for row in mini if row < rows]
        assert sorted(real) == sorted(g * size + i for g in wanted for i in range(size))
        assert max(tokens) - min(tokens) <= 20


def test_later_epochs_take_the_mini_batches_in_another_order(config):
    found = settings(config())
    orders = [mini_batch_order(found, 1, epoch, 16) for epoch in range(3)]
    assert orders[0] == list(range(16))
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == orders[0] for order in orders)


def fake_groups(rollout, right):
    """Groups of 4 responses, `right` of which are correct."""

    def response(key, correct):
        reward = 1.0 if correct else -1.0
        return rollout.Response(key, {"response_len": 5}, reward, correct, False, 2.0, reward, {})

    return [[response(f"{i}_{n}_0", n < share) for n in range(4)] for i, share in enumerate(right)]


@pytest.fixture
def rollout(cpu_verl):
    from rpg.backends.verl import rollout

    return rollout


def test_groups_that_teach_nothing_are_replaced(config, rollout):
    found = settings(config(algorithm="dapo"))
    assert found.algorithm.dynamic_sampling
    rounds = []

    def sample(numbers, round_):
        rounds.append(list(numbers))
        return fake_groups(rollout, [2 if i % 2 else 4 for i in range(len(numbers))])

    rolled = rollout.roll(found, 400, 1, sample)
    assert len(rolled.kept) == 8
    assert all(rollout.useful(group) for group in rolled.kept)
    assert rounds[0] == PromptOrder(400, found.seed).first(1, 8)
    drawn = [number for numbers in rounds for number in numbers]
    assert len(set(drawn)) == len(drawn)
    metrics = rolled.metrics()
    assert metrics["groups_sampled"] == sum(map(len, rounds))
    assert metrics["groups_kept"] == 8
    assert (metrics["accuracy"], metrics["reward"]) == (0.75, 0.5), "of the first round"
    assert metrics["entropy"] == pytest.approx(2 / 5)
    kept, dropped = map(len, (rolled.kept, rolled.dropped()))
    assert kept + dropped == metrics["groups_sampled"]
    assert rolled.tokens == 20 * metrics["groups_sampled"]


def test_without_dynamic_sampling_everything_is_kept(config, rollout):
    found = settings(config(algorithm="rloo"))
    sample = lambda numbers, _: fake_groups(rollout, [4, 0] * (len(numbers) // 2))  # noqa: E731
    rolled = rollout.roll(found, 400, 1, sample)
    assert rolled.kept == rolled.first
    assert rolled.dropped() == []


@pytest.fixture
def queue(rollout, monkeypatch):
    """verl's queue as far as the driver reads it: what it says at one poll after another."""
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import replay_buffer

    polls = []
    cleared = []

    def read(keys, partition_id, select_fields):
        jagged = lambda rows: torch.nested.as_nested_tensor(rows, layout=torch.jagged)  # noqa: E731
        right = [float(key.startswith("a")) for key in keys]
        known = [
            {"acc": one, "truncated": 0.0, "earned": one, "reward_style": 0.5} for one in right
        ]
        extra = [{"reward_extra_info": one} for one in known]
        scores = jagged([torch.tensor([0.0, 1.0 if key.startswith("a") else -1.0]) for key in keys])
        log_probs = jagged([torch.tensor([-0.5, -0.25]) for _ in keys])
        fields = TensorDict(
            {"rm_scores": scores, "rollout_log_probs": log_probs}, batch_size=len(keys)
        )
        return {**dict(fields.items()), "extra_fields": extra}

    fake = types.SimpleNamespace(
        kv_list=lambda *_: {"train": polls.pop(0) if len(polls) > 1 else polls[0]},
        kv_clear=lambda partition_id, keys: cleared.extend(keys),
        kv_batch_get=read,
    )
    monkeypatch.setattr(replay_buffer, "tq", fake)
    monkeypatch.setattr(rollout, "tq", fake)
    options = {
        "trainer_config": {},
        "max_off_policy_threshold": 8,
        "max_off_policy_strategy": "drop",
    }
    groups = rollout.Groups(trainer_mode="sync", sampler_kwargs={}, **options)
    return types.SimpleNamespace(polls=polls, cleared=cleared, groups=groups)


def prompt(status):
    return {"is_prompt": True, "status": status, "global_steps": 1}


def test_responses_come_back_in_the_order_of_their_prompts(queue):
    rows = {f"{name}_{i}_0": {"response_len": 2} for name in ("b", "a", "other") for i in (1, 0)}
    queue.polls += [
        {"a": prompt("running"), "b": prompt("finished"), **rows},
        {"a": prompt("finished"), "b": prompt("finished"), "other": prompt("pending"), **rows},
    ]
    found = queue.groups.collect(["a", "b"], Progress())
    assert [[r.key for r in group] for group in found] == [["a_0_0", "a_1_0"], ["b_0_0", "b_1_0"]]
    assert [response.correct for response in found[0] + found[1]] == [True, True, False, False]
    assert found[1][0].reward == -1.0
    assert found[1][0].surprise == 0.75
    assert found[1][0].tokens == 2
    assert found[1][0].earned == 0.0
    assert found[1][0].parts == {"reward_style": 0.5}
    assert queue.cleared == ["a", "b"]


def test_a_reward_that_cannot_be_had_is_what_the_driver_says(queue, tmp_path):
    queue.polls += [{"a": prompt("failure")}]
    queue.groups.error = tmp_path / "reward-error.txt"
    queue.groups.error.write_text("reward: mine:score: raised ValueError: no\n")
    with pytest.raises(UserError, match="reward: mine:score: raised ValueError: no"):
        queue.groups.collect(["a"], Progress())


@pytest.mark.parametrize(
    ("written", "said"),
    [("reward: mine:score: raised ValueError: no\n", UserError), (None, ValueError)],
)
def test_also_where_it_is_first_asked_for_in_validation(
    queue, tmp_path, monkeypatch, written, said
):
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from rpg.backends.verl.trainer import Trainer

    def validate(self, manager):
        raise ValueError("Received an empty list as keys.")

    monkeypatch.setattr(PPOTrainerSync, "fit", validate)
    queue.groups.error = tmp_path / "reward-error.txt"
    if written:
        queue.groups.error.write_text(written)
    trainer = object.__new__(Trainer)
    trainer.replay_buffer = queue.groups
    ended = []
    trainer.reporter = types.SimpleNamespace(__exit__=lambda *_: ended.append("reporter"))
    manager = types.SimpleNamespace(end=lambda: ended.append("manager"))
    with pytest.raises(said, match="raised ValueError: no" if written else "empty list"):
        trainer.fit(manager)
    assert ended == ["manager", "reporter"]


def test_a_prompt_without_a_response_ends_the_run(queue):
    queue.polls += [
        {"a": prompt(status), "b": prompt("running")} for status in ("running", "failure")
    ]
    with pytest.raises(RuntimeError, match="1 of 2 prompts got no response"):
        queue.groups.collect(["a", "b"], Progress())


def test_the_driver_is_enough_only_where_nothing_asks_for_more(config, cpu_verl):
    from omegaconf import OmegaConf
    from verl_cpu.in_driver import suffices

    derived = config()
    assert suffices(derived)
    for key, value in {
        "trainer.n_gpus_per_node": 2,
        "reward.num_workers": 2,
        "actor_rollout_ref.rollout.agent.num_workers": 2,
        "actor_rollout_ref.rollout.router_config_path": "router.yaml",
        "reward.reward_model.enable": True,
        "actor_rollout_ref.rollout.name": "vllm",
    }.items():
        more = derived.copy()
        OmegaConf.update(more, key, value, force_add=True)
        assert not suffices(more), key


@pytest.fixture
def manager(model, cpu_verl, tmp_path):
    """A function that makes verl's manager of rewards of a job, and the tokens of a text."""
    from transformers import AutoTokenizer

    from rpg.backends.verl.reward_manager import VerifierManager

    tokenizer = AutoTokenizer.from_pretrained(model)
    made = []

    def make(*extra, **changes):
        made.append(
            VerifierManager(verl_config(make_spec(**changes), model, tmp_path, *extra), tokenizer)
        )
        return made[-1], lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]

    yield make
    for each in made:
        each.scorer.close()


def test_rewards_are_the_embedded_trainers(manager):
    from rpg.backends.verl.reward_manager import VerlResponse
    from rpg.tasks import Problem
    from rpg.tasks.rewards.scoring import overlong_punishment

    made, ids = manager(algorithm="dapo")
    end = made.tokenizer.eos_token_id

    def score(tokens):
        (found,) = made.score([VerlResponse(tokens, Problem("", "", "", "7", ""))])
        known = found["reward_extra_info"]
        return known["acc"] == 1, known["truncated"] == 1, found["reward_score"]

    assert score([*ids("b+70#7"), end]) == (True, False, 1.0)
    assert score([*ids("b+70#6"), end]) == (False, False, -1.0)
    cut = ids("b+70b+70b+#7")  # the whole budget, and an answer that may go on
    assert len(cut) == 12
    assert score(cut) == (False, True, -1.0 + overlong_punishment(12, 12, 0.25, 1.0))
    assert score([])[:2] == (False, True)


def test_errors_of_grading_are_the_embedded_trainers_and_never_in_verls_validation(manager):
    from rpg.backends.verl.responses import place_of
    from rpg.backends.verl.reward_manager import VerlResponse
    from rpg.models.reward_models import error_draw
    from rpg.tasks import Problem

    reward = {"corrupt": {"false_negative": 0.5}}
    made, ids = manager(reward=reward, seed=11)
    problem = Problem("p", "", "", "7", "")
    tokens = [*ids("b+70#7"), made.tokenizer.eos_token_id]
    size = made.settings.group_size
    places = [place_of({"uid": "s3r0p00002", "session_id": n}, size) for n in range(size)]
    assert places[1] == (3, 0, 2 * size + 1)
    found = made.score([VerlResponse(tokens, problem, None, place) for place in places])
    spec = make_spec(reward=reward, seed=11)
    turned = [error_draw(spec, place, "p", "b+70#7") < 0.5 for place in places]
    assert [result["reward_score"] for result in found] == [-1.0 if t else 1.0 for t in turned]
    assert [result["reward_extra_info"]["acc"] for result in found] == [1.0] * size
    assert 0 < sum(turned) < size

    assert place_of({"uid": "8c1f4a0e", "session_id": 0}, size) is None
    [validated] = made.score([VerlResponse(tokens, problem)])
    assert validated["reward_score"] == 1.0


def test_a_reward_model_is_read_in_verls_reward_loop(manager, tmp_path):
    """A real sequence classifier: the prompt of the row and the decoded response, as in the
    embedded trainer."""
    from rpg.backends.verl.reward_manager import VerlResponse
    from rpg.config.reward import ModelReward
    from rpg.models.reward_models import judge
    from rpg.tasks import Problem
    from rpg.tasks.rewards.scoring import Answered

    classifier(tmp_path / "judge")
    reward = {"type": "model", "path": str(tmp_path / "judge"), "weight": 2.0}
    made, ids = manager(reward=reward)
    problem = Problem("p", "abc", "what is abc?", "7", "")
    found = made.score([VerlResponse([*ids("b+7"), made.tokenizer.eos_token_id], problem)])[0]
    [value] = judge(ModelReward(**reward))([Answered("b+7", 4, False, "7", problem.asked())])
    assert found["reward_score"] == pytest.approx(2 * value)
    assert abs(value) > 1e-3
    assert found["reward_extra_info"]["reward_model"] == pytest.approx(value)
    assert found["reward_extra_info"]["acc"] == 0.0


def test_a_mathematical_answer_is_graded_through_verls_manager(manager):
    """As verl calls it, in its event loop; what has to be simplified is, in the grader's own
    process."""
    pytest.importorskip("math_verify")
    from tensordict import TensorDict
    from verl import DataProto

    made, _ = manager('rpg.verifier=\'{"type": "math"}\'')
    response = torch.tensor([[5, made.tokenizer.eos_token_id, 0]])
    made.tokenizer = types.SimpleNamespace(decode=lambda ids, **_: r"Answer: $\frac{\sqrt{4}}{4}$")
    mask = torch.tensor([[1, 1, 1, 1, 0]])  # a prompt of two tokens before it

    def graded(truth):
        extra = {"reward_model": numpy.array([{"ground_truth": truth}], dtype=object)}
        tensors = TensorDict({"responses": response, "attention_mask": mask}, batch_size=1)
        return asyncio.run(made.run_single(DataProto(batch=tensors, non_tensor_batch=extra)))

    info = {"acc": 1.0, "truncated": 0.0, "earned": 1.0}
    assert graded("0.5") == {"reward_score": 1.0, "reward_extra_info": info}
    assert graded("3")["reward_score"] == -1.0


def test_only_a_checkpoint_with_our_record_counts(tmp_path):
    assert newest(tmp_path) is None
    for step in (2, 10, 9):
        (tmp_path / f"global_step_{step}").mkdir()
        reference = {"renewed_at": 0, "average": 0.0, "kept": False}
        State(step, 4 * step, 100, reference, 1).write(tmp_path / f"global_step_{step}")
    (tmp_path / "global_step_11").mkdir()  # what a kill left behind
    (tmp_path / "global_step_12").mkdir()
    State(12, 48, 100, reference, 1, resumable=False).write(tmp_path / "global_step_12")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
    assert newest(tmp_path).name == "global_step_10"
    assert State.read(newest(tmp_path)).optimizer_step == 40
    record = tmp_path / "global_step_10" / "rpg.json"
    for text in ("{", json.dumps({"format": 99}), json.dumps({"format": 1, "step": 10})):
        record.write_text(text)
        with pytest.raises(StoreError, match=r"rpg\.json"):
            State.read(tmp_path / "global_step_10")
