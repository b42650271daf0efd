#!/usr/bin/env bash
# Prints the accuracy of a checkpoint of train.sh on valid, in percent:
#     DATA=data/glue/SST-2/bin examples/glue/score.sh CHECKPOINT [further flags of fairseq-validate]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/readers.sh"

[ $# -ge 1 ] || fail "give a checkpoint, such as checkpoints/glue/SST-2_luna_base_1/checkpoint_best.pt"
check_data scripts/prepare_glue.py
SUBSET=valid print_accuracy "$@"
