#!/usr/bin/env bash
# Transformer-base with Apollo. In the paper: 64.9M parameters, 28.3 BLEU.
# fairseq 0.12.2 keeps weights in its encoder layers that nothing trains, and the default --ddp-backend cannot bear those.
exec "$(dirname "$0")/train.sh" transformer_base_apollo apollo \
    --arch transformer_wmt_en_de --ddp-backend legacy_ddp "$@"
