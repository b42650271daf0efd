#!/usr/bin/env bash
# Luna, L = 16, elu, keys and values tied. In the paper: 69.6M parameters, 27.1 BLEU.
exec "$(dirname "$0")/train.sh" luna_16_elu_tied apollo \
    --arch luna --projection-length 16 --luna-activation elu "$@"
