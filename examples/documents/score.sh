#!/usr/bin/env bash
# Scores a system of train.sh on the test: averages its last checkpoints, translates, prints d-BLEU by source.
#     DATA=data/documents/pieces_1024/bin examples/documents/score.sh SYSTEM [further flags of fairseq-generate]
#
# DATA        the binarised data that it was trained on (required)
# SAVE_DIR    where it was trained (checkpoints/documents/LENGTH/SYSTEM); the average and the translations go there too
# LAST        number of the last checkpoints to average, 200 updates apart (3)
# CHECKPOINT  this file instead of an average; the translations go beside it
# BEAM        (5)   LENPEN (1)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/systems.sh"
source "$root/examples/shared/translate.sh"

[ $# -ge 1 ] || fail "give a system of train.sh, such as luna_untied"
system=$1
shift
check_data scripts/prepare_documents.py
folder=$(cd "$DATA/.." && pwd)
save_dir=${SAVE_DIR:-checkpoints/documents/$(basename "$folder")/$system}
[ -f "$folder/reference/test.documents" ] || fail "there is no $folder/reference/test.documents beside DATA=$DATA"
choose_target

choose_checkpoint "$save_dir" "${LAST:-3}" --by-updates
choose_lengths 4096
translate --remove-bpe sentencepiece "${lengths[@]}" --max-len-a 1.3 --max-len-b 20 "$@"
"${PYTHON:-python}" -m fairseq_luna score "$generated" --reference "$folder/reference/test.$target" \
    --documents "$folder/reference/test.documents"
