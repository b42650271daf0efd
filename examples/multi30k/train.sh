#!/usr/bin/env bash
# Trains one system on Multi30k English-German:
#     DATA=data/multi30k/bin examples/multi30k/train.sh SYSTEM [further flags of fairseq-train]
# SYSTEM is one of those below. DATA is the bin folder of scripts/prepare_multi30k.py. Checkpoints and the log go to
# SAVE_DIR (checkpoints/multi30k/SYSTEM), where a stopped run resumes. SETTING=published is the setting of the published
# transformer-tiny, for a GPU; SETTING=short, the default, is a fifth of it, for one CPU core. DRY_RUN=1 prints the
# command and runs nothing.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

source "$root/examples/shared/systems.sh"

case "${SETTING:-short}" in
    short) updates=3000 size=(--max-tokens 4096) ;;
    published) updates=8000 size=(--max-tokens 4096 --update-freq "${UPDATE_FREQ:-2}" --patience 10) ;;
    *) fail "SETTING is short or published, not '$SETTING'" ;;
esac
system=${1:-}
choose_system "$system" "$updates" 2000
shift
check_data scripts/prepare_multi30k.py

# Data of Moses' tokens have a tokenised reference; others are SentencePiece's.
pieces=sentencepiece
if [ -f "$(dirname "$DATA")/reference/test.tok.de" ]; then pieces=subword_nmt; fi
train "${SAVE_DIR:-checkpoints/multi30k/$system}" "${size[@]}" --max-update "$updates" --dropout 0.3 --keep-last-epochs 10 \
    --eval-bleu --eval-bleu-args '{"beam": 1, "max_len_a": 1.2, "max_len_b": 10}' --eval-bleu-remove-bpe "$pieces" "$@"
