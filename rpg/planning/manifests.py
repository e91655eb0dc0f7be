"""A file of runs as what a cluster takes: a batch script for Slurm, a RayJob for KubeRay, a task
for SkyPilot.

Each of them runs `rpg sweep` in one job. When the job is started again, the sweep continues from
its run folders.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.config.backend import BackendSection, OnSlurm, VerlBackend
from rpg.config.errors import ConfigError

HERE_DOCUMENT = "END_OF_THE_SWEEP"
RAY_ON_NODES = Path(__file__).with_name("ray_on_nodes.sh")
"""A part of the batch scripts of several nodes."""
WARNING_SECONDS = 180
"""How long before its time limit Slurm tells a job, which then ends its runs and is requeued."""


@dataclass(frozen=True)
class Pods:
    """What a Kubernetes cluster wants to be told of every pod."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that its node must have."""
    tolerations: tuple[Mapping[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    """Names of Secrets whose entries become environment variables, e.g. `HF_TOKEN`."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets with which the image is pulled."""

    def spec(self) -> dict[str, Any]:
        """The part of a pod's specification."""
        parts = {
            "nodeSelector": dict(self.node_selector),
            "tolerations": [dict(toleration) for toleration in self.tolerations],
            "imagePullSecrets": [{"name": name} for name in self.pull_secrets],
        }
        return {name: part for name, part in parts.items() if part}


_LABEL = re.compile(r"[\w./-]+")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def label(text: str) -> tuple[str, str]:
    """`KEY=VALUE` of a node. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
        raise ConfigError(f"--node-selector {text}: expected KEY=VALUE, a label of the nodes")
    return key, value


def toleration(text: str) -> dict[str, str]:
    """`KEY`, `KEY=VALUE`, either with `:EFFECT`, as `kubectl taint` writes a taint. Raises
    ConfigError."""
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    good = _LABEL.fullmatch(key) and (not equals or _LABEL.fullmatch(value))
    if not good or (colon and effect not in _EFFECTS):
        raise ConfigError(
            f"--toleration {text}: expected KEY, KEY=VALUE or either with :EFFECT; effects are "
            f"{', '.join(_EFFECTS)}"
        )
    tolerated = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        tolerated["value"] = value
    if effect:
        tolerated["effect"] = effect
    return tolerated


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
    head_gib: int = 16  # memory of KubeRay's head
    pods: Pods = Pods()

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
            name, _, _ = text.partition("=")
            by_field[name.strip()] = text
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
        of_the_cluster = [f"backend.ray={{type: address, address: {address}}}"]
        if isinstance(job.backend.place, OnSlurm):
            of_the_cluster.append("backend.place={type: here}")
        return of_the_cluster
    place = f"{{type: ray, address: {address}, gpus: {job.gpus}}}"
    return [f"backend.place={place}", f"evaluation.place={place}"]


def slurm_script(job: Job) -> str:
    """One job of one or more nodes that brings its own Ray along, if it has several."""
    resources = OnSlurm(type="slurm").sbatch_options(job.workers, job.cpus, job.gpus)
    options = [f"--job-name=rpg-{job.name}"]
    options += resources
    options += [f"--output=rpg-{job.name}-%j.txt", "--open-mode=append", "--requeue"]
    options.append(f"--signal=B:USR1@{WARNING_SECONDS}")
    advice = "# Submit it with: sbatch FILE. A job that is requeued, or submitted again, continues."
    lines = ["#!/bin/bash", advice]
    lines += [f"#SBATCH {option}" for option in options]
    lines.append("set -eu")
    more: list[str] = []
    if job.workers > 1:
        more = on_its_cluster(job)
        lines += RAY_ON_NODES.read_text("utf-8").splitlines()
    # No exec: Slurm sends its signals to every process of the job, and Ray ends with the script.
    # In the background, since bash handles a signal only once a command in front has ended.
    lines += [
        shlex.join(job.words(job.file, job.home, more)) + " &",
        "command=$!",
        "# At the end of the job's time the sweep stops, and the job goes back into the queue.",
        "trap 'trap - USR1; kill -TERM $command; wait $command || true; "
        'scontrol requeue "$SLURM_JOB_ID"; exit 0\' USR1',
        "wait $command",
    ]
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
    head = _pod(job, name, "head", {"cpu": 4, "memory": f"{job.head_gib}Gi", **own})
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
    container: dict[str, Any] = {
        "name": role,
        "image": job.image,
        "env": [{"name": "RPG_HOME", "value": "/data"}],
        "resources": {
            "limits": resources,
            "requests": dict(resources),
        },  # a copy: YAML would refer to one
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
    }
    if job.pods.secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in job.pods.secrets]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": job.volume}},
        {"name": "config", "configMap": {"name": name}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    return {"spec": {"containers": [container], "volumes": volumes, **job.pods.spec()}}


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
