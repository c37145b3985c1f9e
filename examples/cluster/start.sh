#!/usr/bin/env bash
# One machine's part of a Troupe job: a node on every machine, and on the first one the head too.
#
#   start.sh JOB.toml [key=value ...]     once per machine; slurm.sbatch and kubernetes.yaml call it
#
# Which machine this is:   Slurm        SLURM_NODEID of SLURM_NTASKS, as srun sets them
#                          Kubernetes   JOB_COMPLETION_INDEX of TROUPE_NODES
#
# TROUPE_HEAD       a name of the first machine that the others resolve; nothing is guessed
# TROUPE_KEY        the key of the job, or TROUPE_KEY_FILE, the file that holds it (mode 600)
# TROUPE_PORT       where the head listens (29500)
# TROUPE_JOIN_S     seconds that machines wait for each other (600)
# TROUPE_EVICTED_S  seconds that a pod which is to end waits for the head to end it (30)
# TROUPE            the binary (troupe)
#
# SIGTERM saves the job and ends it with 75: the same command goes on from there. SIGUSR1 saves it and goes on.
#
# Exit code: on the first machine the head's. On the others it says only what the launcher needs, because the head
# knows why the job ended and they do not: see the last lines.
set -euo pipefail

fail() {
  printf 'start.sh: %s\n' "$1" >&2
  exit 2
}

[ $# -ge 1 ] || fail "which job? start.sh JOB.toml [key=value ...]"
job=$1
shift
troupe=${TROUPE:-troupe}
port=${TROUPE_PORT:-29500}
join_s=${TROUPE_JOIN_S:-600}

if [ -n "${SLURM_NODEID:-}" ]; then
  launcher=slurm
  index=$SLURM_NODEID
  nodes=${SLURM_NTASKS:-}
  [ "${SLURM_STEP_NUM_NODES:-$nodes}" = "$nodes" ] ||
    fail "$nodes tasks on $SLURM_STEP_NUM_NODES machines: a machine is one node, so use srun --ntasks-per-node=1"
elif [ -n "${JOB_COMPLETION_INDEX:-}" ]; then
  launcher=kubernetes
  index=$JOB_COMPLETION_INDEX
  nodes=${TROUPE_NODES:-}
else
  fail "neither SLURM_NODEID nor JOB_COMPLETION_INDEX is set: start it by srun, or as a pod of an Indexed Job"
fi
[ -n "$nodes" ] || fail "how many machines? srun sets SLURM_NTASKS; a pod needs TROUPE_NODES"
# A machine that fell back to itself would wait for a head that is elsewhere.
[ -n "${TROUPE_HEAD:-}" ] || fail "TROUPE_HEAD is not set: the name of the first machine"

# `train` and `node` take the key from TROUPE_KEY by themselves.
train_key=() node_key=()
# A lost task does not come back within the job, which is requeued; a pod does.
again=()
if [ "$launcher" = slurm ]; then again=(recovery.from_checkpoint=false); fi
if [ -z "${TROUPE_KEY:-}" ]; then
  [ -n "${TROUPE_KEY_FILE:-}" ] || fail "neither TROUPE_KEY nor TROUPE_KEY_FILE is set: troupe key new FILE"
  train_key=("cluster.key=$TROUPE_KEY_FILE")
  node_key=(--key "$TROUPE_KEY_FILE")
fi

# Before the arguments stands what they may change, behind them what the machines depend on. Both launchers leave 120 s
# between SIGTERM and the end by force: 90 are the head's, of which it saves in three quarters, or a node's that is evicted
# alone, which gives its state away.
start_head() {
  "$troupe" train "$job" cluster.stop_timeout_s=90 cluster.drain_timeout_s=90 "cluster.join_timeout_s=$join_s" "${again[@]}" "$@" \
    "cluster.nodes=$nodes" cluster.local_nodes=0 "cluster.listen=0.0.0.0:$port" "${train_key[@]}" &
  head=$!
}

# A node may come before its head: it looks for it until the time is over. Its id is the machine's place.
start_node() {
  "$troupe" node --join "$TROUPE_HEAD:$port" --node "$index" --timeout "$join_s" "${node_key[@]}" &
  node=$!
}

# pass_on SIGNAL PROCESS
told=''
pass_on() {
  told=yes
  kill -s "$1" "$2" 2>/dev/null || true  # It may have ended at this moment.
}

# The exit code of a child. A trapped signal ends `wait` early; then it waits again.
wait_for() {
  local code
  while :; do
    told='' code=0
    wait "$1" || code=$?
    [ -n "$told" ] || return "$code"
  done
}

# Gives the node so many seconds to end, which the head tells it to; then tells it here.
end_node() {
  local second
  for ((second = 0; second < $1; ++second)); do
    kill -0 "$node" 2>/dev/null || return 0
    sleep 1
  done
  pass_on TERM "$node"
}

trap 'exit 143' TERM INT  # Nothing runs yet; process 1 of a container has to say so itself.
code=0

if [ "$index" -eq 0 ]; then
  start_head "$@"
  # The head is told; it tells all nodes.
  trap 'pass_on TERM "$head"' TERM INT
  trap 'pass_on USR1 "$head"' USR1
  start_node
  wait_for "$head" || code=$?
  end_node 5  # A node that has not found its head would look for it on.
  wait_for "$node" || true
  exit "$code"
fi

start_node
trap 'told=yes' USR1  # The head saves; it has got the same signal.
case $launcher in
  # Slurm tells all tasks, so that the head ends this node when it has saved.
  slurm) trap 'told=yes' TERM INT ;;
  # Of pods any may be evicted alone, which the head does not know.
  kubernetes) trap 'told=yes; end_node "${TROUPE_EVICTED_S:-30}"' TERM INT ;;
esac
wait_for "$node" || code=$?
case $launcher:$code in
  # srun ends with the largest code of its tasks: it has to be the head's.
  slurm:*) exit 0 ;;
  # Nothing is left to do, or a mistake that stays one.
  kubernetes:[023]) exit "$code" ;;
  # A pod of this code is replaced, until that of the head says that the job is done or has failed.
  *) exit 75 ;;
esac
