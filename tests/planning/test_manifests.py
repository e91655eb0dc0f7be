"""`rpg render --slurm, --kuberay, --skypilot`: what a cluster takes, and what then runs is the same
sweep."""

import json
import shlex
import subprocess
import time
from dataclasses import replace

import pytest
import yaml

from flows.machine.slurm_queue import JOB_SCRIPT
from rpg.config.backend import LocalBackend, VerlBackend
from rpg.config.errors import ConfigError
from rpg.config.load import parse_assignments, resolve
from rpg.config.sweep_spec import load_file
from rpg.planning import manifests
from rpg.planning.manifests import (
    RAY_ON_NODES,
    Job,
    Pods,
    kuberay,
    label,
    skypilot,
    slurm_script,
    toleration,
)
from rpg.planning.model_shapes import shape_of
from rpg.planning.node_memory import head_gib, worker_gib
from tests.config.test_identity import CONFIGS
from tests.flows import slurm_node
from tests.planning.kuberay_schema import SCHEMA
from tests.waiting import until

VERL = VerlBackend(
    type="verl",
    device="cuda",
    nodes=2,
    gpus_per_node=8,
    rollout={"type": "vllm"},
    ray={"type": "address", "address": "auto"},
)
CUDA = LocalBackend(device="cuda", place={"type": "ray", "gpus": 1})
BACKENDS = {"cpu": LocalBackend(), "cuda": CUDA, "verl": VERL}


PODS = Pods(
    node_selector={"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
    tolerations=(toleration("nvidia.com/gpu:NoSchedule"), toleration("team=rl:NoExecute")),
    secrets=("hub-token",),
    pull_secrets=("registry",),
)


def job(backend, name="a-sweep", nodes=3):
    return Job(
        name,
        "sweep",
        "/shared/a b.yaml",
        "name: a-sweep\n",
        ("seed=[0, 1]",),
        backend,
        "/shared/data",
        "image:1",
        "claim",
        nodes,
        "H100",
        64,
        pods=PODS,
    )


def jobs():
    return [kuberay(job(backend), "2.50.0")[1] for backend in BACKENDS.values()]


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_rayjob_is_what_kuberay_publishes_that_it_takes(kind):
    jsonschema = pytest.importorskip("jsonschema")
    config, manifest = kuberay(job(BACKENDS[kind], name="my_sweep.A" + "x" * 60), "2.50.0")
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    schema.validate(manifest)
    assert config["metadata"] == manifest["metadata"] == {"name": "rpg-my-sweep-a" + 33 * "x"}
    manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParam"] = {}
    assert not schema.is_valid(manifest), "a misspelt field is seen"


def test_pods_carry_selectors_tolerations_and_secrets():
    cluster = kuberay(job(VERL), None)[1]["spec"]["rayClusterSpec"]
    templates = [cluster["headGroupSpec"]["template"]]
    templates += [group["template"] for group in cluster["workerGroupSpecs"]]
    for pod in (template["spec"] for template in templates):
        assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
        assert pod["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal", "value": "rl", "effect": "NoExecute"},
        ]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        [container] = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "hub-token"}}]


@pytest.mark.parametrize("text", ["gpu", "=x", "a b=c", "a=b c"])
def test_a_label_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        label(text)


@pytest.mark.parametrize("text", ["", "gpu:Never", "a b", "gpu=", "gpu:"])
def test_a_taint_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="expected KEY, KEY=VALUE"):
        toleration(text)


LARGE = {
    "model": {"type": "pretrained", "path": "Qwen/Qwen3-8B", "dtype": "bfloat16"},
    "task": {"type": "file", "train": "a.jsonl", "benchmarks": {"held-out": "b.jsonl"}},
    "training": {"prompts_per_step": 8, "mini_batch_prompts": 8},
}


def test_a_node_of_verl_has_room_for_what_waits_in_host_memory():
    """8.2e9 weights: 4 bytes to load, 8 engines of 2 bytes asleep, 12 where all is offloaded."""
    backend = {"type": "verl", "device": "cuda", "gpus_per_node": 8, "rollout": {"type": "vllm"}}
    specs = [
        resolve(LARGE | {"backend": backend | {"offload": offload}}, "run")
        for offload in (False, True)
    ]
    plain, offloaded = (worker_gib(spec) * 2**30 * 0.7 for spec in specs)
    weights = shape_of(specs[0].model).parameters
    assert weights * (4 + 8 * 2) < plain < 1.6 * weights * (4 + 8 * 2)
    assert offloaded - plain == pytest.approx(12 * weights, rel=0.03)
    assert 16 < head_gib(specs[0]) < worker_gib(specs[0])


