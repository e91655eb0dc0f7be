"""Logs of trl_run.py and verl_run.sh as the small files of tests/interop/importing: fewer columns
and lines, the same values.

python -m benchmarks.elsewhere.trim ELSEWHERE tests/interop/importing
"""

import json
import sys
from pathlib import Path

LEFT_OUT = (
    "val-aux/",
    "timing_per_token_ms/",
    "training/rollout",
    "rollout_corr/",
    "perf/",
    "actor/perf/",
    "global_seqlen/",
    "num_turns/",
    "timing_s/gen",
    "timing_s/old",
    "timing_s/ref",
    "timing_s/adv",
    "timing_s/update",
    "response_length_non_aborted/",
    "prompt_length/",
    "critic/score/",
    "critic/returns/",
)
STEPS = 3
"""Steps of the console's output that are kept, after the validation before the first."""


def main(folder: Path, out: Path) -> None:
    state = json.loads((folder / "trl-s0" / "checkpoint-80" / "trainer_state.json").read_text())
    (out / "trainer_state.json").write_text(json.dumps(state, separators=(",", ":")) + "\n")

    rows = [json.loads(line) for line in (folder / "verl-s0.jsonl").read_text().splitlines()]
    for row in rows:
        row["data"] = {name: v for name, v in row["data"].items() if not name.startswith(LEFT_OUT)}
    (out / "verl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    lines = (folder / "verl-s0.log").read_text().splitlines()
    places = [place for place, line in enumerate(lines) if " step:" in line][: STEPS + 1]
    kept = lines[places[0] - 4 : places[-1] + 2]
    (out / "verl.log").write_text(
        "\n".join(kept).replace(str(folder.resolve()), "elsewhere") + "\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
