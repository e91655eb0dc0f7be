"""The command `rpg render`: how a run would be started on verl, or a file on a cluster."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import File, Home, Json, Set, app, complain, console, layout_at, refuse
from rpg.cli.show import UNKNOWN, DigestIfPresent

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec
    from rpg.config.sweep_spec import PlannedRun
    from rpg.planning.manifests import Job


_NODE_GIB = 64
"""Memory of a node whose runs need less."""


@app.command()
def render(
    file: File,
    set_: Set = [],
    run: str | None = None,
    home: Home = None,
    as_json: Json = False,
    slurm: Annotated[bool, typer.Option("--slurm")] = False,
    kuberay: Annotated[bool, typer.Option("--kuberay")] = False,
    skypilot: Annotated[bool, typer.Option("--skypilot")] = False,
    image: str = "rpg-lab",
    volume: str = "rpg-data",
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    gpu: str = "H100",
    memory: Annotated[int | None, typer.Option(min=1)] = None,
    node_selector: list[str] = [],
    toleration: list[str] = [],
    secret: list[str] = [],
    pull_secret: list[str] = [],
) -> None:
    """Show how a run would start on verl: Hydra overrides, shell command, Ray's runtime
    environment.

    With --slurm, --kuberay or --skypilot: how the whole file would run on such a cluster, ready to
    be submitted.

    Args:
        run: Run of the sweep: the name of its folder, or the beginning of it.
        slurm: Print a batch script that runs the file.
        kuberay: Print a RayJob for Kubernetes.
        skypilot: Print a task for SkyPilot.
        image: Container image with rpg-lab.
        volume: Claim or bucket that holds the data folder.
        nodes: Nodes for the runs of the embedded trainer.
        gpu: Kind of GPU, by SkyPilot's name.
        memory: GiB of memory of a node; without it, at least the forecast.
        node_selector: KubeRay: KEY=VALUE, a label of the nodes (repeatable).
        toleration: KubeRay: KEY[=VALUE][:EFFECT], a taint of the nodes (repeatable).
        secret: KubeRay: a Secret whose entries are environment variables (repeatable).
        pull_secret: KubeRay: a Secret with which the image is pulled (repeatable).
    """
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything of the hub's is imported
    from rpg.backends.verl.overrides import Paths, plan
    from rpg.config.load import parse_assignments, read_mapping
    from rpg.config.sweep_spec import load_file
    from rpg.planning.preflight import unchecked, unknown_settings
    from rpg.tasks.preparation import data_files

    digest = DigestIfPresent()
    sweep = load_file(file, parse_assignments(set_), digest)
    wrong = unknown_settings([run.spec for run in sweep.runs])
    if wrong:
        refuse("\n".join(f"{file}: {line}" for line in wrong))
    if slurm or kuberay or skypilot:
        from rpg.planning import manifests
        from rpg.planning.manifests import Job, on_its_cluster
        from rpg.planning.node_memory import head_gib

        command = "sweep" if "name" in read_mapping(file) else "train"
        specs = [planned.spec for planned in sweep.runs]
        job = Job(
            sweep.spec.name,
            command,
            str(file.resolve()),
            _complete(file),
            tuple(set_),
            specs[0].backend,
            str(layout_at(home).home),
            image,
            volume,
            nodes,
            gpu,
            _memory(specs, memory),
            max(spec.evaluator_gpus() for spec in specs),
            max(map(head_gib, specs)),
            manifests.Pods(
                node_selector=dict(map(manifests.label, node_selector)),
                tolerations=tuple(map(manifests.toleration, toleration)),
                secrets=tuple(secret),
                pull_secrets=tuple(pull_secret),
            ),
        )
        if kuberay or job.workers > 1:  # the file itself may refuse that place
            load_file(
                file, parse_assignments(set_) | parse_assignments(on_its_cluster(job)), digest
            )
        for path in () if slurm else sorted({path for spec in specs for path in _only_here(spec)}):
            complain(f"{path} is not in the job: the image or the volume has to have it", "yellow")
        print(_manifest(job, slurm, kuberay, skypilot), end="")
        return
    chosen = _choose(sweep.runs, run, file)
    spec = chosen.spec
    has_id = digest.is_known(chosen.spec)
    if spec.backend.type != "verl":
        refuse(
            f"{file}: backend.type: {spec.backend.type!r}; only runs on verl can be "
            "rendered; try: --set backend.type=verl"
        )
    spec = spec.model_copy(update={"backend": spec.backend.with_ray_of_its_job("auto")})
    for line in unchecked([spec]):
        complain(f"{file}: {line}", "yellow")
    layout = layout_at(home)
    folder = layout.run(sweep.spec.name, chosen.folder)
    model = _model(spec, layout.home, has_id)
    paths = Paths.of(folder.path, data_files(spec, layout.home, chosen.data), model)
    launch = plan(spec, paths, project=folder.sweep, experiment=folder.name)
    if as_json:
        print(
            json.dumps(
                {
                    "run": chosen.folder,
                    "run_id": chosen.run_id if has_id else None,
                    "overrides": launch.overrides,
                    "arguments": launch.arguments(),
                    "environment": launch.environment,
                    "runtime_env": launch.runtime_env(),
                    "command": launch.command(),
                },
                indent=1,
            )
        )
        return
    console.rule(f"overrides ({chosen.folder})", align="left")
    for argument in launch.arguments():
        print(argument)
    console.rule("shell command", align="left")
    print(launch.command())
    console.rule("Ray runtime environment", align="left")
    print(json.dumps(launch.runtime_env(), indent=1))
    for reason in digest.absent.values():
        complain(
            f"the data is not here, so this run's identity is not known yet: {reason}", "yellow"
        )


def _memory(specs: "list[RunSpec]", given: int | None) -> int:
    """GiB of a node: as given, else what the largest run needs."""
    from rpg.planning.node_memory import worker_gib

    needs = [need for need in map(worker_gib, specs) if need is not None]
    forecast = max(needs, default=0)
    if given is None:
        return max(_NODE_GIB, forecast)
    if given < forecast:
        complain(f"--memory {given}: a node is expected to need {forecast} GiB", "yellow")
    return given


def _manifest(job: "Job", slurm: bool, kuberay: bool, skypilot: bool) -> str:
    """The file for the cluster, as text."""
    if slurm + kuberay + skypilot > 1:
        refuse("--slurm, --kuberay and --skypilot: give one of them")
    from importlib import metadata
    from importlib.util import find_spec

    import yaml

    from flows.machine.slurm_queue import JOB_SCRIPT
    from rpg.config.backend import OnSlurm
    from rpg.planning import manifests

    class Readable(yaml.SafeDumper):
        """Text of several lines as a block."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    if slurm:
        is_job = isinstance(getattr(job.backend, "place", None), OnSlurm)
        return JOB_SCRIPT.read_text("utf-8") if is_job else manifests.slurm_script(job)
    Readable.add_representer(str, text)
    version = metadata.version("ray") if find_spec("ray") else None
    documents = manifests.kuberay(job, version) if kuberay else [manifests.skypilot(job)]
    return str(yaml.dump_all(documents, Dumper=Readable, sort_keys=False))


