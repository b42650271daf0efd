#!/usr/bin/env bash
# Trains one system to tell positive reviews from negative ones:
#     DATA=data/imdb/bin examples/imdb/train.sh SYSTEM [further flags of fairseq-train]
# SYSTEM is transformer, luna (or luna_N, of N slots), luna_untied, block_pyramid, or another encoder attention of
# docs/flags.md, such as fastformer or block.
# Checkpoints and the log go to SAVE_DIR, where a stopped run resumes; a classifier stops PATIENCE epochs after its best
# accuracy on valid. DRY_RUN=1 prints the command and runs nothing.
#
# DATA      a bin folder of scripts/prepare_imdb.py, or for masked_lm also of scripts/prepare_masked_lm.py (required)
# LENGTH    pieces of a review; the rest is left out (1024)
# POOLING   what is classified: cls, mean or attention (mean); block_pyramid has its own
# SEED      (1)   PATIENCE (3)   SAVE_DIR (checkpoints/imdb/[masked_lm_]SYSTEM_LENGTH_SEED)
# TASK      classify; or masked_lm, which trains on DATA, or on DATA/input0, without labels (classify)
# START     a checkpoint of TASK=masked_lm, of the same SYSTEM and LENGTH, to begin with (none)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/readers.sh"

system=${1:-}
length=${LENGTH:-1024} task=${TASK:-classify} pooling=(--pooling "${POOLING:-mean}")
if [ "$system" = block_pyramid ]; then
    [ "$task${POOLING:-}${START:-}" = classify ] || fail "block_pyramid is a classifier: leave out TASK, POOLING and START"
    model=(--arch block_pyramid_classifier --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4)
    pooling=()
else
    choose_reader "$system"
fi
shift
# Text without labels has its dictionary in DATA itself.
data=${DATA:-}
if [ "$task" != masked_lm ] || [ ! -f "$data/dict.txt" ]; then
    check_data scripts/prepare_imdb.py
    data=$DATA/input0
fi
[ -z "${START:-}" ] || [ -f "$START" ] || fail "there is no checkpoint START=$START"

case "$task" in
    classify)
        data=$DATA name=$system
        setting=(--task sentence_prediction --criterion sentence_prediction --num-classes "$(count_labels)" --init-token 0
            --no-shuffle --max-positions "$length" --shorten-method truncate "${pooling[@]}" --dropout 0.2 --lr 0.0005
            --max-tokens 16384 --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
            --patience "${PATIENCE:-3}") ;;
    masked_lm)
        [ -z "${START:-}" ] || fail "START is for TASK=classify"
        name=masked_lm_$system
        # One review a sample would be --sample-break-mode eos, but fairseq then refuses those that it has shortened.
        setting=(--task masked_lm --criterion masked_lm --sample-break-mode none
            --tokens-per-sample "$length" --max-positions "$length" --dropout 0.1 --lr 0.001
            --max-tokens 4096 --save-interval-updates 500 --keep-interval-updates 1) ;;
    *) fail "TASK is classify or masked_lm, not '$task'" ;;
esac
[ -z "${START:-}" ] || setting+=(--finetune-from-model "$START")

save_dir=${SAVE_DIR:-checkpoints/imdb/${name}_${length}_${SEED:-1}}
# On a CPU, torch's softmax attention takes three times as long if it drops weights.
run "$save_dir" "${PYTHON:-python}" -m fairseq_cli.train "$data" --user-dir "$root/fairseq_luna" --save-dir "$save_dir" \
    "${model[@]}" "${setting[@]}" --attention-dropout 0 \
    --optimizer adam --adam-betas '(0.9,0.98)' --lr-scheduler inverse_sqrt --warmup-updates 500 \
    --weight-decay 0.01 --clip-norm 1.0 --required-batch-size-multiple 1 --seed "${SEED:-1}" \
    --max-epoch 30 --no-epoch-checkpoints \
    --log-format json --log-interval 50 --log-file "$save_dir/log.json" "$@"
