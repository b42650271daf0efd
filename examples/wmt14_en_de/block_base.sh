#!/usr/bin/env bash
# Block attention of the base size: the optimal blocks, 8 words a block in the decoder. Not in the paper's table.
exec "$(dirname "$0")/train.sh" block_base apollo \
    --arch block_base --decoder-block-size 8 "$@"
