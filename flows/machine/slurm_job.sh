#!/bin/bash
# One task of an array trains one run, from its newest checkpoint on. Arguments: a file with a run's folder per line, Python,
# the module that trains, and a script that starts Ray on several nodes. `rpg sweep` gives resources, partition and account as
# options of sbatch.
#
# To load modules or to use a container, edit a copy of this file and name it in backend.place.script.
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$1")
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
  PATH=$(dirname "$2"):$PATH . "$4" >> "$run/log.txt" 2>&1
fi
for _ in $(seq 30); do
  "$2" -P -m "$3" "$run" --on-node >> "$run/log.txt" 2>&1
  code=$?
  [ $code = 75 ] || break # a node that was lost still seems to work on this run, for two minutes
  sleep 5
done
exit $code
