# Sourced by the scripts of multi30k, documents and summarization, which set root, the checkout: their systems.

source "$root/examples/shared/run.sh"

# Milestones after six and nine tenths of the updates, as in the papers.
apollo() {
    local updates=$1
    echo --optimizer apollo --apollo-beta 0.9 --apollo-eps 1e-4 --apollo-rebound constant --lr 0.1 \
        --weight-decay 1e-8 --weight-decay-type L2 --clip-norm 1.0 \
        --lr-scheduler milestone --warmup-updates $((updates / 5)) --warmup-init-lr 1e-5 \
        --milestones $((updates * 6 / 10)),$((updates * 9 / 10)) --lr-decay-rate 0.1
}

# Sets model, the flags of SYSTEM and its optimizer. All have 4+4 layers, 128/256 channels and 4 heads.
choose_system() { # SYSTEM UPDATES WARMUP
    local system=$1 updates=$2
    local adam=(--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates "$3")
    case "$system" in
        # fairseq's transformer in the sizes of the others: its transformer_tiny is half as wide.
        transformer)
            model=(--arch transformer --encoder-layers 4 --decoder-layers 4 --encoder-attention-heads 4
                --decoder-attention-heads 4 --encoder-embed-dim 128 --decoder-embed-dim 128
                --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 "${adam[@]}") ;;
        luna_tied) model=(--arch luna_tiny "${adam[@]}") ;;
        luna_untied) model=(--arch luna_tiny --untie-luna-kv "${adam[@]}") ;;
        luna_untied_softmax_source)
            model=(--arch luna_tiny --untie-luna-kv --luna-source-attention softmax "${adam[@]}") ;;
        luna_convolution)
            model=(--arch luna_tiny --untie-luna-kv --luna-source-attention softmax --luna-kernel-size 5 "${adam[@]}") ;;
        # shellcheck disable=SC2207 # Words without spaces or stars.
        luna_tied_apollo) model=(--arch luna_tiny $(apollo "$updates")) ;;
        # shellcheck disable=SC2207
        luna_untied_apollo) model=(--arch luna_tiny --untie-luna-kv $(apollo "$updates")) ;;
        fastformer) model=(--arch fastformer_tiny "${adam[@]}") ;;
        fastformer_convolution) model=(--arch fastformer_tiny --fastformer-kernel-size 5 "${adam[@]}") ;;
        block) model=(--arch block_tiny "${adam[@]}") ;;
        block_convolution) model=(--arch block_tiny --block-kernel-size 5 "${adam[@]}") ;;
        # Attentions by name: --encoder-self-attention NAME --decoder-self-attention NAME follow.
        mixed_convolution) model=(--arch mixed_tiny --attention-kernel-size 5 "${adam[@]}") ;;
        *) fail "SYSTEM is transformer, luna_tied, luna_untied, luna_untied_softmax_source, luna_convolution,\
 luna_tied_apollo, luna_untied_apollo, fastformer, fastformer_convolution, block,\
 block_convolution or mixed_convolution, not '$system'" ;;
    esac
}

check_data() { # SCRIPT, which makes such data
    [ -n "${DATA:-}" ] || fail "set DATA to the bin folder that $1 made"
    compgen -G "$DATA/dict.*.txt" > /dev/null || fail "there is no dict.*.txt in DATA=$DATA; $1 makes that folder"
}

# Runs fairseq-train with these flags, or prints the command if DRY_RUN is set.
train() { # SAVE_DIR FLAG...
    local save_dir=$1
    shift
    run "$save_dir" "${PYTHON:-python}" -m fairseq_cli.train "$DATA" --user-dir "$root/fairseq_luna" \
        --save-dir "$save_dir" "${model[@]}" --share-all-embeddings \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --seed 1 \
        --log-format json --log-interval 50 --log-file "$save_dir/log.json" "$@"
}
