#!/usr/bin/env bash
# Measures on one NVIDIA GPU what research/2026-11-26-gpu.md has, and what is missing there, the most wanted first:
#     scripts/measure_on_gpu.sh [exact] [generate] [train] [epoch] [tests] [multi30k] [documents]
# Each step writes its log to outputs/gpu; one whose log is there is left out, so that a stopped run goes on. The
# environment has torch's CUDA build, Triton, and this package with the extras of `make test` and [data]. Documents
# need data/documents, which examples/documents/README.md prepares.
#
# JOBS   trainings, or processes of tests, at a time (8)
# SEEDS  of the trainings on Multi30k ("1 2 3")
# HOURS  of each system's training on documents (0.5)
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
out=outputs/gpu jobs=${JOBS:-8}
at_base_size=(--device cuda --dtype bfloat16 --size base)
systems=(transformer softmax luna{,-untied,-triton,-untied-triton,-softmax-source} fastformer block linear)

convolution=model.attention_kernel_size=5
declare -A keys=(
    [transformer]="system=transformer"
    [softmax]="system=mixed $convolution"
    [linear]="system=mixed model.encoder_self_attention=linear model.decoder_self_attention=linear $convolution"
    [luna]="model.untie_luna_kv=true model.luna_source_attention=softmax $convolution"
    [fastformer]="system=fastformer $convolution"
    [block]="system=block $convolution"
)
declare -A converted=(
    [softmax]="--arch mixed_tiny"
    [linear]="--arch mixed_tiny --encoder-self-attention linear --decoder-self-attention linear"
    [luna]="--arch luna_tiny --untie-luna-kv --luna-source-attention softmax"
    [block]="--arch block_tiny"
)

exact() { # recorded decoding and recorded training steps equal fairseq's and eager ones
    python -m pytest --device cuda -q -n "$jobs" tests/recorded_search tests/recorded_training
}

tests() {
    python -m pytest --device cuda -q -n "$jobs" -m "not inductor" --ignore tests/models/test_compile.py \
        --ignore tests/models/test_compiled_models.py --ignore tests/models/test_launches.py tests/ops tests/modules tests/optim tests/models \
        tests/reliability/test_{resume,processes,trainings}.py
}

train() { # 16,384 tokens without fairseq's transformer, whose masks need too much memory
    python scripts/benchmark.py train "${at_base_size[@]}" --rounds 11 --warm-up 4 --reference softmax \
        --shapes 25x328,512x16,4096x2 --systems "${systems[@]}" --json $out/train.json
    python scripts/benchmark.py train "${at_base_size[@]}" --rounds 11 --warm-up 4 --reference softmax \
        --shapes 16384x1 --systems "${systems[@]:1}" --json $out/train_16384.json
    python scripts/benchmark.py train "${at_base_size[@]}" --rounds 11 --warm-up 4 --reference softmax --no-peak \
        --shapes 25x328,512x16,4096x2 --json $out/train_recorded.json --systems transformer{,-recorded} \
        softmax{,-recorded,-compiled,-compiled-recorded} luna{,-recorded,-compiled,-compiled-recorded} \
        luna-triton{,-recorded} linear{,-recorded,-compiled-recorded} block{,-recorded} fastformer{,-recorded}
}

generate() { # equal lengths of source and target: 25, then 1,024
    local recorded=({softmax,luna,fastformer,linear,ssru,retention}{,-recorded}) length
    for length in 25 1024; do
        python scripts/benchmark.py generate "${at_base_size[@]}" --lengths $length --source-length $length \
            --sentences 32 --rounds 3 --systems transformer "${recorded[@]}" --json $out/generate_$length.json
    done
}

