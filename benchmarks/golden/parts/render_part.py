"""How runs would start on verl, and whole files on clusters."""

from __future__ import annotations

from pathlib import Path

from benchmarks.golden.commands import Commands, tree

SETTINGS = (
    (),
    ("algorithm=rpg-reinforce-urkl",),
    ("algorithm={name: rpg-urkl, beta: 0.01, reference: {type: fixed}}",),
    ("algorithm={name: dapo}", "rollout.staleness=1"),
    ("algorithm=ppo",),
    ("algorithm=gspo",),
    ("model.lora={rank: 4, alpha: 8}",),
    ("training.optimizer.type=schedulefree",),
    ("training.epochs=2", "training.max_grad_norm=0.5"),
    ("evaluation.samples_per_problem=2",),
    ("backend.device=cuda", "backend.gpus_per_node=2"),
    ("backend.device=cuda", "backend.rollout={type: vllm}"),
)
CLUSTERS = ("--slurm", "--kuberay", "--skypilot")


def dump(folder: Path) -> None:
    commands = Commands()
    for number, settings in enumerate(SETTINGS):
        options = ["--set", "backend.type=verl"]
        for setting in settings:
            options += ["--set", setting]
        commands.write(
            folder / f"verl-{number}.txt",
            [["render", "chain", *options, "--json"], ["render", "chain", *options]],
        )
    for file in sorted((tree() / "configs" / "runs").glob("*.yaml")):
        commands.write(
            folder / f"run-{file.stem}.txt",
            [["render", str(file), "--set", "backend.type=verl", "--json"]],
        )
    for name in ("quickstart", "verl-ci", "smollm2", "table3"):
        commands.write(
            folder / f"cluster-{name}.txt",
            (["render", name, option, "--nodes", "2"] for option in CLUSTERS),
        )
