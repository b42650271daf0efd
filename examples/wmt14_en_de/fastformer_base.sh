#!/usr/bin/env bash
# Fastformer of the base size: product, query residual, query and value shared. Not in the paper's table.
exec "$(dirname "$0")/train.sh" fastformer_base apollo \
    --arch fastformer_base "$@"
