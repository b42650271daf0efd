# Sourced by score.sh of multi30k, documents and summarization, after systems.sh.

# Sets checkpoint: CHECKPOINT, or the average of the LAST ones in SAVE_DIR.
choose_checkpoint() { # SAVE_DIR LAST [flags of fairseq-luna average]
    local save_dir=$1 last=$2
    shift 2
    # The scripts need the plugin, which may not be installed.
    export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    checkpoint=${CHECKPOINT:-$save_dir/average_of_$last.pt}
    [ -n "${CHECKPOINT:-}" ] || [ -d "$save_dir" ] ||
        fail "there is no folder $save_dir: train $system first, or set SAVE_DIR to where it was trained"
    [ -n "${CHECKPOINT:-}" ] || "${PYTHON:-python}" -m fairseq_luna average "$save_dir" --last "$last" "$@" \
        --output "$checkpoint" --force
    [ -f "$checkpoint" ] || fail "there is no checkpoint $checkpoint"
}

# Sets target, the target language of DATA, from such a name as train.en-de.de.idx.
choose_target() {
    target=$(cd "$DATA" && echo train.*-*.idx)
    target=${target#*-} target=${target%%.*}
}

# Sets lengths, flags of fairseq-generate: those of checkpoint's training, which fairseq-generate does not read there.
choose_lengths() { # MAX_TOKENS, at least
    local tokens=$1 source target
    target=$("${PYTHON:-python}" -c '
import sys
from pathlib import Path
from fairseq_luna.commands.checkpoints import load
task = load(Path(sys.argv[1]))["cfg"]["task"]
print(task["max_source_positions"], task["max_target_positions"])' "$checkpoint")
    source=${target% *} target=${target#* }
    ((tokens >= source)) || tokens=$source
    ((tokens >= target)) || tokens=$target
    lengths=(--max-source-positions "$source" --max-target-positions "$target" --max-tokens "$tokens")
}

# Translates the test with checkpoint, and sets generated, the file of the translations.
translate() { # flags of fairseq-generate
    generated=${checkpoint%.pt}.generated
    "${PYTHON:-python}" -m fairseq_cli.generate "$DATA" --user-dir "$root/fairseq_luna" --path "$checkpoint" \
        --task translation --gen-subset test --beam "${BEAM:-5}" --lenpen "${LENPEN:-1}" --max-tokens 4096 "$@" \
        > "$generated.unfinished"
    mv "$generated.unfinished" "$generated"
}
