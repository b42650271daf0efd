#!/usr/bin/env bash
# Luna, L = 32, softplus, keys and values untied. In the paper: 77.6M parameters, 27.8 BLEU.
exec "$(dirname "$0")/train.sh" luna_32_softplus_untied apollo \
    --arch luna --projection-length 32 --luna-activation softplus --untie-luna-kv "$@"
