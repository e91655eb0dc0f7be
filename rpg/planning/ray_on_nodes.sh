# Ray on all nodes of a Slurm job: its head here, on a port that another job of ours on this node does not use.
head=$(hostname --all-ip-addresses | cut --delimiter=" " --fields=1)
port=$((20000 + SLURM_JOB_ID % 12000))
export RAY_worker_niceness=0 # else trainings yield to evaluations
srun --overlap --nodes=1 --ntasks=1 --nodelist="$(hostname --short)" \
  ray start --head --block --node-ip-address="$head" --port="$port" &
for second in $(seq 300); do
  ray status --address="$head:$port" > /dev/null 2>&1 && break
  [ "$second" -lt 300 ] || { echo "Ray did not start" >&2; exit 71; } # what is lost is started again
  sleep 1
done
srun --overlap --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) \
  --exclude="$(hostname --short)" ray start --block --address="$head:$port" &
export RAY_ADDRESS="$head:$port"