def test_a_manifest_requests_what_its_largest_run_needs(command_line, tmp_path):
    file = tmp_path / "large.yaml"
    backend = {
        "type": "verl",
        "device": "cuda",
        "gpus_per_node": 8,
        "rollout": {"type": "vllm"},
    }
    raw = LARGE | {"backend": backend}
    file.write_text(yaml.safe_dump(raw))
    forecast = worker_gib(resolve(raw, "run"))
    for words, expected in (((), forecast), (("--memory", "70"), 70)):
        code, out, said = command_line("render", file, "--kuberay", "--home", tmp_path, *words)
        assert code == 0, said
        _, manifest = yaml.safe_load_all(out)
        [group] = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
        [container] = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"]["memory"] == f"{expected}Gi"
        assert (f"expected to need {forecast} GiB" in said) == bool(words)


def test_a_head_conducts_and_workers_have_the_gpus():
    config, manifest = kuberay(job(VERL), None)
    spec = manifest["spec"]
    [group] = spec["rayClusterSpec"]["workerGroupSpecs"]
    [worker] = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 8
    head = str(spec["rayClusterSpec"]["headGroupSpec"])
    assert "nvidia.com/gpu': 1" in head and "num-gpus': '0'" in head, "a GPU for evaluations alone"
    assert (group["replicas"], group["minReplicas"], spec["backoffLimit"]) == (2, 2, 3)
    assert spec["entrypoint"] == "bash /config/run.sh", (
        "words that Ray's own quoting leaves as they are"
    )
    words = shlex.split(config["data"]["run.sh"])[1:]
    assert words[:5] == ["rpg", "sweep", "/config/sweep.yaml", "--home", "/data"]
    assignments = parse_assignments(words[6::2])
    assert assignments == {"seed": [0, 1], "backend.ray": {"type": "address", "address": "auto"}}
    assert replace(job(VERL), command="train").words("f", "h")[-2:] == ["--name", "a-sweep"]
    elastic = kuberay(job(LocalBackend()), None)[1]["spec"]["rayClusterSpec"]
    assert elastic["workerGroupSpecs"][0]["minReplicas"] == 0
    assert elastic["enableInTreeAutoscaling"]


@pytest.mark.component
def test_a_batch_script_brings_a_ray_of_its_own_for_several_nodes():
    script = slurm_script(job(VERL))
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --gpus-per-node=8\n" in script
    assert "srun" in script
    assert "#SBATCH --signal=B:USR1@180\n" in script
    assert "'backend.ray={type: address, address: auto}'" in script
    assert "'/shared/a b.yaml'" in script
    alone = slurm_script(job(LocalBackend(), nodes=1))
    assert "srun" not in alone
    for text in (script, alone, JOB_SCRIPT.read_text(), skypilot(job(VERL))["run"]):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert skypilot(job(VERL))["resources"]["accelerators"] == "H100:8"


@pytest.mark.component
def test_a_batch_script_waits_for_its_ray_on_a_port_of_its_own(tmp_path):
    """With stand-ins for Slurm's and Ray's commands; the head answers when it is asked for the
    second time."""
    commands = {
        "hostname": "echo 10.0.0.1",
        "srun": 'echo "$@" >> calls',
        "sleep": "true",
        "ray": "echo asked >> asked; [ $(wc -l < asked) -gt 1 ]",
        "rpg": 'cat asked > asked-before-rpg; echo "$RAY_ADDRESS" > used\n'
        "until grep --quiet address=10 calls; do /bin/sleep 0.05; done",
    }
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NUM_NODES": "2",
    }
    subprocess.run(
        ["bash"],
        input=slurm_script(job(VERL)),
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
    )
    assert (tmp_path / "asked-before-rpg").read_text() == "asked\nasked\n"
    assert (tmp_path / "used").read_text() == "10.0.0.1:20345\n"
    calls = (tmp_path / "calls").read_text()
    assert "--port=20345" in calls
    assert "--address=10.0.0.1:20345" in calls


@pytest.mark.component
def test_a_run_s_job_on_several_nodes_trains_on_a_ray_of_its_own(tmp_path):
    """With stand-ins, as above; the trainer is the one that writes where its Ray is."""
    commands = {
        "hostname": "echo 10.0.0.2",
        "srun": 'echo "$@" >> calls',
        "ray": "true",
        "python": 'echo "$RAY_ADDRESS $@" > used',
    }
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "runs").write_text(f"{tmp_path}\n")
    environment = {
        "PATH": "/usr/bin:/bin",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_ARRAY_TASK_ID": "0",
    }
    job = ["bash", JOB_SCRIPT, "runs", tmp_path / "python", "rpg.backends.verl", RAY_ON_NODES]
    subprocess.run(job, check=True, cwd=tmp_path, env=environment, timeout=60)
    used = (tmp_path / "used").read_text()
    assert used == f"10.0.0.2:20007 -P -m rpg.backends.verl {tmp_path} --on-node\n"


