#!/usr/bin/env bash
# Luna, L = 16, softplus, keys and values tied. In the paper: 69.6M parameters, 27.3 BLEU.
exec "$(dirname "$0")/train.sh" luna_16_softplus_tied apollo \
    --arch luna --projection-length 16 --luna-activation softplus "$@"
