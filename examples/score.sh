#!/usr/bin/env bash
# Averages the last checkpoints of a translation system, translates the test and scores it:
#     examples/score.sh DATA SAVE_DIR [flags of fairseq-generate]
# DATA is an output of scripts/prepare_corpus.py or scripts/prepare_documents.py, with bin/ and reference/; SAVE_DIR the
# training's checkpoint.save_dir, where the average and the translations go too.
#
# LAST        number of the last epochs' checkpoints to average (10)
# BY_UPDATES  1: the checkpoints of save_interval_updates instead
# CHECKPOINT  this file instead of an average; the translations go beside it
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python}
# The plugin may not be installed. For models this small a second thread gains little, and costs much on a busy machine.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

fail() {
    echo "score.sh: $1" >&2
    exit 2
}

[ $# -ge 2 ] || fail "give DATA and SAVE_DIR, such as data/multi30k checkpoints/multi30k/luna"
data=$1 save_dir=$2
shift 2
repeated=$(printf '%s\n' "$@" | { grep -oE '^--[a-z0-9-]+' || true; } | sort | uniq -d | head -n 1)
[ -z "$repeated" ] || fail "$repeated is given twice, and fairseq-generate would read the last; give it once"
index=$(compgen -G "$data/bin/test.*-*.*.idx" | head -n 1) || fail "there is no test in $data/bin"
pair=${index##*/test.} target=${pair%%.*}
target=${target#*-}
reference=$data/reference/test.$target tokens=$data/reference/test.tok.$target documents=$data/reference/test.documents
[ -f "$reference" ] || fail "there is no $reference"
last=${LAST:-10}
checkpoint=${CHECKPOINT:-$save_dir/average_of_$last.pt}
[ -n "${CHECKPOINT:-}" ] ||
    "$python" -m fairseq_luna average "$save_dir" --last "$last" ${BY_UPDATES:+--by-updates} --output "$checkpoint" --force

generated=${checkpoint%.pt}.generated
pieces=(--remove-bpe sentencepiece) measured=()
if [ -f "$tokens" ]; then # of Moses; D- lines are then detokenised
    pieces=(--remove-bpe subword_nmt --tokenizer moses --source-lang "${pair%%-*}" --target-lang "$target")
    grep -q '[[:upper:]]' "$tokens" || measured+=(--lowercase)
fi
[ ! -f "$documents" ] || measured+=(--documents "$documents")
"$python" -m fairseq_cli.generate "$data/bin" --user-dir "$root/fairseq_luna" --path "$checkpoint" --gen-subset test \
    --beam 5 --max-tokens 4096 "${pieces[@]}" "$@" > "$generated.unfinished"
mv "$generated.unfinished" "$generated"
"$python" -m fairseq_luna score "$generated" --reference "$reference" "${measured[@]}"

if [ -f "$tokens" ]; then
    grep '^H-' "$generated" | sed 's/^H-//' | sort -n | cut -f 3- > "$generated.tokens"
    split='s/([^ ])-([^ ])/\1 ##AT##-##AT## \2/g'
    bleu=("$python" -m sacrebleu --tokenize none --smooth-method none --force --width 2)
    echo "BLEU of tokens, as in older papers:"
    "${bleu[@]}" "$tokens" --input "$generated.tokens"
    echo "BLEU of tokens with compounds split at hyphens:"
    "${bleu[@]}" <(sed -E "$split" "$tokens") --input <(sed -E "$split" "$generated.tokens")
fi
