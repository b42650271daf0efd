#!/usr/bin/env bash
# Prints the accuracy of a system of train.sh on the test examples, in percent:
#     DATA=data/lra/listops/bin examples/lra/score.sh CHECKPOINT [further flags of fairseq-validate]
# SUBSET is the split (test).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/readers.sh"

[ $# -ge 1 ] || fail "give a checkpoint, such as checkpoints/lra/listops_luna_16_short_1/checkpoint_best.pt"
check_data scripts/prepare_lra.py
print_accuracy "$@"
