"""Trainings as Slurm jobs: the same files as here, whatever Slurm does with them, and no job is
left behind."""

import json
import os
import signal
import socket
import time

import pytest
import yaml

from benchmarks.trivial import SECONDS
from benchmarks.trivial import SWEEP as TRIVIAL_SWEEP
from flows.machine import slurm_queue
from rpg.config.backend import LocalBackend, VerlBackend
from rpg.config.load import resolve
from rpg.errors import UserError
from rpg.planning.manifests import RAY_ON_NODES
from rpg.store import Layout
from rpg.store.samples import read_eval
from rpg.system.processes import LOST
from tests.flows import slurm_node, slurm_stand_in
from tests.forked_commands import trained_here
from tests.real_sweep import LONG, SLOW, TRIVIAL, rpg, start
from tests.tiny import BASE, make_run, make_spec, merged, numbers
from tests.waiting import HANG, until

STEPS = 12
TRAINING = {"steps": STEPS, "checkpoint_every": 3}
EVALUATED = {"every": STEPS, "samples_per_problem": 1}
WARM = {"warm_start": {"behaviour_steps": 60}}
RUN = merged(BASE, {"model": WARM, "training": TRAINING, "evaluation": EVALUATED})
AXES = {"algorithm": ["grpo", "rpg-reinforce-urkl"], "seed": [0]}
SWEEP = {"name": "jobs", "run": RUN, "axes": AXES, "baseline": "grpo"}
ON_SLURM = ("--set", "backend.place.type=slurm")


@pytest.fixture
def slurm(tmp_path):
    """The environment of a machine with the stand-in for Slurm; whatever it runs has ended
    afterwards."""
    environment = slurm_stand_in.install(tmp_path / "slurm")
    yield environment
    for name in (tmp_path / "slurm" / "jobs").glob("*.json"):
        (tmp_path / "slurm" / f"{name.stem}.cancel").touch()


def live(environment):
    root = slurm_stand_in.Path(environment["STAND_IN_FOR_SLURM"]) / "jobs"
    records = [json.loads(path.read_text()) for path in root.glob("*.json")]
    return [record for record in records if record["state"] in ("PENDING", "RUNNING")]


def test_what_a_run_needs_becomes_options_of_sbatch(tmp_path, monkeypatch):
    place = {
        "type": "slurm",
        "partition": "gpu",
        "account": "lab",
        "time": "1-12",
        "memory_gib": 40,
        "gpu_type": "a100",
        "at_once": 4,
        "options": ["--reservation=x"],
    }
    backend = LocalBackend(device="cuda", threads=3, place=place)
    remote = slurm_queue.Remote(make_run(tmp_path, "one", make_spec()))
    words = []
    monkeypatch.setattr(
        slurm_queue, "_run", lambda *given, environment: words.extend(given) or (0, "7")
    )
    queue = slurm_queue.SlurmQueue(remote.folder.path.parent)
    queue._submit_array(
        slurm_queue.Job("rpg.backends.local", 3, backend.node(), backend.place), [remote]
    )
    assert "--array=0-0%4" in words
    assert words[7:17] == [
        "--nodes=1",
        "--ntasks-per-node=1",
        "--cpus-per-task=3",
        "--gpus-per-node=a100:1",
        "--mem=40960M",
        "--time=1-12",
        "--partition=gpu",
        "--account=lab",
        "--reservation=x",
        str(slurm_queue.JOB_SCRIPT),
    ]
    assert backend.workers_here() is None, "it takes no slot of this machine"


VERL = {
    "type": "verl",
    "device": "cuda",
    "nodes": 2,
    "gpus_per_node": 8,
    "rollout": {"type": "vllm"},
    "place": {"type": "slurm", "partition": "gpu", "account": "lab", "time": "8:00:00"},
}


