"""Run folders as a sweep leaves them, with checkpoints that are there already."""

import time

from rpg.config.run_spec import RunSpec
from rpg.store.draws import _unpacked
from rpg.store.run_writer import write_manifest
from rpg.store.samples import read_eval
from tests.evaluation.small_model import SPEC


def register(layout, run, checkpoints, engine="local", seed=0, **evaluation):
    """A run of the sweep `sweep` whose checkpoints are to be evaluated; `evaluation` overrides its
    section."""
    data = SPEC.model_dump(mode="json") | {"seed": seed}
    settings = engine if isinstance(engine, dict) else {"type": engine}
    data["evaluation"] |= {"engine": settings, "samples_per_problem": 2, **evaluation}
    spec = RunSpec.model_validate(data)
    folder = layout.run("sweep", run)
    folder.checkpoints.mkdir(parents=True)
    for checkpoint in checkpoints:
        (folder.checkpoints / checkpoint.name).symlink_to(checkpoint)
    fields = {
        "run_id": run,
        "variant": "grpo",
        "algorithm": "grpo",
        "seed": seed,
        "created": time.time(),
    }
    steps = {"steps": 1, "eval_steps": [0, 1], "benchmarks": ["chain-easy"]}
    write_manifest(folder, fields | steps | {"spec": spec.model_dump(mode="json")})
    runs = {path.name for path in layout.sweep_folder("sweep").iterdir() if path.is_dir()}
    about = {"name": "sweep", "source": "", "baseline": None, "created": 0, "benchmarks": []}
    layout.write_sweep(about | {"runs": sorted(runs)})
    return folder


def rows(folder, step):
    """The graded samples of one checkpoint."""
    return read_eval(folder, "chain-easy", step).to_pylist()


def sample_lines(path):
    """The lines of the whole batches in a file of stored samples."""
    lines = []
    left = path.read_bytes()
    while left and (batch := _unpacked(left)):
        lines += batch[0].decode().splitlines()
        left = batch[1]
    return lines
