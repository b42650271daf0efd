"""The flags that the demo passes to fairseq-train, for each ``--arch`` of the demo."""

import shlex

MAX_UPDATE = 2000

# What learned most of what was measured: small batches, pre-norm, a rate that ends at 0. Twelve thousand sentences of a
# grammar need no dropout.
_COMMON = (
    "--share-all-embeddings --encoder-normalize-before --decoder-normalize-before --dropout 0 "
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 400 --clip-norm 1.0 "
    "--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.003 --lr-scheduler polynomial_decay --warmup-updates 300"
)
_ARCHITECTURES = {
    # A convolution, and slots that begin as segments of the source.
    "luna_tiny": "--arch luna_tiny --untie-luna-kv --luna-kernel-size 5 --luna-segment-bias 4",
    "fastformer_tiny": "--arch fastformer_tiny",
    "block_tiny": "--arch block_tiny",
    "mixed_tiny": "--arch mixed_tiny",
    # luna_tiny's own sizes; the architecture that fairseq calls transformer_tiny is half as wide.
    "transformer_tiny": (
        "--arch transformer --encoder-layers 4 --decoder-layers 4 --encoder-attention-heads 4 "
        "--decoder-attention-heads 4 --encoder-embed-dim 128 --decoder-embed-dim 128 "
        "--encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256"
    ),
}

RECIPES = {name: tuple(shlex.split(f"{_COMMON} {flags}")) for name, flags in _ARCHITECTURES.items()}
