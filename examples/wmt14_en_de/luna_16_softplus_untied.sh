#!/usr/bin/env bash
# Luna, L = 16, softplus, keys and values untied. In the paper: 77.5M parameters, 27.6 BLEU.
exec "$(dirname "$0")/train.sh" luna_16_softplus_untied apollo \
    --arch luna --projection-length 16 --luna-activation softplus --untie-luna-kv "$@"
