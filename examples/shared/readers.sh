# Sourced by the scripts of imdb, glue and lra, which set root, the checkout: readers of texts with labels, and their accuracy.

source "$root/examples/shared/run.sh"

# Sets model, the flags of SYSTEM: by default 4 layers, 128/256 channels and 4 heads.
choose_reader() { # SYSTEM [SIZE of an architecture]
    local size=${2:-tiny}
    case "$1" in
        '') fail "give a SYSTEM: transformer, luna, luna_untied, luna_ and its number of slots such as luna_128, or an\
 attention of docs/flags.md such as fastformer" ;;
        transformer) model=(--arch "mixed_roberta_$size") ;;
        luna) model=(--arch "luna_roberta_$size") ;;
        luna_[1-9]*) model=(--arch "luna_roberta_$size" --projection-length "${1#luna_}") ;;
        luna_untied) model=(--arch "luna_roberta_$size" --untie-luna-kv) ;;
        *) model=(--arch "mixed_roberta_$size" --encoder-self-attention "$1") ;;
    esac
}

check_data() { # SCRIPT, which makes such data
    [ -n "${DATA:-}" ] || fail "set DATA to a bin folder that $1 made"
    [ -f "$DATA/input0/dict.txt" ] || fail "there is no input0/dict.txt in DATA=$DATA; $1 makes it"
}

count_labels() {
    grep -vc '^madeupword' "$DATA/label/dict.txt"
}

# Prints the accuracy of CHECKPOINT on SUBSET (test), in percent.
print_accuracy() { # CHECKPOINT [flags of fairseq-validate]
    local checkpoint=$1 output
    shift
    [ -f "$checkpoint" ] || fail "there is no checkpoint $checkpoint"
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    # What is not given here, such as the length, is the training's.
    output=$("${PYTHON:-python}" -m fairseq_cli.validate "$DATA" --user-dir "$root/fairseq_luna" --path "$checkpoint" \
        --task sentence_prediction --criterion sentence_prediction --num-classes "$(count_labels)" \
        --valid-subset "${SUBSET:-test}" --max-tokens 16384 --log-format json "$@" 2>&1) || {
        echo "$output" | tail -n 5 >&2
        exit 1
    }
    echo "$output" | grep -oE '"[a-z0-9_]*accuracy": "[0-9.]+"' | tail -n 1 | tr -cd '0-9.\n'
}
