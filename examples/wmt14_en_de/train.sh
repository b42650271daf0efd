#!/usr/bin/env bash
# Trains a row of the table in README.md, by fairseq-train:
#     DATA=data/wmt14_en_de/bin examples/wmt14_en_de/train.sh ROW [flags of fairseq-train]
# ROW is a file of config/ without .yaml. Flags at the end override the row's settings.
#
# DATA         the binarised data (required)
# SAVE_DIR     checkpoints and log; training resumes from checkpoint_last.pt there (checkpoints/wmt14_en_de/ROW)
# GPUS         number of GPUs of this machine (8); under torchrun the number of its processes
# MAX_TOKENS   --max-tokens of each GPU (8192)
# UPDATE_FREQ  --update-freq (chosen such that GPUS x MAX_TOKENS x UPDATE_FREQ = 65536, the paper's 8 x 8192)
# DRY_RUN=1    print the command, run nothing
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
config=$root/examples/wmt14_en_de/config
python=${PYTHON:-python}

fail() {
    echo "train.sh: $1" >&2
    exit 2
}

# Refuses anything but a whole number above 0.
whole() {
    [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || fail "$1 is '$2': it must be a whole number above 0"
}

row=${1:-}
if [ -z "$row" ] || [ ! -f "$config/$row.yaml" ]; then
    rows=$(cd "$config" && echo *.yaml)
    fail "ROW is '$row': it must be one of ${rows//.yaml/}"
fi
shift
[ -n "${DATA:-}" ] || fail "set DATA to the folder of binarised data that scripts/prepare_wmt14_ende.py made"
[ -f "$DATA/dict.en.txt" ] || fail "there is no dict.en.txt in DATA=$DATA; scripts/prepare_wmt14_ende.py makes that folder"

if [ -n "${WORLD_SIZE:-}" ] && [ -n "${RANK:-}" ]; then
    torchrun=1 gpus=$WORLD_SIZE
    [ "${GPUS:-$gpus}" = "$gpus" ] || fail "GPUS is $GPUS, but torchrun has started $gpus processes: unset GPUS"
else
    torchrun='' gpus=${GPUS:-8}
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

# 1,024 sentences in 8192 tokens, as in config/recipe/luna.yaml.
sentences=()
[[ $row = transformer_* ]] || sentences=("dataset.batch_size=$(((max_tokens + 7) / 8))")
save_dir=${SAVE_DIR:-checkpoints/wmt14_en_de/$row}
flags=$("$python" "$root/scripts/yaml_flags.py" "$config/$row.yaml" "task.data=$DATA" \
    "common.user_dir=$root/fairseq_luna" "common.log_file=$save_dir/log.json" "checkpoint.save_dir=$save_dir" \
    "distributed_training.distributed_world_size=$gpus" "dataset.max_tokens=$max_tokens" \
    "optimization.update_freq=$update_freq" "${sentences[@]}") || exit
mapfile -t flags <<< "$flags"
command=("$python" -m fairseq_cli.train "${flags[@]}" "$@")

if [ -n "${DRY_RUN:-}" ]; then
    printf '%q ' "${command[@]}"
    echo
    exit
fi
if [ -z "$torchrun" ]; then
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
