#!/usr/bin/env bash
# Luna-big, L = 32, softplus, keys and values tied. Not in the paper's table.
exec "$(dirname "$0")/train.sh" luna_big apollo \
    --arch luna_big --projection-length 32 --luna-activation softplus --dropout 0.3 "$@"
