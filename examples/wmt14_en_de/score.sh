#!/usr/bin/env bash
# Scores a trained row: averages its last checkpoints, translates newstest2014, prints BLEU.
#     DATA=data/wmt14_en_de/bin examples/wmt14_en_de/score.sh ROW [further flags of fairseq-generate]
#
# DATA       the binarised data that it was trained on (required)
# SAVE_DIR   where it was trained (checkpoints/wmt14_en_de/ROW); the average and the translations go there too
# LAST       number of the last epochs' checkpoints to average (those that train.sh keeps: 10 of the transformer, else 5)
# BEAM       (5, as theirs)   LENPEN   (0.6, from "Attention is all you need"; theirs has none)
# REFERENCE  newstest2014 in German, untouched (DATA/../reference/test.de); with a test.tok.de beside it the data are
#            tokenised: translations are detokenised for sacreBLEU, and compared with test.tok.de unchanged
# DRY_RUN=1  print the commands, run nothing
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}

fail() {
    echo "score.sh: $1" >&2
    exit 2
}

[ $# -ge 1 ] || fail "give a row, such as luna_32_softplus_tied"
row=$1
shift
[ -f "$root/examples/wmt14_en_de/config/$row.yaml" ] || fail "there is no row $row in examples/wmt14_en_de"
[ -n "${DATA:-}" ] || fail "set DATA to the folder of binarised data that scripts/prepare_wmt14_ende.py made"
[ -f "$DATA/dict.en.txt" ] || fail "there is no dict.en.txt in DATA=$DATA; scripts/prepare_wmt14_ende.py makes that folder"
save_dir=${SAVE_DIR:-checkpoints/wmt14_en_de/$row}
[ -d "$save_dir" ] || fail "there is no folder $save_dir: train the row first, or set SAVE_DIR to where it was trained"
case "$row" in transformer_*) kept=10 ;; *) kept=5 ;; esac
last=${LAST:-$kept}
[[ $last =~ ^[1-9][0-9]{0,3}$ ]] || fail "LAST is '$last': it must be a whole number above 0"
reference=${REFERENCE:-$(dirname "$DATA")/reference/test.de}
[ -f "$reference" ] || fail "there is no reference $reference: set REFERENCE to newstest2014 in German"
tokenised=$(dirname "$reference")/test.tok.de
measured=()
if [ -f "$tokenised" ]; then measured=(--tokenised-by moses --tokenised-reference "$tokenised"); fi

# The scripts need the plugin, which may not be installed.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
average=$save_dir/average_of_$last.pt
generated=$save_dir/newstest2014.generated
run() {
    if [ -n "${DRY_RUN:-}" ]; then
        printf '%q ' "$@"
        echo
    else
        "$@"
    fi
}
translate() {
    run "$python" -m fairseq_cli.generate "$DATA" --user-dir "$root/fairseq_luna" --path "$average" \
        --source-lang en --target-lang de --gen-subset test --beam "${BEAM:-5}" --lenpen "${LENPEN:-0.6}" \
        --batch-size 128 "$@"
}

run "$python" -m fairseq_luna average "$save_dir" --last "$last" --output "$average" --force
if [ -n "${DRY_RUN:-}" ]; then
    translate "$@"
else
    translate "$@" > "$generated.unfinished"
    mv "$generated.unfinished" "$generated"
fi
run "$python" "$root/scripts/score_tokens.py" "$generated" --reference "$reference" "${measured[@]}"
