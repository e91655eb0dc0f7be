"""A file of runs as what a cluster takes: a batch script for Slurm, a RayJob for KubeRay, a task
for SkyPilot.

Each of them runs `rpg sweep` in one job. When the job is started again, the sweep continues from
its run folders.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rpg.config.backend import BackendSection, OnSlurm, VerlBackend
from rpg.config.errors import ConfigError

HERE_DOCUMENT = "END_OF_THE_SWEEP"
RAY_SECONDS = 300
"""How long a batch script waits for the head of its Ray."""


@dataclass(frozen=True)
class Job:
    """What is to run, and on what."""

    name: str  # of the sweep; part of the job's name
    command: str  # `sweep` or `train`
    file: str  # path of the file on a cluster with shared storage (Slurm)
    text: str  # the same, complete: YAML without `base`
    assignments: tuple[str, ...]  # the `--set` of the command line
    backend: BackendSection  # of its runs; says how many nodes, GPUs and threads
    home: str  # the data folder there
    image: str  # for containers; has rpg-lab installed
    volume: str  # Kubernetes: name of the PersistentVolumeClaim; SkyPilot: of the storage
    nodes: int  # machines for the runs of the embedded trainer
    gpu: str  # kind of GPU, by SkyPilot's name
    memory_gib: int  # of each node
    evaluator_gpus: int = 1  # where the runs are verl's, beside theirs

    @property
    def gpus(self) -> int:
        """GPUs per node."""
        per_node = self.backend.gpus_per_node if isinstance(self.backend, VerlBackend) else 1
        return per_node * (self.backend.device == "cuda")

    @property
    def workers(self) -> int:
        return self.backend.nodes if isinstance(self.backend, VerlBackend) else self.nodes

    @property
    def cpus(self) -> int:
        """Per node; verl reserves 3 for every GPU, and up to 10 for its queue."""
        if isinstance(self.backend, VerlBackend):
            return 3 * self.gpus + 10
        return max(self.backend.threads, 4)

    def words(self, file: str, home: str, more: Sequence[str] = ()) -> list[str]:
        """The command to run, as arguments."""
        # Of several assignments to a field the last one counts.
        by_field: dict[str, str] = {}
        for text in (*self.assignments, *more):
            field, _, _ = text.partition("=")
            by_field[field.strip()] = text
        words = ["rpg", self.command, file, "--home", home]
        for text in by_field.values():
            words += ["--set", text]
        if self.command == "train":
            # A copy of a run file has another file name than the results are stored under.
            words += ["--name", self.name]
        return words


def on_its_cluster(job: Job, address: str = "auto") -> list[str]:
    """Assignments that send the runs to the Ray cluster to which the command's own machine
    belongs."""
    if isinstance(job.backend, VerlBackend):
        if job.backend.device == "cpu":
            # Workers are counted as Ray's GPUs, which only its own Ray pretends.
            raise ConfigError("backend.device: 'cpu'; on a cluster, runs on verl need 'cuda'")
        return [f"backend.ray={{type: address, address: {address}}}"]
    place = f"{{type: ray, address: {address}, gpus: {job.gpus}}}"
    return [f"backend.place={place}", f"evaluation.place={place}"]


def slurm_script(job: Job) -> str:
    """One job of one or more nodes that brings its own Ray along, if it has several."""
    resources = OnSlurm(type="slurm").sbatch_options(job.workers, job.cpus, job.gpus)
    options = [f"--job-name=rpg-{job.name}"]
    options += resources
    options += [f"--output=rpg-{job.name}-%j.txt", "--open-mode=append", "--requeue"]
    advice = "# Submit it with: sbatch FILE. A job that is requeued, or submitted again, continues."
    lines = ["#!/bin/bash", advice]
    lines += [f"#SBATCH {option}" for option in options]
    lines.append("set -eu")
    more: list[str] = []
    if job.workers > 1:
        more = on_its_cluster(job)
        lines += [
            'head=$(hostname --all-ip-addresses | cut --delimiter=" " --fields=1)',
            # Another job of ours on this node has another port.
            "port=$((20000 + SLURM_JOB_ID % 12000))",
            "export RAY_worker_niceness=0  # else trainings yield to evaluations",
            'srun --overlap --nodes=1 --ntasks=1 --nodelist="$(hostname --short)" \\',
            '  ray start --head --block --node-ip-address="$head" --port="$port" &',
            f"for second in $(seq {RAY_SECONDS}); do",
            '  ray status --address="$head:$port" > /dev/null 2>&1 && break',
            f'  [ "$second" -lt {RAY_SECONDS} ] || {{ echo "Ray did not start" >&2; exit 1; }}',
            "  sleep 1",
            "done",
            "srun --overlap --nodes=$((SLURM_JOB_NUM_NODES - 1)) "
            "--ntasks=$((SLURM_JOB_NUM_NODES - 1)) \\",
            '  --exclude="$(hostname --short)" ray start --block --address="$head:$port" &',
            'export RAY_ADDRESS="$head:$port"  # what `auto` means below',
        ]
    # No exec: Slurm sends its signals to every process of the job, and Ray ends with the script.
    lines.append(shlex.join(job.words(job.file, job.home, more)))
    return "\n".join(lines) + "\n"


def kuberay(job: Job, ray_version: str | None) -> list[dict[str, Any]]:
    """A ConfigMap with the file, and a RayJob whose head conducts the sweep and whose workers
    train.

    Workers of the embedded trainer come and go with what there is to do; verl's are there from the
    beginning, and the head has GPUs of its own for evaluations, which Ray knows nothing of.
    """
    name = re.sub(r"[^a-z0-9-]", "-", f"rpg-{job.name}".lower())[:47].rstrip(
        "-"
    )  # as KubeRay accepts it
    elastic = not isinstance(job.backend, VerlBackend)
    gpus = {"nvidia.com/gpu": job.gpus} if job.gpus else {}
    own = {"nvidia.com/gpu": job.evaluator_gpus} if job.gpus and not elastic else {}
    head = _pod(job, name, "head", {"cpu": 4, "memory": "16Gi", **own})
    worker = _pod(job, name, "worker", {"cpu": job.cpus, "memory": f"{job.memory_gib}Gi", **gpus})
    starts = {"num-cpus": "0" if elastic else "4", "num-gpus": "0"}
    fewest = 0 if elastic else job.workers
    counts = {"replicas": fewest, "minReplicas": fewest, "maxReplicas": job.workers}
    workers = {"groupName": "workers", **counts, "rayStartParams": {}, "template": worker}
    cluster = {
        "enableInTreeAutoscaling": elastic,
        "headGroupSpec": {"rayStartParams": starts, "template": head},
        "workerGroupSpecs": [workers],
        **({"rayVersion": ray_version} if ray_version else {}),
    }
    metadata = {"name": name}
    command = shlex.join(job.words("/config/sweep.yaml", "/data", on_its_cluster(job)))
    data = {"sweep.yaml": job.text, "run.sh": f"exec {command}\n"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    spec = {
        # `ray job submit` quotes anew: $ and < would reach a shell
        "entrypoint": "bash /config/run.sh",
        "backoffLimit": job.backend.attempts - 1,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "rayClusterSpec": cluster,
    }
    return [
        config,
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec},
    ]


def _pod(job: Job, name: str, role: str, resources: dict[str, Any]) -> dict[str, Any]:
    mounts = {"data": "/data", "config": "/config", "shared-memory": "/dev/shm"}
    container = {
        "name": role,
        "image": job.image,
        "env": [{"name": "RPG_HOME", "value": "/data"}],
        "resources": {
            "limits": resources,
            "requests": dict(resources),
        },  # a copy: YAML would refer to one
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": job.volume}},
        {"name": "config", "configMap": {"name": name}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    return {"spec": {"containers": [container], "volumes": volumes}}


def skypilot(job: Job) -> dict[str, Any]:
    """A task of SkyPilot: `sky jobs launch FILE` recovers it after a preemption, and the data
    folder is in a bucket."""
    command = shlex.join(job.words("sweep.yaml", "/data"))
    if job.workers > 1:
        sweep = shlex.join(
            job.words("sweep.yaml", "/data", on_its_cluster(job, '"127.0.0.1:6385"'))
        )
        command = f"""\
export RAY_worker_niceness=0
head=$(echo "$SKYPILOT_NODE_IPS" | head --lines=1)
if [ "$SKYPILOT_NODE_RANK" != 0 ]; then
  until ray start --address="$head:6385"; do sleep 5; done
  while ray status --address="$head:6385" > /dev/null 2>&1; do sleep 10; done
  exit 0
fi
ray start --head --port=6385
{sweep}
ray stop"""
    gpus = {"accelerators": f"{job.gpu}:{job.gpus}"} if job.gpus else {}
    memory = f"{job.memory_gib}+"
    return {
        "name": f"rpg-{job.name}",
        "num_nodes": job.workers,
        "resources": {
            "image_id": f"docker:{job.image}",
            "use_spot": True,
            "memory": memory,
            **gpus,
        },
        "file_mounts": {"/data": {"name": job.volume, "mode": "MOUNT_CACHED"}},
        "run": f"cat > sweep.yaml <<'{HERE_DOCUMENT}'\n{job.text}{HERE_DOCUMENT}\n{command}\n",
    }
