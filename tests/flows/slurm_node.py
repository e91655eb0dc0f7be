"""Debian's Slurm as one node on loopback: munged, slurmctld and slurmd under a folder, ended with
the test."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

import psutil

from tests.waiting import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONF = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
CredType=cred/munge
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP \
PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


def missing():
    """Why there can be no Slurm here; "" if there can."""
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    if lacking:
        return f"Slurm is not installed ({', '.join(lacking)}): apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "slurmd needs root"


@contextlib.contextmanager
def slurm_node(at):
    """The environment in which Slurm's commands reach it."""
    for name in ("state", "spool"):
        (at / name).mkdir(parents=True)
    key = at / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    conf = CONF.format(host=socket.gethostname(), at=at, ctld=free_port(), slurmd=free_port())
    (at / "slurm.conf").write_text(conf)
    environment = {"SLURM_CONF": str(at / "slurm.conf")}
    munged = [
        "munged",
        "--foreground",
        "--force",
        f"--key-file={key}",
        f"--socket={at}/munge.socket",
        f"--pid-file={at}/munged.pid",
        f"--log-file={at}/munged.log",
        f"--seed-file={at}/munged.seed",
    ]
    with (at / "daemons.log").open("wb") as log, contextlib.ExitStack() as stack:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemon = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **environment}
            )
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)
            time.sleep(1)
        yield environment


def run(environment, *words):
    """What one of Slurm's commands prints."""
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True)
    return done.stdout.strip()


def ending_jobs():
    """Whether a job still has a process of Slurm on this node."""
    return any(process.info["name"] == "slurmstepd" for process in psutil.process_iter(["name"]))
