"""The command `rpg bench`: what a training step costs on this machine."""

import json
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from rpg.cli.app import Home, Set, app, columns, complain, console, layout_at, refuse, say
from rpg.cli.recorded import result


@app.command()
def bench(
    model: str = "tiny",
    shape: str = "8x8x42",
    steps: Annotated[int, typer.Option(min=1)] = 2,
    peer: str | None = None,
    rows: list[int] = [],
    set_: Set = [],
    list_: Annotated[bool, typer.Option("--list")] = False,
    home: Home = None,
) -> None:
    """Measure this machine (bare matrix products, memory), a training step by phase as a share of
    that, and other trainers.

    All in processor seconds. The table can be pasted; every measurement is kept in the folder
    bench/ of the data folder.

    Args:
        model: tiny, or what model.path accepts.
        shape: Prompts x responses to each x tokens.
        steps: Steps measured on each side; the mean is reported.
        peer: A Python with TRL: its GRPOTrainer does the same steps.
        rows: Rows per pass of TRL (repeatable). Default: as many as our peak memory allows.
        list_: Print the measurements of this data folder.
    """
    layout = layout_at(home)
    if list_:
        files = sorted((layout.home / "bench").glob("*.json"))
        records = [json.loads(file.read_text("utf-8")) for file in files]
        result(measurements=records)
        _list(records)
        return
    from rpg.config.load import assign, parse_assignments, resolve
    from rpg.planning.bench import bench as measure

    try:
        prompts, group, tokens = (int(part) for part in shape.split("x"))
    except ValueError:
        refuse(f"--shape {shape!r}: expected prompts x responses x tokens, e.g. 4x16x64")
    longest = 64 if model == "tiny" else 256
    settings: dict[str, Any] = {
        "algorithm": {"name": "dapo", "dynamic_sampling": False, "overlong": None},
        "model": {"type": "tiny"} if model == "tiny" else {"type": "pretrained", "path": model},
        "training": {"prompts_per_step": prompts, "mini_batch_prompts": prompts},
        "rollout": {
            "group_size": group,
            "max_response_tokens": tokens,
            "max_prompt_tokens": longest,
        },
    }
    for field, value in parse_assignments(set_).items():
        assign(settings, field, value, "--set")
    spec = resolve(settings, "rpg bench")
    tell = partial(complain, style="dim")
    record = measure(spec, layout.home, steps=steps, peer=peer, rows=rows, say=tell)
    result(measurements=[record])
    _print(record)


def _print(record: dict[str, Any]) -> None:
    """Two tables in Markdown: this machine, and the step; then a line for each trial of TRL."""
    _print_machine(record)
    _print_step(record)
    for trial in record["trials"]:
        memory = f"{trial['peak']:.2f} GiB ({record['peak'] / trial['peak']:.2f})"
        say(
            f"\nTRL, {trial['rows']} rows per pass: {trial['step']:.3g} s a step, peak {memory}",
            None,
        )


def _print_machine(record: dict[str, Any]) -> None:
    speed = f"torch {record['versions']['torch']}, {record['bandwidth'] / 1e9:.1f} GB/s from memory"
    say(f"{record['processor']}, threads: {record['threads']}, {speed}\n")
    say("| bare product, GFLOP/s | float32 | bfloat16 | int8 |\n|---|--:|--:|--:|")
    for product in record["products"]:
        shape = " x ".join(map(str, product["shape"]))
        rates = [product[name] for name in ("float32", "bfloat16", "int8")]
        cells = " | ".join("-" if rate is None else f"{rate / 1e9:.0f}" for rate in rates)
        say(f"| {product['name']}: {shape} | {cells} |")


def _print_step(record: dict[str, Any]) -> None:
    mean = f"mean of {record['steps']} steps, peak {record['peak']:.2f} GiB"
    say(f"\n{record['model_name']}, {record['shape']}, {mean}\n")
    say("| processor seconds | here | limit | share | peer |\n|---|--:|--:|--:|---|")
    seconds = record["seconds"]
    beside = _beside_peer(record)
    for name, used in (seconds | {"step": record["step"]}).items():
        limit = record["limits"].get(name)
        shown_limit = f"{limit:.3g}" if limit else "-"
        share = f"{limit / used:.0%}" if limit else "-"
        say(f"| {name} | {used:.3g} | {shown_limit} | {share} | {beside.get(name, '')} |")


def _beside_peer(record: dict[str, Any]) -> dict[str, str]:
    """Part of a step -> what others take for it."""
    peer = record["peer"]
    seconds = record["seconds"]
    beside = {"sample": _beside("generate", record["generate"], seconds["sample"])}
    if peer:
        beside["sample"] += f"; {_beside('TRL', peer['sample'], seconds['sample'])}"
        beside["update"] = _beside("TRL", peer["step"] - peer["sample"], seconds["update"])
        beside["step"] = _beside("TRL", peer["step"], record["step"])
    return beside


def _beside(name: str, theirs: float, ours: float) -> str:
    return f"{name} {theirs:.3g} ({theirs / ours:.1f} times)"


_NUMBERS = ("step", "GiB")


def _list(records: list[dict[str, Any]]) -> None:
    table = columns(
        "time", "version", "processor", "model", "shape", *_NUMBERS, "TRL / ours", right=_NUMBERS
    )
    for record in records:
        revision = record["revision"] or record["versions"].get("rpg-lab", "")
        peer = record["peer"]
        ratio = ""
        if peer:
            time = peer["step"] / record["step"]
            memory = peer["peak"] / record["peak"]
            ratio = f"{time:.2f}, {memory:.2f} memory"
        table.add_row(
            datetime.fromtimestamp(record["time"]).strftime("%Y-%m-%d %H:%M"),
            revision[:8],
            record["processor"],
            record["model_name"],
            record["shape"],
            f"{record['step']:.3g}",
            f"{record['peak']:.2f}",
            ratio,
        )
    console.print(table, markup=False)
