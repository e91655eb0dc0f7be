"""Checkpoints: they load anywhere, damage is found, only what is needed is kept, and training goes
on bit for bit."""

import errno
import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rpg.backends.local import tensor_files
from rpg.backends.local.checkpoints import Checkpoints, load_past, load_training, restore
from rpg.backends.local.optimizers import Optimizer
from rpg.backends.local.training_loop import train
from rpg.config.run_spec import RunSpec
from rpg.planning.space import disk
from rpg.store import RunFolder, StoreError
from rpg.store.checkpoints import damaged
from rpg.store.gc import size
from tests.tiny import make_run, make_spec, merged, numbers, whole_and_resumed

quiet = lambda line: None  # noqa: E731


def save(folder, policy, steps, eval_steps=(0,)):
    keeper = Checkpoints(folder, eval_steps)
    optimizer = Optimizer(policy.model, make_spec().training.optimizer)
    for step in steps:
        state = {
            "optimizer_step": 2 * step,
            "tokens": 1,
            "optimizer": optimizer.numbers(),
            "reference": {},
        }
        keeper.save(step, policy, state, {"optimizer": optimizer.tensors()})
    return keeper


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "runs" / "sweep" / "run")


def test_a_checkpoint_is_a_hugging_face_folder(folder, policy):
    save(folder, policy, range(3))
    for step in (0, 2):
        path = folder.checkpoint(step)
        model = AutoModelForCausalLM.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
        assert damaged(path) is None
        for name, value in policy.model.state_dict().items():
            assert model.state_dict()[name].equal(value), name
        text = "a3b+7c-5="
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        chat = [{"role": "user", "content": text}]
        encoded = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert encoded == tokenizer("<bos>" + text)["input_ids"]


def test_only_owed_and_the_newest_two_are_kept(folder, policy):
    save(folder, policy, range(8), eval_steps=(0, 3))
    assert folder.checkpoint_steps() == [0, 3, 6, 7]
    assert [s for s in (0, 3, 6, 7) if (folder.checkpoint(s) / "training").exists()] == [6, 7]
    assert [damaged(folder.checkpoint(s)) for s in (0, 3, 6, 7)] == [None] * 4
    assert [path.name for path in folder.checkpoints.iterdir() if path.name.startswith(".")] == []


def truncate(file):
    file.write_bytes(file.read_bytes()[:-7])


def flip(file):
    *data, last = file.read_bytes()
    file.write_bytes(bytes([*data, last ^ 1]))


DAMAGES = {
    "model.safetensors": (truncate, "model.safetensors has"),
    "training/optimizer.safetensors": (flip, "optimizer.safetensors is corrupt"),
    "config.json": (lambda file: file.unlink(), "config.json is missing"),
    "checkpoint.json": (
        lambda file: file.write_text('{"files": '),
        "checkpoint.json is unreadable",
    ),
    "training/state.json": (lambda file: file.write_text("[]"), "state.json is unreadable"),
}


@pytest.mark.parametrize("file", DAMAGES)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(folder, policy, file):
    damage, said = DAMAGES[file]
    keeper = save(folder, policy, range(1, 4))
    # A text file is a link to that of the checkpoint before: what is damaged there must be this one
    # only.
    broken = folder.checkpoint(3)
    shutil.copytree(broken, broken.with_name("copy"))
    shutil.rmtree(broken)
    broken.with_name("copy").rename(broken)
    damage(broken / file)
    lines = []
    assert keeper.resumable((), lines.append) == folder.checkpoint(2)
    assert len(lines) == 1
    assert said in lines[0]
    assert "step-000003.corrupt" in lines[0]
    assert folder.checkpoint_steps() == [2]
    assert (folder.checkpoints / "step-000003.corrupt").is_dir()


def test_what_a_kill_left_half_written_is_removed(folder, policy):
    keeper = save(folder, policy, range(2))
    half = folder.checkpoints / ".step-000002.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"x")
    assert keeper.resumable((), quiet) == folder.checkpoint(1)
    assert not half.exists()


def test_nothing_left_means_the_beginning(folder, policy):
    keeper = Checkpoints(folder, (0,))
    assert keeper.resumable((), quiet) is None
    save(folder, policy, range(2))
    for step in (0, 1):
        truncate(folder.checkpoint(step) / "model.safetensors")
    assert keeper.resumable((), quiet) is None
    assert folder.checkpoint_steps() == []


