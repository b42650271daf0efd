#!/usr/bin/env bash
# Trains one system to summarise long documents:
#     DATA=data/cnn_dm/bin examples/summarization/train.sh SYSTEM [further flags of fairseq-train]
# SYSTEM is one of examples/shared/systems.sh.
#
# DATA        a bin folder of fairseq-luna prepare -s source -t target (required)
# SAVE_DIR    checkpoints and log; a stopped run resumes there (checkpoints/summarization/NAME/SYSTEM, such as
#             checkpoints/summarization/cnn_dm/luna_untied)
# SIZE        base, 6+6 layers of 512/2048 channels and 8 heads; or tiny, 4+4 of 128/256 and 4 (base)
# POSITIONS   pieces of a document; the rest is left out (4096)
# UPDATES     (50000)
# MAX_TOKENS  of an update, with padding, on each GPU (16384)
# DRY_RUN=1   print the command, run nothing
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/examples/shared/systems.sh"

updates=${UPDATES:-50000} tokens=${MAX_TOKENS:-16384} positions=${POSITIONS:-4096}
for value in "UPDATES=$updates" "MAX_TOKENS=$tokens" "POSITIONS=$positions"; do
    [[ $value =~ =[1-9][0-9]{0,8}$ ]] || fail "$value: it must be a whole number above 0"
done
longest=$((positions > 1024 ? positions : 1024)) # summaries have up to 1,024
((longest <= tokens)) || fail "MAX_TOKENS=$tokens: it must be at least $longest, the longest document or summary"
system=${1:-}
choose_system "$system" "$updates" $(((updates + 9) / 10))
shift
case "${SIZE:-base}" in
    tiny) size=() ;;
    # Adam's rate is that of fairseq's transformer of this size, Apollo's its authors'.
    base)
        size=(--lr 0.0007)
        [[ $system != *_apollo ]] || size=(--lr 0.1)
        for side in encoder decoder; do
            size+=("--$side-layers" 6 "--$side-embed-dim" 512 "--$side-ffn-embed-dim" 2048 "--$side-attention-heads" 8)
        done ;;
    *) fail "SIZE is base or tiny, not '$SIZE'" ;;
esac
check_data "fairseq-luna prepare"
name=$(basename "$(cd "$DATA/.." && pwd)")

train "${SAVE_DIR:-checkpoints/summarization/$name/$system}" "${size[@]}" \
    --truncate-source --max-source-positions "$positions" --max-target-positions 1024 \
    --skip-invalid-size-inputs-valid-test --max-tokens "$tokens" --required-batch-size-multiple 1 \
    --max-update "$updates" --dropout 0.1 --clip-norm 1.0 --no-epoch-checkpoints \
    --save-interval-updates 1000 --keep-interval-updates 5 "$@"
