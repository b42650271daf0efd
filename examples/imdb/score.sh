#!/usr/bin/env bash
# Prints the accuracy of a system of train.sh on the test reviews, in percent:
#     DATA=data/imdb/bin examples/imdb/score.sh CHECKPOINT [further flags of fairseq-validate]
# SUBSET is the split (test).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/readers.sh"

[ $# -ge 1 ] || fail "give a checkpoint, such as checkpoints/imdb/luna_1024_1/checkpoint_best.pt"
check_data scripts/prepare_imdb.py
print_accuracy "$@"
