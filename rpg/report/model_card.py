"""A model card for a checkpoint: scores and settings, from the folder of its run."""

import json

from rpg.report import format as written
from rpg.store.checkpoints import WEIGHTS
from rpg.store.run_folder import RunFolder
from rpg.store.samples import read_eval


def model_card(folder: RunFolder, step: int, title: str) -> str:
    """The card as Markdown with the header that the hub expects. Raises StoreError: the run's
    manifest cannot be read."""
    manifest = folder.read_manifest()
    spec = manifest["spec"]
    algorithm = manifest.get("display_name") or manifest["algorithm"]
    checkpoint = folder.checkpoint(step)
    has_weights = any(checkpoint.glob(f"*{WEIGHTS}"))
    is_beside_base = (checkpoint / "adapters" / "base.json").is_file() and not has_weights
    header = {
        "library_name": "peft" if is_beside_base else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rpg-lab", "reinforcement-learning", str(manifest["algorithm"])],
    }
    base = spec.get("model", {}).get("path")
    if isinstance(base, str) and base.count("/") == 1 and not base.startswith((".", "/", "~")):
        header["base_model"] = base
    front = [f"{key}: {json.dumps(value)}" for key, value in header.items()]
    lines = ["---", *front, "---", "", f"# {_markdown_text(title)}", ""]
    version = manifest.get("versions", {}).get("rpg-lab", "")
    lines += [
        f"Step {step} of {manifest['steps']} of the run `{folder.sweep}/{folder.name}`, "
        "trained with "
        f"{_markdown_text(algorithm)} (seed {manifest['seed']}) by {f'rpg-lab {version}'.strip()}.",
        "",
    ]
    if is_beside_base:
        lines += [
            "`adapters/` has low-rank adapters, to be loaded beside a base in 4 bits (NF4) that "
            "`adapters/base.json` names.",
            "",
        ]
    scores = _scores(folder, step)
    if scores:
        lines += ["## Scores", "", "| benchmark | mean@k | k | problems |", "|---|---|---|---|"]
        lines += [
            f"| {name} | {written.accuracy(accuracy)} | {k} | {problems} |"
            for name, accuracy, k, problems in scores
        ]
        lines.append("")
    fence = "```"
    lines += [
        "## Settings",
        "",
        f"{fence}json",
        json.dumps(spec, indent=1, ensure_ascii=True),
        fence,
        "",
    ]
    return "\n".join(lines)


def _scores(folder: RunFolder, step: int) -> list[tuple[str, float, int, int]]:
    """(benchmark, mean@k, k, problems) of the step's evaluations."""
    scores = []
    for name in folder.benchmarks():
        if step not in folder.eval_steps(name):
            continue
        samples = read_eval(folder, name, step).group_by("problem_id")
        table = samples.aggregate([("correct", "mean"), ("correct", "count")])
        shares = table.column("correct_mean").to_pylist()
        counts = table.column("correct_count").to_pylist()
        if shares:
            scores.append((name, sum(shares) / len(shares), min(counts), len(shares)))
    return scores


def _markdown_text(text: str) -> str:
    return str(text).replace("<", "&lt;").replace("\n", " ")
