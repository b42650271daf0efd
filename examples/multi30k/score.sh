#!/usr/bin/env bash
# Scores a system of train.sh on test_2016_flickr: averages its last checkpoints, translates, prints BLEU.
#     DATA=data/multi30k/bin examples/multi30k/score.sh SYSTEM [further flags of fairseq-generate]
#
# DATA        the binarised data that it was trained on (required)
# SAVE_DIR    where it was trained (checkpoints/multi30k/SYSTEM); the average and the translations go there too
# LAST        number of the last epochs' checkpoints to average (10)
# CHECKPOINT  this file instead of an average
# BEAM        (5)   LENPEN (1)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}

fail() {
    echo "score.sh: $1" >&2
    exit 2
}

[ $# -ge 1 ] || fail "give a system of train.sh, such as luna_tied"
system=$1
shift
[ -n "${DATA:-}" ] || fail "set DATA to the bin folder that scripts/prepare_multi30k.py made"
[ -f "$DATA/dict.en.txt" ] || fail "there is no dict.en.txt in DATA=$DATA; scripts/prepare_multi30k.py makes that folder"
save_dir=${SAVE_DIR:-checkpoints/multi30k/$system}
[ -d "$save_dir" ] || fail "there is no folder $save_dir: train $system first, or set SAVE_DIR to where it was trained"
reference=$(dirname "$DATA")/reference
[ -f "$reference/test.de" ] || fail "there is no reference $reference/test.de beside DATA=$DATA"
# Tokenised, lower-cased data: published scores are computed on these tokens.
if [ -f "$reference/test.tok.de" ]; then
    pieces=subword_nmt measured=(--tokenised-by moses --lowercase --tokenised-reference "$reference/test.tok.de")
else
    pieces=sentencepiece measured=()
fi

# The scripts need the plugin, which may not be installed.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
if [ -n "${CHECKPOINT:-}" ]; then
    checkpoint=$CHECKPOINT
else
    checkpoint=$save_dir/average_of_${LAST:-10}.pt
    "$python" "$root/scripts/average_checkpoints.py" --last "${LAST:-10}" "$save_dir" --output "$checkpoint" --force
fi
generated=${checkpoint%.pt}.generated
"$python" -m fairseq_cli.generate "$DATA" --user-dir "$root/fairseq_luna" --path "$checkpoint" --task translation \
    --gen-subset test --beam "${BEAM:-5}" --lenpen "${LENPEN:-1}" --max-tokens 4096 --remove-bpe "$pieces" \
    "$@" > "$generated.unfinished"
mv "$generated.unfinished" "$generated"
"$python" "$root/scripts/score.py" "$generated" --reference "$reference/test.de" "${measured[@]}"