epoch() { # of Multi30k in fairseq-train: eager, with 16 buckets, and with recorded steps
    multi30k_data
    local name keys_of_name
    for name in eager buckets recorded; do
        keys_of_name=(+task.num_batch_buckets=16)
        [ $name != eager ] || keys_of_name=()
        [ $name != recorded ] || keys_of_name+=(+model.record_training=true)
        fairseq-hydra-train --config-dir examples/config --config-name multi30k task.data=data/multi30k/bin \
            common.bf16=true optimization.max_epoch=2 checkpoint.save_dir=$out/epoch_$name "${keys_of_name[@]}"
    done
}

multi30k_data() {
    [ -d data/multi30k/bin ] || python scripts/prepare_corpus.py multi30k --bpe sentencepiece --out data/multi30k
}

multi30k() { # the published setting
    multi30k_data
    local runs=() run folder seed
    for seed in ${SEEDS:-1 2 3}; do runs+=({transformer,softmax,luna,fastformer,block}_"$seed"); done
    for run in "${runs[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 1; done
        folder=$out/multi30k_$run
        # shellcheck disable=SC2086 # the keys of a system are words
        fairseq-hydra-train --config-dir examples/config --config-name multi30k task.data=data/multi30k/bin \
            ${keys[${run%_*}]} common.seed="${run#*_}" optimization.max_update=8000 'optimization.update_freq=[2]' \
            checkpoint.patience=10 checkpoint.save_dir="$folder" > "$folder.out" 2>&1 &
    done
    wait
    for run in "${runs[@]}"; do examples/score.sh data/multi30k $out/multi30k_"$run"; done
}

documents() { # every system as long, from one transformer that learned segments, then longer examples
    stage segments_1 start_1 null "${keys[transformer]}" optimization.max_update=3000
    stage pieces_128 start_128 start_1 "${keys[transformer]}" optimization.max_update=400
    stage pieces_512 start_512 start_128 "${keys[transformer]}" optimization.max_update=600
    local system start
    for system in transformer softmax linear luna block; do
        start=start_512
        if [ $system != transformer ]; then
            start=start_$system
            mkdir -p $out/$start
            # shellcheck disable=SC2086 # the flags of a system are words
            [ -f $out/$start/checkpoint_last.pt ] || python -m fairseq_luna convert $out/start_512/checkpoint_last.pt \
                ${converted[$system]} --attention-kernel-size 5 --output $out/$start/checkpoint_last.pt
        fi
        stage pieces_2048 documents_$system $start "${keys[$system]}" optimization.max_update=100000 \
            optimization.stop_time_hours="${HOURS:-0.5}"
        CHECKPOINT=$out/documents_$system/checkpoint_last.pt examples/score.sh data/documents/pieces_2048 \
            $out/documents_$system --beam 1 --max-tokens 32768 --max-source-positions 2048 \
            --max-target-positions 2048 --max-len-a 1.3 --max-len-b 20
    done
}

stage() { # LENGTH FOLDER START KEYS [overrides]
    local start=$out/$3/checkpoint_last.pt
    [ "$3" != null ] || start=null
    # shellcheck disable=SC2086 # the keys of a system are words
    fairseq-hydra-train --config-dir examples/config --config-name documents task.data=data/documents/"$1"/bin $4 \
        checkpoint.save_dir=$out/"$2" checkpoint.finetune_from_model="$start" "${@:5}"
}

steps=("$@")
[ $# -gt 0 ] || steps=(exact generate train epoch tests multi30k documents)
for step in "${steps[@]}"; do
    [[ $step =~ ^(exact|generate|train|epoch|tests|multi30k|documents)$ ]] && continue
    echo "measure_on_gpu.sh: $step is no step: give exact, generate, train, epoch, tests, multi30k or documents" >&2
    exit 2
done
mkdir -p $out
for step in "${steps[@]}"; do
    [ ! -f "$out/$step.log" ] || continue
    echo "$step: $out/$step.log"
    set +e # a failing command ends its step, not the others
    (set -e && $step) > "$out/$step.unfinished" 2>&1
    ended=$?
    set -e
    [ $ended = 0 ] && mv "$out/$step.unfinished" "$out/$step.log" || echo "$step failed: see $out/$step.unfinished" >&2
done
