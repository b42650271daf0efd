# Sourced by score.sh of multi30k and documents, after systems.sh.

# Sets checkpoint: CHECKPOINT, or the average of the LAST ones in SAVE_DIR.
choose_checkpoint() { # SAVE_DIR LAST [flags of average_checkpoints.py]
    local save_dir=$1 last=$2
    shift 2
    # The scripts need the plugin, which may not be installed.
    export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    checkpoint=${CHECKPOINT:-$save_dir/average_of_$last.pt}
    [ -n "${CHECKPOINT:-}" ] || "${PYTHON:-python}" "$root/scripts/average_checkpoints.py" --last "$last" "$save_dir" "$@" \
        --output "$checkpoint" --force
}

# Translates the test with checkpoint, and sets generated, the file of the translations.
translate() { # flags of fairseq-generate
    generated=${checkpoint%.pt}.generated
    "${PYTHON:-python}" -m fairseq_cli.generate "$DATA" --user-dir "$root/fairseq_luna" --path "$checkpoint" \
        --task translation --gen-subset test --beam "${BEAM:-5}" --lenpen "${LENPEN:-1}" --max-tokens 4096 "$@" \
        > "$generated.unfinished"
    mv "$generated.unfinished" "$generated"
}