def test_a_run_on_verl_is_a_job_of_its_nodes(tmp_path, monkeypatch):
    backend = VerlBackend(**VERL | {"place": VERL["place"] | {"memory_gib": 800}})
    remote = slurm_queue.Remote(make_run(tmp_path, "one", make_spec()))
    words = []
    monkeypatch.setattr(
        slurm_queue, "_run", lambda *given, environment: words.extend(given) or (0, "7")
    )
    queue = slurm_queue.SlurmQueue(remote.folder.path.parent)
    job = slurm_queue.Job("rpg.backends.verl", 1, backend.node(), backend.place)
    queue._submit_array(job, [remote])
    asked = {word for word in words if word.startswith("--")}
    assert {"--nodes=2", "--gpus-per-node=8", "--cpus-per-task=34", "--mem=819200M"} <= asked
    assert {"--time=8:00:00", "--partition=gpu", "--account=lab"} <= asked
    assert words[-2:] == ["rpg.backends.verl", str(RAY_ON_NODES)]


def test_runs_on_verl_that_are_jobs_begin_all_at_once():
    job = VerlBackend(**VERL)
    here = VerlBackend(type="verl")
    assert (job.workers_here(), job.shares_machine()) == (None, True)
    assert (here.workers_here(), here.shares_machine()) == (1, False)


def test_a_job_of_several_nodes_trains_on_the_ray_that_it_started():
    job = VerlBackend(**VERL)
    assert job.with_ray_of_its_job("10.0.0.1:20345").ray.address == "10.0.0.1:20345"
    with pytest.raises(ValueError, match="it has to start Ray on all nodes"):
        job.with_ray_of_its_job(None)
    alone = VerlBackend(**VERL | {"nodes": 1})
    assert alone.with_ray_of_its_job("10.0.0.1:20345").ray.type == "local"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ray": {"type": "address", "address": "auto"}}, "brings its own Ray along"),
        ({"place": {"type": "slurm", "gpus": 4}}, "place.gpus 4: a node of the run has 8 GPUs"),
        (
            {"device": "cpu", "rollout": {"type": "huggingface"}},
            "nodes 2 as a job of Slurm need device cuda",
        ),
    ],
)
def test_what_a_job_of_several_nodes_cannot_be_is_refused(changes, why):
    with pytest.raises(UserError, match=why):
        resolve({"model": {"type": "pretrained", "path": "a/b"}, "backend": VERL | changes}, "run")


def test_a_ray_that_does_not_start_is_lost_and_not_the_fault_of_the_run(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "data", "one", make_spec())
    fields = "JobState=FAILED ExitCode=71:0 NodeList=n1"
    monkeypatch.setattr(slurm_queue, "_run", lambda *words: (0, f"JobId=7 {fields}"))
    assert slurm_queue.outcome("7_0", folder, tmp_path / "7_0.txt") == {"code": LOST}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ({"gpus": 1}, "device 'cpu' with place.gpus 1"),
        ({"time": "soon"}, "place.time: 'soon' is not accepted"),
        ({"partition": "a b"}, "place.partition: 'a b' is not"),
        ({"partition": "gpu\n#SBATCH --uid=0"}, "place.partition: .* is not accepted"),
    ],
)
def test_what_slurm_could_not_take_is_refused(place, why):
    with pytest.raises(UserError, match=why):
        resolve({"backend": {"place": {"type": "slurm", **place}}}, "run")


def test_without_slurm_a_sweep_says_so_before_anything_starts(tmp_path):
    (tmp_path / "long.yaml").write_text(LONG)
    done = rpg(tmp_path, "sweep", "long.yaml", *ON_SLURM, module=TRIVIAL, PATH="/usr/bin/nowhere")
    assert done.returncode == 1
    assert "backend.place.type: slurm, but sbatch, squeue" in done.stderr


