"""What the runs of trl_run.py and verl_run.sh start from: the tiny model, its training problems,
and two benchmarks.

    python -m benchmarks.elsewhere.write_problems OUT

OUT/model is a Hugging Face folder, warm-started as every run of `configs/runs/chain.yaml` is.
OUT/NAME.jsonl holds prompts and answers for TRL, OUT/NAME.parquet the same problems in verl's form;
`train`, `chain-easy` and `chain-medium`.
"""

import json
import shutil
import sys
from pathlib import Path

from rpg.config.load import resolve
from rpg.models.initial_policy import prepare_model
from rpg.tasks.preparation import prepare_data, read_problems


def main(out: Path) -> None:
    spec = resolve({"task": {"type": "chain"}, "model": {"type": "tiny"}}, "here")
    home = out / "home"
    model, data = prepare_model(spec, home), prepare_data(spec, home)
    assert model is not None
    shutil.copytree(model, out / "model", dirs_exist_ok=True)
    for name in ("train", "chain-easy", "chain-medium"):
        path = data.train if name == "train" else data.benchmarks[name]
        shutil.copy(path, out / f"{name}.parquet")
        rows = [
            {"prompt": [{"role": "user", "content": p.prompt}], "answer": p.answer}
            for p in read_problems(path)
        ]
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
