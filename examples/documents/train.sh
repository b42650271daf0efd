#!/usr/bin/env bash
# Trains one system on whole documents:
#     DATA=data/documents/pieces_1024/bin examples/documents/train.sh SYSTEM [further flags of fairseq-train]
# SYSTEM is one of examples/shared/systems.sh. With --finetune-from-model CHECKPOINT it begins with the parameters of a
# training on shorter examples (README.md).
#
# DATA        a bin folder of scripts/prepare_documents.py (required)
# SAVE_DIR    checkpoints and log; a stopped run resumes there (checkpoints/documents/LENGTH/SYSTEM, such as
#             checkpoints/documents/pieces_1024/block)
# UPDATES     (2000)
# MAX_TOKENS  of an update, with padding (4096)
# POSITIONS   of every system, at least the longest example; equal at all lengths, so that sizes are too (2048)
# DRY_RUN=1   print the command, run nothing
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/systems.sh"

updates=${UPDATES:-2000} tokens=${MAX_TOKENS:-4096} positions=${POSITIONS:-2048}
for value in "UPDATES=$updates" "MAX_TOKENS=$tokens" "POSITIONS=$positions"; do
    [[ $value =~ =[1-9][0-9]{0,8}$ ]] || fail "$value: it must be a whole number above 0"
done
system=${1:-}
choose_system "$system" "$updates" $(((updates + 4) / 5))
shift
check_data scripts/prepare_documents.py
length=$(basename "$(cd "$DATA/.." && pwd)")
# fairseq would leave longer examples out of the training, and stop at the first in a validation, after hours.
longest=$("${PYTHON:-python}" -c '
import sys
from array import array
from pathlib import Path
sizes = array("i", [0])
for path in Path(sys.argv[1]).glob("*.idx"):
    with path.open("rb") as index:
        index.seek(18) # the number of examples, then the tokens of each
        sizes.fromfile(index, int.from_bytes(index.read(8), "little"))
print(max(sizes))' "$DATA")
if ((longest > positions || longest > tokens)); then
    fail "DATA=$DATA has an example of $longest tokens: set POSITIONS and MAX_TOKENS to at least that"
fi

# Post-norm layers with the rate of Multi30k, 0.005, learn this text several times more slowly.
rate=(--lr 0.003)
[[ $system != *_apollo ]] || rate=()
train "${SAVE_DIR:-checkpoints/documents/$length/$system}" "${rate[@]}" \
    --encoder-normalize-before --decoder-normalize-before --clip-norm 1.0 \
    --max-source-positions "$positions" --max-target-positions "$positions" \
    --max-tokens "$tokens" --required-batch-size-multiple 1 --max-update "$updates" --dropout 0.1 \
    --no-epoch-checkpoints --validate-interval 1000 --save-interval-updates 200 --keep-interval-updates 3 "$@"