@pytest.mark.system
def test_runs_with_a_preemption_a_node_failure_and_a_timeout_are_what_this_machine_makes_of_them(
    tmp_path, slurm, prefect
):
    """Bit for bit; the runs of the sweep are one array, and one that ran out of time is another."""
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump(SWEEP))
    mine = trained_here(tmp_path / "jobs.yaml", tmp_path / "here")
    names = [folder.name for folder in mine]
    plan = [[names[0], 1, 4, "preempt"], [names[0], 2, 7, "node"], [names[1], 1, 5, "timeout"]]
    root = tmp_path / "slurm"
    (root / "plan.json").write_text(json.dumps(plan))
    there = rpg(
        tmp_path, "sweep", "jobs.yaml", *ON_SLURM, home=tmp_path / "there", **slurm, **prefect
    )
    assert there.returncode == 0, there.stderr + there.stdout
    faults = [line.split()[0] for line in (root / "faults.txt").read_text().splitlines()]
    assert sorted(faults) == ["node", "preempt", "timeout"]
    assert live(slurm) == []
    arrays = [
        json.loads(path.read_text())["options"]["array"] for path in sorted(root.glob("*.array"))
    ]
    assert arrays == ["0-1", "0-0"]
    for one, other in zip(mine, Layout.at(tmp_path / "there").run_folders("jobs"), strict=True):
        assert other.done_path.exists()
        assert one.name == other.name
        assert numbers(one) == numbers(other)
        assert len(numbers(one)) == STEPS
        weights = [folder.checkpoint(STEPS) / "model.safetensors" for folder in (one, other)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        assert read_eval(one, "chain-two", STEPS).equals(read_eval(other, "chain-two", STEPS))


@pytest.mark.component
def test_a_killed_sweep_finds_its_jobs_again_and_ctrl_c_leaves_none(tmp_path, slurm, prefect):
    (tmp_path / "long.yaml").write_text(LONG)
    home = tmp_path / "data"
    root = tmp_path / "slurm"

    def begin():
        how = {"home": home, "module": TRIVIAL, **SLOW, **slurm, **prefect}
        return start(tmp_path, "sweep", "long.yaml", *ON_SLURM, **how)

    def training_now():
        return [folder for folder in Layout.at(home).run_folders("long") if folder.holder()]

    sweep = begin()
    try:
        until(
            lambda: len(training_now()) == 2, "two jobs at work", lambda: sweep.poll() is not None
        )
        sweep.kill()
        sweep.wait()
        time.sleep(1)
        assert len(live(slurm)) == 2 == len(training_now()), "jobs do not end with their sweep"
        sweep = begin()
        until(lambda: b"evaluating" in (tmp_path / "data.log").read_bytes(), "the second sweep")
        os.killpg(sweep.pid, signal.SIGINT)
        assert sweep.wait(HANG) == 130
        until(lambda: not live(slurm) and not training_now(), "the end of both jobs")
        assert len(list(root.glob("*.array"))) == 1, "no second job for a run that has one"
    finally:
        sweep.kill()
        sweep.wait()


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        (
            "JobState=TIMEOUT ExitCode=0:15",
            {"lost": "Slurm job 7_0: it reached its time limit (backend.place.time)"},
        ),
        ("JobState=NODE_FAIL ExitCode=0:0", {"lost": "Slurm job 7_0: its node failed"}),
        (
            "JobState=CANCELLED ExitCode=0:15",
            {"refused": "backend.place: Slurm job 7_0 was cancelled"},
        ),
        ("JobState=FAILED ExitCode=75:0", {"code": 75}),
        ("JobState=FAILED ExitCode=0:9", {"code": -9}),
        (
            "JobState=FAILED ExitCode=127:0",
            {
                "refused": (
                    "backend.place: Slurm job 7_0 ended with code 127 on n1: python: not found"
                )
            },
        ),
        ("JobState=COMPLETED ExitCode=0:0", {"code": 0, "newest": 3, "node": "n1"}),
        ("JobState=RUNNING ExitCode=0:0", None),
    ],
)
def test_how_a_job_ended_says_whose_fault_it_was(tmp_path, monkeypatch, fields, meant):
    folder = make_run(tmp_path / "data", "one", make_spec())
    said = tmp_path / "7_0.txt"
    said.write_text("python: not found\n")
    monkeypatch.setattr(slurm_queue, "_run", lambda *words: (0, f"JobId=7 {fields} NodeList=n1"))
    assert slurm_queue.outcome("7_0", folder, said) == meant


def test_jobs_that_slurm_does_not_cancel_are_named(tmp_path, monkeypatch, capsys):
    """They are asked for by number of the user and in all partitions: what is not seen is submitted
    again."""
    folder = make_run(tmp_path, "one", make_spec())
    asked = []
    queue = slurm_queue.SlurmQueue(folder.path.parent)
    queue._jobs["7_0"] = slurm_queue.Remote(folder)
    monkeypatch.setenv("SQUEUE_PARTITION", "urgent")
    monkeypatch.setattr(slurm_queue.time, "sleep", lambda seconds: None)
    no = slurm_queue.subprocess.CompletedProcess((), 1, "Unable to contact slurm controller")
    monkeypatch.setattr(
        slurm_queue.subprocess, "run", lambda words, **how: asked.append((words, how["env"])) or no
    )
    queue.close()
    assert "which go on: scancel 7_0\n" in capsys.readouterr().err
    assert asked[0][0][3:5] == ["-u", str(os.getuid())]
    assert "SQUEUE_PARTITION" not in asked[0][1]


