#!/usr/bin/env bash
# What all rows of this folder share. A row is a file beside this one, which says what is its own:
#     train.sh ROW OPTIMIZER FLAGS...          OPTIMIZER: apollo or adam, as the paper has set them
# So run a row:   DATA=data/wmt14_en_de/bin examples/wmt14_en_de/ROW.sh [further flags of fairseq-train]
#
# DATA         the binarised data (needed)
# SAVE_DIR     checkpoints and log; a run that was stopped goes on from there (checkpoints/wmt14_en_de/ROW)
# GPUS         how many of this machine (8); under torchrun it is the number of its processes
# MAX_TOKENS   target or source tokens of a GPU's batch, padding included, whichever are more (8192)
# UPDATE_FREQ  batches that make up an update (so many that GPUS x MAX_TOKENS x UPDATE_FREQ = 65536, the paper's 8 x 8192)
# DRY_RUN=1    print the command, run nothing
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
row=${1:-train}

fail() {
    echo "$row.sh: $1" >&2
    exit 2
}

# Refuses what is not a whole number above 0.
whole() {
    [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || fail "$1 is '$2': it must be a whole number above 0"
}

[ $# -ge 2 ] || fail "run one of the rows beside it, such as luna_32_softplus_tied.sh"
case $2 in
    apollo) trained_with=(--optimizer apollo --lr 0.1 --apollo-beta 0.9 --apollo-eps 1e-4 --apollo-rebound constant
        --weight-decay 1e-8 --weight-decay-type L2 --lr-scheduler milestone --warmup-updates 1000
        --warmup-init-lr 1e-5 --milestones '300000,450000' --lr-decay-rate 0.1) ;;
    # fairseq's Adam decouples the weight decay from the gradient, as the paper's does.
    adam) trained_with=(--optimizer adam --lr 5e-4 --adam-betas '(0.9,0.98)' --weight-decay 1e-4
        --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7) ;;
    *) fail "OPTIMIZER is apollo or adam, not '$2'" ;;
esac
shift 2

[ -n "${DATA:-}" ] || fail "set DATA to the folder of binarised data that scripts/prepare_wmt14_ende.py made"
[ -f "$DATA/dict.en.txt" ] || fail "there is no dict.en.txt in DATA=$DATA; scripts/prepare_wmt14_ende.py makes that folder"

if [ -n "${WORLD_SIZE:-}" ] && [ -n "${RANK:-}" ]; then
    gpus=$WORLD_SIZE
    [ "${GPUS:-$gpus}" = "$gpus" ] || fail "GPUS is $GPUS, but torchrun has started $gpus processes: unset GPUS"
    processes=()
else
    gpus=${GPUS:-8}
    processes=(--distributed-world-size "$gpus")
fi
max_tokens=${MAX_TOKENS:-8192}
whole GPUS "$gpus"
whole MAX_TOKENS "$max_tokens"
if [ -n "${UPDATE_FREQ:-}" ]; then
    whole UPDATE_FREQ "$UPDATE_FREQ"
    update_freq=$UPDATE_FREQ
else
    [ $((65536 % (gpus * max_tokens))) = 0 ] ||
        fail "$gpus GPUs x $max_tokens tokens do not divide 65536: take 1, 2, 4 or 8 GPUs, or set MAX_TOKENS or UPDATE_FREQ"
    update_freq=$((65536 / (gpus * max_tokens)))
fi

save_dir=${SAVE_DIR:-checkpoints/wmt14_en_de/$row}
# Flags that come later win: a row's over these, the command line's over the row's.
command=("$python" -m fairseq_cli.train "$DATA" --user-dir "$root/fairseq_luna" --save-dir "$save_dir"
    --source-lang en --target-lang de --share-all-embeddings
    --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --clip-norm 1.0 "${trained_with[@]}"
    "${processes[@]}" --max-tokens "$max_tokens" --update-freq "$update_freq" --max-update 500000 --seed 1
    --keep-last-epochs 10 --log-format json --log-interval 100 --log-file "$save_dir/log.json" "$@")

if [ -n "${DRY_RUN:-}" ]; then
    printf '%q ' "${command[@]}"
    echo
    exit
fi
if [ ${#processes[@]} != 0 ]; then
    if [[ " $* " == *" --cpu "* ]]; then
        [ "$gpus" = 1 ] || fail "--cpu trains in one process: set GPUS=1, or start more with scripts/launch/torchrun.sh"
    else
        visible=$("$python" -c 'import torch; print(torch.cuda.device_count())')
        [ "$visible" -ge "$gpus" ] ||
            fail "GPUS is $gpus, but $visible can be seen here: set GPUS to 1, 2, 4 or 8, or to 1 and add --cpu"
    fi
fi
mkdir -p "$save_dir"
exec "${command[@]}"
