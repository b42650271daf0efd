#!/usr/bin/env bash
# Prints the accuracy of a system of train.sh on the test reviews, in percent:
#     DATA=data/imdb/bin examples/imdb/score.sh CHECKPOINT [further flags of fairseq-validate]
# SUBSET is the split (test).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

fail() {
    echo "score.sh: $1" >&2
    exit 2
}

[ $# -ge 1 ] || fail "give a checkpoint, such as checkpoints/imdb/luna_1024_1/checkpoint_best.pt"
checkpoint=$1
shift
[ -f "$checkpoint" ] || fail "there is no checkpoint $checkpoint"
[ -n "${DATA:-}" ] || fail "set DATA to a bin folder that scripts/prepare_imdb.py made"
[ -f "$DATA/input0/dict.txt" ] || fail "there is no input0/dict.txt in DATA=$DATA; scripts/prepare_imdb.py makes it"
labels=$(grep -vc '^madeupword' "$DATA/label/dict.txt")

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# What is not given here, such as the length, is the training's.
output=$("${PYTHON:-python}" -m fairseq_cli.validate "$DATA" --user-dir "$root/fairseq_luna" --path "$checkpoint" \
    --task sentence_prediction --criterion sentence_prediction --num-classes "$labels" \
    --valid-subset "${SUBSET:-test}" --max-tokens 16384 --log-format json "$@" 2>&1) || {
    echo "$output" | tail -n 5 >&2
    exit 1
}
echo "$output" | grep -oE '"[a-z0-9_]*accuracy": "[0-9.]+"' | tail -n 1 | tr -cd '0-9.\n'
