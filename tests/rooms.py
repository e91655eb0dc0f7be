"""The rooms of the source and what each may import: one table, checked by tests/test_structure.py.

`python -m tests.rooms` prints it for docs/architecture.md. A room may import the rooms named in `ours` and the
packages named in `outside` (besides the standard library); whatever is not named is an error, an unknown module included.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """One room: a package or module prefix, what it holds, all it may import, and the rooms whose modules it may name
    by string, to run them as processes.
    """

    name: str
    what: str
    ours: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()


def _room(name: str, what: str, ours: str = "", outside: str = "", starts: str = "") -> Room:
    return Room(name, what, tuple(ours.split()), tuple(outside.split()), tuple(starts.split()))


# From the bottom up: a room imports rooms above its own line only (`test_the_order_is_bottom_up`).
ROOMS = (
    _room("rpg.errors", "base class of all errors that a user can fix"),
    _room("rpg.processes", "processes on this machine, and children that end with their parent"),
    _room("rpg.web", "access control of a port: host names, origins, the password"),
    _room("rpg.stats", "estimates, intervals, tests of differences, power", outside="numpy scipy"),
    _room("rpg.metrics", "every metric of a training step, declared once", outside="yaml"),
    _room("rpg.provenance", "the source files, packages and machine that computed a training"),
    _room(
        "rpg.fork_server", "programs forked from a process that has imported their modules", "rpg.processes rpg.provenance"
    ),
    _room("rpg.catalogue", "what an algorithm is, as data", "rpg.errors", "pydantic rich yaml"),
    _room("rpg.losses", "pure torch functions: losses, divergences, advantages, aggregation", "rpg.catalogue", "torch"),
    _room(
        "rpg.auditing", "exact bias and variance of a loss on enumerable policies",
        "rpg.errors rpg.catalogue rpg.losses", "torch numpy rich trl verl yaml",
    ),
    _room("rpg.testing", "assertions about losses, for the tests of any project", "rpg.catalogue rpg.auditing", "torch"),
    _room(
        "rpg.store", "run folders, current runs, pending work, the database and its queries",
        "rpg.errors rpg.processes rpg.stats rpg.metrics rpg.provenance", "duckdb numpy pandas pyarrow psutil",
    ),
    _room("rpg.next_steps", "commands that messages tell people to run next", "rpg.store"),
    _room(
        "rpg.config", "run and sweep files: sections, expansion, identity", "rpg.errors rpg.catalogue",
        "pydantic pydantic_core yaml",
    ),
    _room(
        "rpg.answers", "mathematical answers: found in a response, read by a grammar, compared",
        outside="mpmath math_verify sympy",
    ),
    _room(
        "rpg.rewards", "verifiers, graders and their processes, rewards, environments",
        "rpg.errors rpg.processes rpg.config rpg.answers", "psutil reasoning_gym regex sympy transformers",
    ),
    _room(
        "rpg.tasks", "problems: task types, training sets, benchmarks, leaks, preparation",
        "rpg.errors rpg.processes rpg.config rpg.store rpg.answers",
        "datasets huggingface_hub pyarrow pydantic reasoning_gym",
    ),
    _room(
        "rpg.planning", "what a run needs: counts, measured time, memory and GPUs by arithmetic",
        "rpg.stats rpg.catalogue rpg.config rpg.store rpg.tasks", "numpy psutil",
    ),
    _room(
        "rpg.models", "language models: loading, sampling, log-probabilities, warm starts",
        "rpg.errors rpg.catalogue rpg.config rpg.rewards rpg.tasks",
        "torch numpy transformers tokenizers safetensors huggingface_hub gguf jinja2 peft liger_kernel pip",
    ),
    _room(
        "rpg.backends", "shared by both back ends: manifest, prompts, optimizer steps, processes",
        "rpg.errors rpg.processes rpg.provenance rpg.fork_server rpg.catalogue rpg.store rpg.config rpg.models",
        "pydantic torch transformers ray",
    ),
    _room(
        "rpg.backends.local", "the embedded trainer, one process per run; fidelity of the gradients at its checkpoints",
        "rpg.errors rpg.processes rpg.catalogue rpg.auditing rpg.losses rpg.store rpg.config rpg.rewards rpg.tasks "
        "rpg.planning rpg.models rpg.backends",
        "torch numpy safetensors schedulefree",
    ),
    _room(
        "rpg.backends.verl", "verl on Ray: launcher and plug-in; runs inside cluster images",
        "rpg.errors rpg.processes rpg.catalogue rpg.losses rpg.store rpg.config rpg.rewards rpg.tasks rpg.models "
        "rpg.backends",
        "torch transformers safetensors huggingface_hub verl ray vllm hydra "
        "omegaconf tensordict transfer_queue peft psutil pydantic", starts="rpg.answers",
    ),
    _room(
        "verl_cpu", "what verl lacks without a GPU: a separate distribution (verl-cpu/), found by its entry points",
        "rpg.models rpg.backends.verl", "torch transformers safetensors verl ray vllm psutil",
    ),
    _room(
        "rpg.evaluation", "from checkpoints to graded samples",
        "rpg.errors rpg.processes rpg.stats rpg.store rpg.config rpg.answers rpg.rewards rpg.tasks rpg.models rpg.backends",
        "torch transformers numpy pydantic ray vllm",
    ),
    _room(
        "rpg.bench", "what a training step costs on this machine: beside bare products, and beside TRL",
        "rpg.errors rpg.provenance rpg.store rpg.config rpg.rewards rpg.tasks rpg.models rpg.backends.local",
        "torch transformers trl datasets",
    ),
    _room(
        "rpg.importing", "runs from elsewhere, as run folders, live too: of other trainers, of other data folders",
        "rpg.errors rpg.config rpg.store",
    ),
    _room(
        "rpg.integrations",
        "our losses inside other trainers, and their runs recorded here; graded samples as logs of Inspect AI",
        "rpg.errors rpg.catalogue rpg.losses rpg.store rpg.config rpg.evaluation rpg.importing",
        "torch transformers trl verl inspect_ai",
    ),
    _room(
        "rpg.adopting", "somebody's data, TRL script or verl command as files to train with",
        "rpg.errors rpg.auditing rpg.config rpg.rewards rpg.tasks rpg.models rpg.evaluation", "yaml",
    ),
    _room(
        "rpg.tracking", "metrics sent to TensorBoard, Weights & Biases, MLflow",
        "rpg.errors rpg.processes rpg.config rpg.store", "torch wandb mlflow pydantic",
    ),
    _room(
        "rpg.report", "tables, figures and nightly bands from stored results",
        "rpg.errors rpg.stats rpg.catalogue rpg.metrics rpg.store",
        "altair vl_convert jinja2 markupsafe numpy pandas pylatexenc rich",
    ),
    _room(
        "rpg.study", "studies: tuned with equal effort, registered, compared",
        "rpg.stats rpg.provenance rpg.store rpg.config rpg.report", "optuna numpy pandas pydantic vl_convert",
    ),
    _room("rpg.paper", "the published results, and a lint of them", outside="pandas scipy rich"),
    _room(
        "dashboard", "Streamlit pages",
        "rpg.processes rpg.web rpg.metrics rpg.store rpg.next_steps rpg.report rpg.study rpg.paper",
        "streamlit uvicorn altair vl_convert jinja2 duckdb pandas",
    ),
    _room(
        "flows.monitor", "the live table: what a sweep is doing, read from its files", "rpg.store rpg.report", "rich"
    ),
    _room(
        "flows.machine", "slots, child processes, Ray clusters, Slurm jobs and disk space",
        "rpg.errors rpg.processes rpg.provenance rpg.fork_server rpg.store rpg.config rpg.planning", "pydantic",
        starts="rpg.backends rpg.backends.local rpg.backends.verl rpg.evaluation rpg.tracking",
    ),
    _room(
        "flows.prefect", "Prefect's server and what its pages show: states, artifacts, concurrency limits",
        "rpg.errors rpg.processes rpg.web rpg.store flows.monitor flows.machine", "prefect anyio psutil uvicorn",
    ),
    _room(
        "flows.sweep", "the flow of a sweep: prepare, train, evaluate, aggregate, report",
        "rpg.errors rpg.processes rpg.provenance rpg.fork_server rpg.store rpg.next_steps rpg.config rpg.report "
        "flows.monitor flows.machine flows.prefect",
        "prefect pydantic",
    ),
    _room(
        "flows.study", "the flow of a study: tune, register, report",
        "rpg.errors rpg.store rpg.next_steps rpg.config rpg.tasks rpg.report rpg.study flows.prefect", "prefect",
    ),
    _room(
        "flows.other_code", "nights of other code: of commits, to find what changed the bits, and of planted faults",
        "rpg.errors rpg.processes rpg.store rpg.report", "yaml",
    ),
    _room(
        "flows.nightly", "a night: every sweep of a folder, compared with earlier nights",
        "rpg.provenance rpg.auditing rpg.store rpg.next_steps rpg.config rpg.tasks rpg.planning rpg.report flows.prefect "
        "flows.other_code",
    ),
    _room(
        "flows.serve", "`rpg serve` and `rpg worker`: deployments, forms, supervised services",
        "rpg.errors rpg.processes rpg.web rpg.catalogue rpg.store rpg.next_steps rpg.config rpg.tasks rpg.planning "
        "rpg.report rpg.study flows.monitor flows.machine flows.prefect flows.nightly",
        "prefect pydantic psutil starlette", starts="dashboard",
    ),
    _room(
        "rpg.cli", "the command line",
        "rpg.errors rpg.processes rpg.stats rpg.catalogue rpg.auditing rpg.store rpg.next_steps rpg.config rpg.tasks "
        "rpg.planning rpg.models rpg.backends.local rpg.backends.verl rpg.evaluation rpg.bench rpg.integrations "
        "rpg.tracking rpg.importing rpg.adopting rpg.report rpg.study rpg.paper flows.monitor flows.machine flows.prefect "
        "flows.sweep flows.study flows.other_code flows.nightly flows.serve",
        "typer rich duckdb yaml huggingface_hub httpx",
    ),
    _room("flows", "the deployed flows for a Prefect worker of your own", "flows.prefect flows.serve", starts="rpg.cli"),
)  # fmt: skip


def room_of(module: str) -> Room | None:
    """The room a module belongs to, or None: the one with the longest prefix of its name."""
    module = module if module not in ("rpg", "rpg.__main__") else "rpg.cli"  # `python -m rpg` is the command
    inside = [room for room in ROOMS if module == room.name or module.startswith(room.name + ".")]
    return max(inside, key=lambda room: len(room.name), default=None)


def table() -> str:
    """The rooms as a Markdown table, bottom up."""
    lines = [
        "| room | what it holds | may import | third-party packages | may start |",
        "|---|---|---|---|---|",
    ]
    for room in ROOMS:
        imports, starts = (
            ", ".join(name.removeprefix("rpg.") for name in names) for names in (room.ours, room.starts)
        )
        others = ", ".join(room.outside)
        lines.append(
            f"| `{room.name.replace('.', '/')}` | {room.what} | {imports or 'no other room'} | {others} | {starts} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
