"""What stands in for Slurm where it is not installed: sbatch, squeue, scontrol, scancel over a
folder, faults on demand.

`python slurm_stand_in.py PROGRAM ARGUMENTS...`; the folder is $STAND_IN_FOR_SLURM. In it,
`plan.json` has [run, nth start, step, fault]: when the run has reached that step in that start, it
is preempted (SIGTERM, requeued), its node fails (SIGKILL, requeued) or it reaches its time limit
(SIGTERM, ended). Two jobs of an array run at a time.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(os.environ.get("STAND_IN_FOR_SLURM", "/nowhere"))
SLOTS = 2


def install(folder):
    """The four programs in `folder`/bin."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("sbatch", "squeue", "scontrol", "scancel"):
        (programs / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n'
        )
        (programs / name).chmod(0o755)
    (folder / "plan.json").write_text("[]")
    return {"PATH": f"{programs}:{os.environ['PATH']}", "STAND_IN_FOR_SLURM": str(folder)}


def jobs():
    """Job -> its record."""
    return {p.stem: json.loads(p.read_text()) for p in sorted((ROOT / "jobs").glob("*.json"))}


def note(job, **changes):
    path = ROOT / "jobs" / f"{job}.json"
    record = (json.loads(path.read_text()) if path.exists() else {}) | changes
    aside = path.with_suffix(f".{threading.get_ident()}")
    aside.write_text(json.dumps(record))
    aside.replace(path)


def sbatch(*words):
    options = dict(
        word.removeprefix("--").partition("=")[::2] for word in words if word.startswith("--")
    )
    script, *arguments = [word for word in words if not word.startswith("--")]
    (ROOT / "jobs").mkdir(exist_ok=True)
    number = len(list(ROOT.glob("*.array"))) + 1
    tasks = range(int(options["array"].partition("%")[0].partition("-")[2]) + 1)
    for task in tasks:
        note(
            f"{number}_{task}",
            state="PENDING",
            reason="Priority",
            name=options["job-name"],
            code="0:0",
        )
    (ROOT / f"{number}.array").write_text(
        json.dumps({"options": options, "script": [script, *arguments]})
    )
    subprocess.Popen(
        [sys.executable, __file__, "control", str(number)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(number)


def control(number):
    slots = threading.Semaphore(SLOTS)
    array = json.loads((ROOT / f"{number}.array").read_text())
    runs = Path(array["script"][1]).read_text().splitlines()
    for task, run in enumerate(runs):
        threading.Thread(
            target=job, args=(f"{number}_{task}", task, Path(run), array, slots)
        ).start()


def job(name, task, run, array, slots):
    again = True
    while again:
        with slots:
            again = start(name, task, run, array)


def start(name, task, run, array):
    """One start of a job; True if it is to be requeued."""
    if (ROOT / f"{name}.cancel").exists():
        return note(name, state="CANCELLED")
    count = ROOT / f"{run.name}.starts"
    nth = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(nth))
    plan = [
        fault
        for fault in json.loads((ROOT / "plan.json").read_text())
        if fault[:2] == [run.name, nth]
    ]
    with Path(array["options"]["output"].replace("%A_%a", name)).open("a") as output:
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
        process = subprocess.Popen(
            ["bash", *array["script"]],
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=array["options"]["chdir"],
            env=environment,
        )
        note(name, state="RUNNING", reason="None")
        while process.poll() is None:
            time.sleep(0.05)
            if (ROOT / f"{name}.cancel").exists():
                end(process, signal.SIGTERM)
                return note(name, state="CANCELLED")
            for _, _, step, fault in plan:
                if reached(run) >= step:
                    end(process, signal.SIGKILL if fault == "node" else signal.SIGTERM)
                    with (ROOT / "faults.txt").open("a") as faults:
                        faults.write(f"{fault} {name}\n")
                    note(
                        name,
                        state="TIMEOUT" if fault == "timeout" else "PENDING",
                        reason="BeginTime",
                    )
                    return fault != "timeout"
    code = process.returncode
    note(
        name,
        state="FAILED" if code else "COMPLETED",
        code=f"0:{-code}" if code < 0 else f"{code}:0",
    )
    return False


def end(process, how):
    os.killpg(process.pid, how)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def reached(run):
    lines = [line for path in run.glob("metrics-*.jsonl") for line in path.read_text().splitlines()]
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=-1)


def squeue(*_):
    for name, record in jobs().items():
        if record["state"] in ("PENDING", "RUNNING"):
            print(f"{name}|{record['state']}|{record['reason']}|fake|{record['name']}")


def scontrol(*words):
    record = jobs().get(words[-1])
    if record is None:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    print(f"JobId={words[-1]} JobState={record['state']} ExitCode={record['code']} NodeList=fake")


def scancel(*names):
    for name in names:
        (ROOT / f"{name}.cancel").touch()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