def _only_here(spec: "RunSpec") -> list[str]:
    """Paths of this machine that a run reads: problems, code, models."""
    parts = (spec.task, spec.model, spec.algorithm.reference, *spec.reward)
    named = [getattr(part, name, None) for part in parts for name in ("beside", "path")]
    return [str(path) for path in (*spec.task.files(), *named) if path and Path(path).is_absolute()]


def _complete(file: Path) -> str:
    """The text of a run or sweep file without `base`, so that it needs no other file."""
    import yaml

    from rpg.config.load import load_raw_run, merged_over_base, read_mapping

    raw = read_mapping(file)
    if "name" not in raw:
        raw = load_raw_run(file)
    elif base := raw.pop("base", None):
        raw["run"] = merged_over_base(raw.get("run") or {}, base, file)
    return str(yaml.safe_dump(raw, sort_keys=False, allow_unicode=True))


def _choose(runs: tuple["PlannedRun", ...], name: str | None, file: Path) -> "PlannedRun":
    from rpg.config.errors import nearest

    folders = [planned.folder for planned in runs]
    matching = [planned for planned in runs if planned.folder.startswith(name or "")]
    named = [planned for planned in runs if planned.folder == name]
    chosen = named or matching
    if len(chosen) == 1:
        return chosen[0]
    if name is None:
        problem = f"has {len(runs)} runs; choose one with --run."
    else:
        hint = "." if matching else nearest(name, folders)
        problem = f"--run {name!r} matches {len(matching) or 'none'} of its runs{hint}"
    shown = ", ".join(folders[:10])
    if len(folders) > 10:
        shown += f" and {len(folders) - 10} more"
    refuse(f"{file}: {problem} There are: {shown}")


def _model(spec: "RunSpec", home: Path, has_id: bool) -> str | Path:
    """The folder of a tiny model's warm start, made or not; a pretrained model's path or hub id."""
    if spec.model.type == "pretrained" and spec.model.warm_start is None:
        from rpg.config.model import located

        local = located(spec.model.path, home)
        return local.resolve() if local else spec.model.path
    if not has_id:
        return home / "cache" / "warm" / UNKNOWN
    from rpg.models.warm_start_cache import warm_folder

    return warm_folder(spec, home)
