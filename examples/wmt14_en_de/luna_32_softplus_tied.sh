#!/usr/bin/env bash
# Luna, L = 32, softplus, keys and values tied. In the paper: 69.7M parameters, 27.5 BLEU.
exec "$(dirname "$0")/train.sh" luna_32_softplus_tied apollo \
    --arch luna --projection-length 32 --luna-activation softplus "$@"