@pytest.mark.system
@pytest.mark.skipif(slurm_node.missing() != "", reason=slurm_node.missing())
def test_a_file_as_one_job_goes_back_into_the_queue_before_its_time_ends(tmp_path, monkeypatch):
    """Two minutes of time, and a command that takes longer the first time it is started.

    Slurm may send its signal up to a minute early: with less time it could come before the script
    listens, which ends the job.
    """
    monkeypatch.setattr(manifests, "WARNING_SECONDS", 50)
    command = tmp_path / "rpg"
    lines = [
        "#!/bin/bash",
        f"trap 'echo stopped >> {tmp_path}/calls; exit 143' TERM",
        f"echo started >> {tmp_path}/calls",
        f"[ $(grep --count started {tmp_path}/calls) -gt 1 ] && exit 0",
        "for second in $(seq 300); do sleep 1; done",
    ]
    command.write_text("\n".join(lines) + "\n")
    command.chmod(0o755)
    script = tmp_path / "job.sh"
    script.write_text(slurm_script(job(LocalBackend(), nodes=1)).replace("\nrpg ", f"\n{command} "))
    with slurm_node.slurm_node(tmp_path / "slurm") as slurm:
        idle = lambda: slurm_node.run(slurm, "sinfo", "-h", "-o", "%T") == "idle"  # noqa: E731
        until(idle, "the node")
        options = ["--cpus-per-task=1", "--time=2", f"--chdir={tmp_path}"]
        tried = slurm_node.run(
            slurm, "sh", "-c", f"sbatch --test-only {' '.join(options)} {script} 2>&1"
        )
        assert "to start at" in tried, tried
        number = slurm_node.run(slurm, "sbatch", "--parsable", *options, str(script))

        calls = tmp_path / "calls"
        state = lambda: slurm_node.run(slurm, "scontrol", "show", "job", "-o", number)  # noqa: E731
        failed = lambda: "JobState=FAILED" in state()  # noqa: E731

        def is_back():
            said = state()
            return "JobState=PENDING" in said and "Restarts=1" in said

        until(is_back, "the job in the queue", unless=failed, pause=1)
        # Slurm waits two minutes before it starts the job again. A launch in the second in which
        # the job ended would be taken for that of before, which is revoked.
        time.sleep(3)
        slurm_node.run(slurm, "scontrol", "update", f"jobid={number}", "StartTime=now")
        until(lambda: len(calls.read_text().split()) == 3, "the second start", failed, pause=1)
        assert calls.read_text().split() == ["started", "stopped", "started"]
        until(lambda: "JobState=COMPLETED" in state(), "the end")
        assert "Restarts=1" in state()


def test_the_file_in_a_manifest_needs_no_other_file_and_gives_the_same_runs(command_line, tmp_path):
    file = CONFIGS / "sweeps/quickstart.yaml"
    assert "base:" in file.read_text()
    code, out, _ = command_line("render", file, "--kuberay", "--home", tmp_path)
    assert code == 0
    config, _ = yaml.safe_load_all(out)
    (tmp_path / "sweep.yaml").write_text(config["data"]["sweep.yaml"])
    overrides = parse_assignments(shlex.split(config["data"]["run.sh"])[7::2])
    one, other = (
        load_file(path, extra, lambda spec: "d")
        for path, extra in ((file, {}), (tmp_path / "sweep.yaml", overrides))
    )
    assert [run.run_id for run in one.runs] == [run.run_id for run in other.runs]
    assert other.runs[0].spec.backend.place.type == "ray"


@pytest.mark.component
def test_what_is_printed_can_run_there_or_what_it_lacks_is_said(command_line, tmp_path):
    on_cpus = "backend={type: verl, nodes: 2, ray: {type: address, address: auto}}"
    for words, why in (
        ("verl-ci --kuberay", "backend.place: unknown type 'ray'. Accepted: here"),
        ("environments/guessing --kuberay", "evaluation.place this machine"),
        ("chain --skypilot --set", "runs on verl need 'cuda'"),
    ):
        code, out, said = command_line(
            "render", "--home", tmp_path, *words.split(), *[on_cpus] * ("--set" in words)
        )
        assert code != 0
        assert not out
        assert why in said
    code, out, said = command_line(
        "render", "environments/guessing", "--skypilot", "--home", tmp_path
    )
    assert code == 0
    assert all(f"environments{name} is not in the job" in said for name in ("", "/guessing.jsonl"))
    # Runs that are jobs themselves: the script of a job.
    place = ("--set", "backend.place.type=slurm")
    code, out, _ = command_line("render", "quickstart", "--slurm", "--home", tmp_path, *place)
    assert code == 0
    assert out == JOB_SCRIPT.read_text()