def test_a_checkpoint_whose_evaluation_is_owed_is_made_again(folder, policy):
    keeper = save(folder, policy, range(6), eval_steps=(0, 3))
    assert keeper.resumable((3,), quiet) == folder.checkpoint(5)  # it is there
    shutil.rmtree(folder.checkpoint(3))
    assert keeper.resumable((), quiet) == folder.checkpoint(5)  # gone, but evaluated
    assert keeper.resumable((3,), quiet) is None  # the ones before it cannot be trained on any more
    assert folder.checkpoint_steps() == []


def test_a_full_disk_is_said_and_harms_nothing_older(folder, policy, monkeypatch):
    keeper = save(folder, policy, range(2))
    before = {p: p.read_bytes() for p in folder.checkpoints.rglob("*") if p.is_file()}

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tensor_files, "save_file", full)
    optimizer = Optimizer(policy.model, make_spec().training.optimizer)
    with pytest.raises(
        StoreError, match=r"cannot write .*step-000002: no space left on the device"
    ):
        keeper.save(2, policy, {"optimizer_step": 0}, {"optimizer": optimizer.tensors()})
    assert {p: p.read_bytes() for p in folder.checkpoints.rglob("*") if p.is_file()} == before
    assert keeper.resumable((), quiet) == folder.checkpoint(1)


KL_ABOVE = {"type": "kl_above", "kappa": 3e-4, "decay": 0.5}
RESUMED = {
    "dynamic sampling, warm-up": {
        "algorithm": "dapo",
        "training": {"epochs": 2, "optimizer": {"warmup_steps": 5}},
    },
    "schedule free, reference of its own": {
        "algorithm": {"name": "rpg-urkl", "beta": 0.1, "reference": {"type": "every_k", "k": 3}},
        "training": {
            "mini_batch_prompts": 8,
            "optimizer": {"type": "schedule_free", "warmup_steps": 3},
        },
    },
    "reference by average, stale sampler": {
        "algorithm": {"name": "rpg-reinforce-fkl", "beta": 0.1, "reference": KL_ABOVE},
        "rollout": {"staleness": 3},
    },
    "initial reference": {"algorithm": {"name": "reinforce-pp", "beta": 0.1, "reference": "fixed"}},
    "moving average": {
        "algorithm": {"name": "rpg-urkl", "beta": 0.5, "reference": {"type": "ema", "decay": 0.75}}
    },
    "stale average, rounded": {
        "algorithm": {"name": "grpo", "rollout_correction": {"type": "truncate", "cap": 1.5}},
        "rollout": {"staleness": 1, "sampler": {"dtype": "int8"}},
        "training": {"optimizer": {"type": "schedule_free", "warmup_steps": 3}},
    },
}
OWN_REFERENCE = (
    "schedule free, reference of its own",
    "reference by average, stale sampler",
    "moving average",
)


@pytest.mark.parametrize("case", RESUMED)
def test_training_goes_on_bit_for_bit(home, case):
    spec = make_spec(**merged(RESUMED[case], {"training": {"steps": 6}}), evaluation={"every": 6})
    whole, parts = whole_and_resumed(home, case.replace(" ", "-"), spec, 2, 5)
    (state, tensors), (again, _) = (
        load_training(folder.checkpoint(6)) for folder in (whole, parts)
    )
    assert {**state, "files": 0} == {**again, "files": 0}
    assert ("reference" in tensors) == (case in OWN_REFERENCE)


def test_past_policies_are_links_to_those_of_the_checkpoint_before(home):
    spec = make_spec(rollout={"staleness": 2}, training={"steps": 4}, evaluation={"every": 4})
    run = make_run(home, "stale-links", spec)
    train(run, home, quiet)
    for step in (3, 4):
        names = {path.name for path in (run.checkpoint(step) / "training").glob("past-*")}
        assert names == {f"past-{past:06d}.safetensors" for past in (step - 2, step - 1)}
    same = [run.checkpoint(step) / "training" / "past-000002.safetensors" for step in (3, 4)]
    assert same[0].stat().st_ino == same[1].stat().st_ino
    assert damaged(run.checkpoint(4) / "training", "state.json") is None
    model = load_file(run.checkpoint(3) / "model.safetensors")
    past = dict(load_past(run.checkpoint(4)))
    assert all(value.equal(model[name]) for name, value in past[3].items())


