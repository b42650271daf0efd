#!/usr/bin/env bash
# Trains one system on whole documents:
#     DATA=data/documents/pieces_1024/bin examples/documents/train.sh SYSTEM [further flags of fairseq-train]
# SYSTEM is one of examples/shared/systems.sh. DATA is a bin folder of scripts/prepare_documents.py. UPDATES (2000)
# updates have about 3,900 target tokens each, at every length of the examples. Checkpoints and the log go to SAVE_DIR
# (checkpoints/documents/LENGTH/SYSTEM, such as checkpoints/documents/pieces_1024/block), where a stopped run resumes.
# DRY_RUN=1 prints the command and runs nothing.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/systems.sh"

updates=${UPDATES:-2000}
[[ $updates =~ ^[1-9][0-9]{0,8}$ ]] || fail "UPDATES is '$updates': it must be a whole number above 0"
system=${1:-}
choose_system "$system" "$updates" $(((updates + 2) / 3))
shift
check_data scripts/prepare_documents.py

# Positions for the longest examples in every system, so that its size does not depend on the examples' length.
train "${SAVE_DIR:-checkpoints/documents/$(basename "$(cd "$DATA/.." && pwd)")/$system}" \
    --max-source-positions 2048 --max-target-positions 2048 --max-tokens 4096 --required-batch-size-multiple 1 \
    --max-update "$updates" --dropout 0.1 --no-epoch-checkpoints --validate-interval 1000 \
    --save-interval-updates 200 --keep-interval-updates 3 "$@"