def states(environment):
    """Job -> state, of all that wait or run."""
    lines = slurm_node.run(environment, "squeue", "-h", "-r", "-o", "%i|%T").splitlines()
    return dict(line.split("|") for line in lines)


def begin_now(environment):
    """Slurm lets a requeued job wait for two minutes; a test need not."""
    for job, state in states(environment).items():
        if state == "PENDING":
            slurm_node.run(environment, "scontrol", "update", f"jobid={job}", "StartTime=now")
    return sorted(states(environment).values()) == ["RUNNING", "RUNNING"]


@pytest.mark.system
@pytest.mark.skipif(slurm_node.missing() != "", reason=slurm_node.missing())
def test_on_slurm_itself_jobs_are_preempted_lose_their_node_and_are_cancelled(tmp_path, prefect):
    """Debian's Slurm on loopback; the trainings are made up, every step of theirs is there once."""
    steps = 60
    sweep = TRIVIAL_SWEEP.format(name="short", steps=steps, every=steps, seeds=[0, 1])
    (tmp_path / "short.yaml").write_text(sweep)
    (tmp_path / "long.yaml").write_text(LONG)
    host = socket.gethostname()
    layout = Layout.at(tmp_path / "data")
    with slurm_node.slurm_node(tmp_path / "slurm") as slurm:
        idle = lambda: set(slurm_node.run(slurm, "sinfo", "-h", "-o", "%T").split()) == {"idle"}  # noqa: E731
        until(idle, "the node")

        def begin(name):
            arguments = (
                "sweep",
                f"{name}.yaml",
                *ON_SLURM,
                "--set",
                "backend.place.partition=main",
            )
            how = {"home": layout.home, "module": TRIVIAL, SECONDS: "0.5", **slurm, **prefect}
            return start(tmp_path, *arguments, **how)

        def at_work(name, step):
            rows = [(folder.last_metrics() or [{}])[-1] for folder in layout.run_folders(name)]
            return len(rows) == 2 and all(row.get("step", 0) >= step for row in rows)

        sweep = begin("short")
        try:
            until(
                lambda: at_work("short", 3), "both jobs at work", lambda: sweep.poll() is not None
            )
            slurm_node.run(
                slurm,
                "sbatch",
                "--partition=urgent",
                "--exclusive",
                "--output=/dev/null",
                "--wrap=sleep 1",
            )
            until(lambda: "PENDING" in states(slurm).values(), "the preemption")
            until(lambda: begin_now(slurm), "both jobs again", pause=1)
            until(lambda: at_work("short", 8), "some more steps")
            slurm_node.run(
                slurm, "scontrol", "update", f"nodename={host}", "state=down", "reason=test"
            )
            until(lambda: set(states(slurm).values()) == {"PENDING"}, "the loss of the node")
            # While a node still ends its old jobs, it refuses the new ones of the same numbers, and
            # Slurm calls them failed. It gives them two minutes for that, which begin_now takes
            # away.
            until(lambda: not slurm_node.ending_jobs(), "the end of both jobs on the node")
            slurm_node.run(slurm, "scontrol", "update", f"nodename={host}", "state=resume")
            until(idle, "the node again")
            until(
                lambda: begin_now(slurm) or sweep.poll() is not None,
                "both jobs a third time, or one by one",
                pause=1,
            )
            assert sweep.wait(HANG) == 0, (tmp_path / "data.log").read_text()
            for folder in layout.run_folders("short"):
                assert [row["step"] for row in folder.read_metrics()] == list(range(1, steps + 1))
                assert folder.done_path.exists()
                assert len(folder.attempts()) == 3
            sweep = begin("long")
            until(lambda: at_work("long", 1), "two more jobs", lambda: sweep.poll() is not None)
            os.killpg(sweep.pid, signal.SIGINT)
            assert sweep.wait(HANG) == 130
            until(lambda: not states(slurm), "an empty queue")
        finally:
            sweep.kill()
            sweep.wait()
