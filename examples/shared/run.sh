# Sourced by systems.sh and readers.sh.

fail() {
    echo "$(basename "$0"): $1" >&2
    exit 2
}

# Runs a command that writes to SAVE_DIR, or prints it if DRY_RUN is set.
run() { # SAVE_DIR COMMAND...
    local save_dir=$1
    shift
    if [ -n "${DRY_RUN:-}" ]; then
        printf '%q ' "$@"
        echo
        exit
    fi
    mkdir -p "$save_dir"
    # For matrices this small a second thread gains little, and costs much on a busy machine.
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    exec "$@"
}
