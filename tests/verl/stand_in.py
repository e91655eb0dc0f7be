"""A stand-in for verl's driver: takes the same overrides and leaves the same files, without
training anything.

STAND_IN, or the file `stand-in` in the run's folder, says what happens after a step: `hang:2`,
`die:2` (with a last line as the driver's), `kill:2` (no last line), `child:2` (hang, with a child
that must not survive), `wait:2:FILE`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def main():
    told = dict(word.lstrip("+").split("=", 1) for word in sys.argv[1:])
    state = Path(told["trainer.default_local_dir"])
    model = Path(told["actor_rollout_ref.model.path"])
    done = int(told.get("trainer.resume_from_path", "_0").rpartition("_")[2])
    total = int(told["trainer.total_training_steps"])
    told_here = state.parent / "stand-in"
    order = told_here.read_text() if told_here.exists() else os.environ.get("STAND_IN", "")
    what, when, gate = (*order.split(":"), "", "", "")[:3]
    with open(
        os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0
    ) as log:  # verl empties it, too
        for step in range(done + 1, total + 1):
            data = {"reward": step / 10, "optimizer_step": 2 * step, "seconds_step": 0.1}
            data = {"theirs": 1} | {f"rpg/{name}": value for name, value in data.items()}
            folder = state / f"global_step_{step}"
            whole = step % int(told["trainer.save_freq"]) == 0 or step == total
            if whole or step in json.loads(told["rpg.save_steps"]):
                ignore = shutil.ignore_patterns("checkpoint.json")
                shutil.copytree(model, folder / "actor" / "huggingface", ignore=ignore)
            if whole:
                (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"weights")
            log.write(json.dumps({"step": step, "data": data}).encode() + b"\n")
            record = {"format": 1, "step": step, "optimizer_step": 2 * step, "tokens": step}
            record |= {"reference": {}, "world_size": 1, "resumable": whole}
            if folder.exists():
                (folder / ".rpg").write_text(json.dumps(record))
                (folder / ".rpg").replace(folder / "rpg.json")
            if str(step) == when:
                happen(what, gate)


def happen(what, gate):
    if what == "wait":
        while not Path(gate).exists():
            time.sleep(0.05)
        return
    if what == "child":
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True
        )
    if what in ("hang", "child"):
        print("all is well", flush=True)
        time.sleep(1000)
    if what == "die":
        sys.exit(print("Traceback ...\nerror: ValueError: the sky has fallen", flush=True) or 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
