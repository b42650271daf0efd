#!/usr/bin/env bash
# Trains one system on one task of the Long Range Arena:
#     DATA=data/lra/listops/bin examples/lra/train.sh TASK SYSTEM [further flags of fairseq-train]
# TASK is a file of config/ without .yaml. SYSTEM is transformer, luna_16 (or another number of slots), or another
# encoder attention of docs/flags.md, such as fastformer, block, linear, performer or local. Checkpoints and the log go
# to SAVE_DIR, where a stopped run resumes. DRY_RUN=1 prints the command and runs nothing.
#
# DATA      a bin folder of scripts/prepare_lra.py (required)
# SETTING   published, of the Luna paper, for a GPU; or short, of one small size for all tasks, for a CPU core (short)
# SEED      (1)   SAVE_DIR (checkpoints/lra/TASK_SYSTEM_SETTING_SEED)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/readers.sh"

config=$root/examples/lra/config task=${1:-} system=${2:-}
if [ -z "$task" ] || [ ! -f "$config/$task.yaml" ]; then
    tasks=$(cd "$config" && echo *.yaml)
    fail "TASK is '$task': it must be one of ${tasks//.yaml/}"
fi
choose_reader "$system"
shift 2
check_data scripts/prepare_lra.py
made=$(sed -n 's/.*"task": "\([a-z]*\)".*/\1/p' "$DATA/../settings.json" 2> /dev/null || true)
[ "${made:-$task}" = "$task" ] || fail "TASK is $task, but DATA=$DATA was made for $made"
setting=${SETTING:-short}
case "$setting" in
    # What is only theirs: short trainings were measured without it.
    published) size=(--fp16 --pooler-activation-fn relu)
        [[ $system != luna* ]] || size+=(--untie-luna-kv) ;;
    # An update has as many tokens for every task, in any number of texts.
    # The data are sorted by length, so without fairseq's shuffling little of an update is padding.
    # On a CPU, torch's softmax attention takes more than twice as long if it drops weights.
    short) size=(--encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
            --dropout 0.1 --attention-dropout 0 --pooling mean --lr 0.0005 --warmup-updates 500 --max-update 4000 --clip-norm 1.0
            --max-tokens 16384 --batch-size 16384 --no-shuffle) ;;
    *) fail "SETTING is short or published, not '$setting'" ;;
esac

save_dir=${SAVE_DIR:-checkpoints/lra/${task}_${system}_${setting}_${SEED:-1}}
flags=$("${PYTHON:-python}" "$root/scripts/yaml_flags.py" "$config/$task.yaml" "task.data=$DATA" \
    "common.seed=${SEED:-1}") || exit
mapfile -t flags <<< "$flags"
run "$save_dir" "${PYTHON:-python}" -m fairseq_cli.train "${flags[@]}" --user-dir "$root/fairseq_luna" \
    --save-dir "$save_dir" --log-file "$save_dir/log.json" "${model[@]}" "${size[@]}" "$@"
