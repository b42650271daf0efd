#!/usr/bin/env bash
# Luna, L = 16, elu, keys and values untied. In the paper: 77.5M parameters, 27.4 BLEU.
exec "$(dirname "$0")/train.sh" luna_16_elu_untied apollo \
    --arch luna --projection-length 16 --luna-activation elu --untie-luna-kv "$@"
