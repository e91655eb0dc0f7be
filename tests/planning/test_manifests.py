"""`rpg render --slurm, --kuberay, --skypilot`: what a cluster takes, and what then runs is the same
sweep."""

import json
import shlex
import subprocess
from dataclasses import replace

import pytest
import yaml

from flows.machine.slurm_queue import JOB_SCRIPT
from rpg.config.backend import LocalBackend, VerlBackend
from rpg.config.load import parse_assignments
from rpg.config.sweep_spec import load_file
from rpg.planning.manifests import Job, kuberay, skypilot, slurm_script
from tests.config.test_identity import CONFIGS
from tests.planning.kuberay_schema import SCHEMA

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
        ("verl-ci --kuberay", "backend.place: unknown field"),
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
