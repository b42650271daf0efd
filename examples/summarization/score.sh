#!/usr/bin/env bash
# Scores a system of train.sh on the test: averages its last checkpoints, summarises, prints ROUGE.
#     DATA=data/cnn_dm/bin examples/summarization/score.sh SYSTEM [further flags of fairseq-generate]
#
# DATA        the binarised data that it was trained on (required)
# SAVE_DIR    where it was trained (checkpoints/summarization/NAME/SYSTEM); the average and the summaries go there too
# LAST        number of the last checkpoints to average, 1,000 updates apart (5)
# CHECKPOINT  this file instead of an average; the summaries go beside it
# BEAM        (4)   LENPEN (2)
# Summaries have 55 to 140 pieces, as is usual for CNN/DailyMail; for PubMed add --min-len 100 --max-len-b 400.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/systems.sh"
source "$root/examples/shared/translate.sh"

[ $# -ge 1 ] || fail "give a system of train.sh, such as luna_untied"
system=$1
shift
check_data "fairseq-luna prepare"
folder=$(cd "$DATA/.." && pwd)
save_dir=${SAVE_DIR:-checkpoints/summarization/$(basename "$folder")/$system}
choose_target
reference=$folder/reference/test.$target
[ -f "$reference" ] || fail "there is no $reference beside DATA=$DATA"
export BEAM="${BEAM:-4}" LENPEN="${LENPEN:-2}"

choose_checkpoint "$save_dir" "${LAST:-5}" --by-updates
choose_lengths 16384
# A summary of the test may be longer than those of the training.
translate --remove-bpe sentencepiece --truncate-source "${lengths[@]}" --max-target-positions 16384 \
    --model-overrides "{'max_target_positions': 16384}" --max-len-b 140 --min-len 55 --no-repeat-ngram-size 3 "$@"
"${PYTHON:-python}" "$root/scripts/score_summaries.py" "$generated" --reference "$reference"
