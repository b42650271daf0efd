# Sourced by the scripts of multi30k, documents and summarization, which set root, the checkout: their systems.

source "$root/examples/shared/run.sh"

# Sets model, the flags of SYSTEM and its optimizer. All have 4+4 layers, 128/256 channels and 4 heads.
choose_system() { # SYSTEM UPDATES WARMUP
    local updates=$2 optimizer=(--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.005 --warmup-updates "$3")
    # What learned most on Multi30k (research/2026-11-24-apollo.md).
    [[ $1 != *_apollo ]] || optimizer=(--optimizer apollo --lr 0.2 --warmup-updates $(((updates + 5) / 6)) --clip-norm 1.0
        --encoder-normalize-before --decoder-normalize-before)
    optimizer+=(--lr-scheduler inverse_sqrt)
    case "${1%_apollo}" in
        # fairseq's transformer in the sizes of the others: its transformer_tiny is half as wide.
        transformer)
            model=(--arch transformer --encoder-layers 4 --decoder-layers 4 --encoder-attention-heads 4
                --decoder-attention-heads 4 --encoder-embed-dim 128 --decoder-embed-dim 128
                --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256) ;;
        luna_tied) model=(--arch luna_tiny) ;;
        luna_untied) model=(--arch luna_tiny --untie-luna-kv) ;;
        luna_untied_softmax_source)
            model=(--arch luna_tiny --untie-luna-kv --luna-source-attention softmax) ;;
        luna_convolution)
            model=(--arch luna_tiny --untie-luna-kv --luna-source-attention softmax --luna-kernel-size 5) ;;
        fastformer) model=(--arch fastformer_tiny) ;;
        fastformer_convolution) model=(--arch fastformer_tiny --fastformer-kernel-size 5) ;;
        block) model=(--arch block_tiny) ;;
        block_convolution) model=(--arch block_tiny --block-kernel-size 5) ;;
        # Attentions by name: --encoder-self-attention NAME --decoder-self-attention NAME follow.
        mixed_convolution) model=(--arch mixed_tiny --attention-kernel-size 5) ;;
        *) fail "SYSTEM is transformer, luna_tied, luna_untied, luna_untied_softmax_source, luna_convolution,\
 fastformer, fastformer_convolution, block, block_convolution or mixed_convolution, each also with _apollo,\
 not '$1'" ;;
    esac
    model+=("${optimizer[@]}")
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
