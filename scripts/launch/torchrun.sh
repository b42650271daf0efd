#!/usr/bin/env bash
# Starts a training script on one node of several, or on all GPUs of one, with torchrun. On each node:
#     NODES=2 GPUS_PER_NODE=4 NODE_RANK=0 MASTER_ADDR=node0 DATA=... scripts/launch/torchrun.sh SCRIPT [arguments]
#
# NODES          their number (1)
# GPUS_PER_NODE  processes on each node, one for each GPU (8); with --cpu they communicate over gloo
# NODE_RANK      this node's number, 0 to NODES - 1 (required if there are several)
# MASTER_ADDR    node 0's name or address (required if there are several)
# MASTER_PORT    a free port there (29500)
# DRY_RUN=1      print the torchrun command of each node and the command of each process, run nothing
set -euo pipefail

fail() {
    echo "torchrun.sh: $1" >&2
    exit 2
}

# Refuses anything but a whole number above 0.
whole() {
    [[ $2 =~ ^[1-9][0-9]{0,4}$ ]] || fail "$1 is '$2': it must be a whole number above 0"
}

nodes=${NODES:-1}
gpus=${GPUS_PER_NODE:-8}
port=${MASTER_PORT:-29500}
whole NODES "$nodes"
whole GPUS_PER_NODE "$gpus"
whole MASTER_PORT "$port"
[ "$port" -le 65535 ] || fail "MASTER_PORT is $port: ports go to 65535"
[ $# -ge 1 ] || fail "give a training script, such as examples/wmt14_en_de/train.sh"
[ -f "$1" ] || fail "there is no script $1"
if [ "$nodes" = 1 ]; then
    master=${MASTER_ADDR:-localhost}
else
    master=${MASTER_ADDR:-}
    [ -n "$master" ] || fail "set MASTER_ADDR to node 0's name or address: there are $nodes nodes"
fi
# torchrun sets these for each process; inherited ones would be wrong.
unset RANK LOCAL_RANK WORLD_SIZE GPUS

# Sets command to that of the node $1.
compose() {
    command=("${PYTHON:-python}" -m torch.distributed.run --nnodes "$nodes" --node_rank "$1" --nproc_per_node "$gpus"
        --master_addr "$master" --master_port "$port" --no-python bash "${script[@]}")
}
script=("$@")

if [ -n "${DRY_RUN:-}" ]; then
    processes=$((nodes * gpus))
    # As under torchrun, the script refuses a number of processes that does not fit its batch.
    training=$(DRY_RUN=1 RANK=0 WORLD_SIZE=$processes bash "${script[@]}")
    echo "# $nodes x $gpus = $processes processes"
    for ((node = 0; node < nodes; node++)); do
        compose "$node"
        echo "# node $node"
        printf '%q ' "${command[@]}"
        echo
    done
    echo "# each process"
    echo "$training"
    exit
fi

rank=${NODE_RANK:-}
if [ -z "$rank" ]; then
    [ "$nodes" = 1 ] || fail "set NODE_RANK to this node's number, 0 to $((nodes - 1))"
    rank=0
fi
[[ $rank =~ ^[0-9]{1,5}$ ]] && [ "$rank" -lt "$nodes" ] ||
    fail "NODE_RANK is '$rank': it must be this node's number, 0 to $((nodes - 1))"
compose "$rank"
exec "${command[@]}"
