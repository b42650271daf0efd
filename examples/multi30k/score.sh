#!/usr/bin/env bash
# Scores a system of train.sh on test_2016_flickr: averages its last checkpoints, translates, prints BLEU.
#     DATA=data/multi30k/bin examples/multi30k/score.sh SYSTEM [further flags of fairseq-generate]
#
# DATA        the binarised data that it was trained on (required)
# SAVE_DIR    where it was trained (checkpoints/multi30k/SYSTEM); the average and the translations go there too
# LAST        number of the last epochs' checkpoints to average (10)
# CHECKPOINT  this file instead of an average; the translations go beside it
# BEAM        (5)   LENPEN (1)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/systems.sh"
source "$root/examples/shared/translate.sh"

[ $# -ge 1 ] || fail "give a system of train.sh, such as luna_tied"
system=$1
shift
check_data scripts/prepare_multi30k.py
save_dir=${SAVE_DIR:-checkpoints/multi30k/$system}
reference=$(dirname "$DATA")/reference
[ -f "$reference/test.de" ] || fail "there is no reference $reference/test.de beside DATA=$DATA"
# Tokenised, lower-cased data: published scores are computed on these tokens.
if [ -f "$reference/test.tok.de" ]; then
    pieces=subword_nmt measure=("$root/scripts/score_tokens.py" --tokenised-by moses --lowercase)
    measure+=(--tokenised-reference "$reference/test.tok.de")
else
    pieces=sentencepiece measure=(-m fairseq_luna score)
fi

choose_checkpoint "$save_dir" "${LAST:-10}"
translate --remove-bpe "$pieces" "$@"
"${PYTHON:-python}" "${measure[@]}" "$generated" --reference "$reference/test.de"
