#!/usr/bin/env bash
# Luna, L = 32, elu, keys and values untied. In the paper: 77.6M parameters, 27.6 BLEU.
exec "$(dirname "$0")/train.sh" luna_32_elu_untied apollo \
    --arch luna --projection-length 32 --luna-activation elu --untie-luna-kv "$@"
