#!/usr/bin/env bash
# Trains one system on one task of GLUE, or a language model to start from, in the Luna paper's settings:
#     START=language_model.pt examples/glue/train.sh TASK SYSTEM [further flags of fairseq-train]
# TASK is SST-2, QNLI, QQP or masked_lm. SYSTEM is transformer, luna (or luna_N, of N slots), luna_untied, or another
# encoder attention of docs/flags.md, such as fastformer or block. Checkpoints and the log go to SAVE_DIR, where a
# stopped run resumes. DRY_RUN=1 prints the command and runs nothing.
#
# DATA      a bin folder of scripts/prepare_glue.py or, for masked_lm, of scripts/prepare_masked_lm.py
#           (data/glue/TASK/bin, data/masked_lm/bin)
# START     a checkpoint of TASK masked_lm, of the same SYSTEM, SIZE and LENGTH (none)
# SIZE      base or tiny (base)
# LENGTH    positions, and tokens of a sample of masked_lm (512)
# SEED      (1)   SAVE_DIR (checkpoints/glue/TASK_SYSTEM_SIZE_SEED)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/readers.sh"

task=${1:-} system=${2:-} size=${SIZE:-base} length=${LENGTH:-512}
# Of fine-tuning: updates, warm-up, activation dropout.
case "$task" in
    SST-2) updates=21050 warmup=1263 dropout=0.0 ;;
    QNLI) updates=65520 warmup=2000 dropout=0.1 ;;
    QQP) updates=228000 warmup=6850 dropout=0.1 ;;
    masked_lm) updates=250000 warmup=15000 ;;
    *) fail "TASK is SST-2, QNLI, QQP or masked_lm, not '$task'" ;;
esac
[[ $size = base || $size = tiny ]] || fail "SIZE is base or tiny, not '$size'"
choose_reader "$system" "$size"
shift 2

if [ "$task" = masked_lm ]; then
    DATA=${DATA:-data/masked_lm/bin}
    [ -f "$DATA/dict.txt" ] || fail "there is no dict.txt in DATA=$DATA; scripts/prepare_masked_lm.py makes it"
    [ -z "${START:-}" ] || fail "START is for fine-tuning"
    # 2,048 sequences, the paper's batch for 16 GB of text: divide --update-freq by the number of GPUs.
    setting=(--task masked_lm --criterion masked_lm --sample-break-mode none --tokens-per-sample "$length"
        --batch-size 32 --update-freq 64 --lr 0.0006 --weight-decay 0.01 --clip-norm 1.0
        --save-interval-updates 1000 --keep-interval-updates 1)
else
    DATA=${DATA:-data/glue/$task/bin}
    check_data scripts/prepare_glue.py
    [ -z "${START:-}" ] || [ -f "$START" ] || fail "there is no checkpoint START=$START"
    setting=(--task sentence_prediction --criterion sentence_prediction --num-classes "$(count_labels)"
        --init-token 0 --separator-token 2 --shorten-method truncate
        --batch-size 32 --max-tokens 8192 --lr 0.00001 --weight-decay 0.1 --clip-norm 0.0
        --activation-dropout "$dropout" --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric)
    [ -z "${START:-}" ] || setting+=(--finetune-from-model "$START")
fi

save_dir=${SAVE_DIR:-checkpoints/glue/${task}_${system}_${size}_${SEED:-1}}
run "$save_dir" "${PYTHON:-python}" -m fairseq_cli.train "$DATA" --user-dir "$root/fairseq_luna" --save-dir "$save_dir" \
    "${model[@]}" "${setting[@]}" --max-positions "$length" --dropout 0.1 --attention-dropout 0.1 \
    --optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --lr-scheduler polynomial_decay \
    --warmup-updates "$warmup" --total-num-update "$updates" --max-update "$updates" --end-learning-rate 0 \
    --required-batch-size-multiple 1 --seed "${SEED:-1}" --no-epoch-checkpoints \
    --log-format json --log-interval 50 --log-file "$save_dir/log.json" "$@"