def test_a_rare_checkpoint_is_enough(home):
    evaluation = {"every": 5, "early": False}
    spec = make_spec(training={"steps": 5, "checkpoint_every": 3}, evaluation=evaluation)
    whole = make_run(home, "rare-whole", spec)
    parts = make_run(home, "rare-parts", spec)
    train(whole, home, quiet)
    assert whole.checkpoint_steps() == [0, 3, 5]
    train(parts, home, quiet)
    shutil.rmtree(parts.checkpoint(5))
    train(parts, home, quiet)
    assert numbers(parts) == numbers(whole)
    assert [r["attempt"] for r in parts.read_metrics()] == [1, 1, 1, 2, 2]


def test_the_state_of_another_model_is_refused(policy):
    optimizer = Optimizer(policy.model, make_spec().training.optimizer)
    with pytest.raises(KeyError):
        optimizer.load({"elsewhere.weight/exp_avg": torch.zeros(1)}, optimizer.numbers())


def test_records_hold_no_pickle_and_are_readable(folder, policy):
    save(folder, policy, [1])
    names = sorted(p.name for p in folder.checkpoint(1).rglob("*") if p.is_file())
    assert {name.rpartition(".")[2] for name in names} <= {"json", "safetensors", "jinja"}
    record = json.loads((folder.checkpoint(1) / "checkpoint.json").read_text())
    assert record["step"] == 1
    assert record["optimizer_step"] == 2
    assert damaged(folder.checkpoint(1) / "training", "state.json") is None


@pytest.mark.parametrize("masters", [False, True], ids=["autocast", "masters"])
def test_a_training_in_bfloat16_exports_bfloat16_and_goes_on_bit_for_bit_from_float32(
    home, policy, tmp_path, monkeypatch, masters
):
    start = tmp_path / "start"
    policy.model.save_pretrained(start)
    policy.tokenizer.save_pretrained(start)
    spec = make_spec(
        training={"steps": 3, "keep_checkpoints": "all"}, evaluation={"every": 3}
    ).model_dump()
    spec["model"] = {"type": "pretrained", "path": str(start), "dtype": "bfloat16"}
    spec["training"]["optimizer"]["learning_rate"] = 1e-6  # far below what bfloat16 resolves
    if (
        masters
    ):  # with all that they have to do with: another reference, and a past policy that samples
        monkeypatch.setattr(RunSpec, "half_weights", lambda spec: True)
        spec["algorithm"] = {"name": "grpo-corrected", "reference": {"type": "every_k", "k": 5}}
        spec["rollout"]["staleness"] = 1
    spec = RunSpec.model_validate(spec)
    whole, _ = whole_and_resumed(home, f"half-{masters}", spec, 2)
    last = whole.checkpoint(3)
    assert damaged(last) is None
    assert damaged(last / "training", "state.json") is None
    exported = load_file(last / "model.safetensors")
    trained = load_file(last / "training" / "weights.safetensors")
    assert {t.dtype for t in exported.values()} == {torch.bfloat16}
    assert exported.keys() == trained.keys()
    assert all(trained[name].bfloat16().equal(value) for name, value in exported.items())
    assert AutoModelForCausalLM.from_pretrained(last, dtype="auto").dtype == torch.bfloat16
    assert any(not t.float().equal(trained[name]) for name, t in exported.items()), (
        "else nothing is shown"
    )
    assert size(last) == pytest.approx(disk(spec, 16).newest, rel=0.1)


@pytest.mark.parametrize("file", ["weights.safetensors", "adapters.safetensors"])
def test_what_was_trained_in_another_model_is_not_passed_over(file, tmp_path):
    (tmp_path / "training").mkdir()
    save_file({"weight": torch.ones(1, 2), "lora_A": torch.ones(1)}, tmp_path / "training" / file)
    with pytest.raises(StoreError, match=f"{file}: lora_A is of another model"):
        restore(torch.nn.Linear(2, 1), tmp_path)
