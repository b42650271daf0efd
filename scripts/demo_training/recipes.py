"""The flags that the demo passes to fairseq-train, for each ``--arch`` of the demo."""

import shlex
from typing import NamedTuple


class Recipe(NamedTuple):
    max_update: int
    flags: tuple[str, ...]


# Small batches and pre-norm train best in a few minutes. Twelve thousand sentences of a grammar need no dropout.
_COMMON = shlex.split(
    "--share-all-embeddings --encoder-normalize-before --decoder-normalize-before --dropout 0 "
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 400 --clip-norm 1.0"
)
# luna_tiny's own sizes; the architecture that fairseq calls transformer_tiny is half as wide.
_TRANSFORMER_OF_THE_SAME_SIZE = shlex.split(
    "--arch transformer --encoder-layers 4 --decoder-layers 4 --encoder-attention-heads 4 "
    "--decoder-attention-heads 4 --encoder-embed-dim 128 --decoder-embed-dim 128 "
    "--encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256"
)
# Apollo's steps do not shrink with the noise of small batches, hence several decays.
_APOLLO = shlex.split(
    "--optimizer apollo --apollo-beta 0.9 --apollo-eps 1e-4 --apollo-rebound constant "
    "--weight-decay 1e-8 --weight-decay-type L2 --lr 0.04 --lr-scheduler milestone --warmup-updates 200 "
    "--warmup-init-lr 1e-5 --milestones 1400,2000,2500,2800 --lr-decay-rate 0.4"
)
# What helps most in a short training: a convolution, slots that begin as segments, a rate that ends at 0.
_LUNA = shlex.split(
    "--arch luna_tiny --untie-luna-kv --luna-kernel-size 5 --luna-segment-bias 4 "
    "--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.003 --lr-scheduler polynomial_decay "
    "--total-num-update 2000 --warmup-updates 300"
)
_ADAM = shlex.split(
    "--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 200"
)

RECIPES: dict[str, Recipe] = {
    "luna_tiny": Recipe(2000, (*_COMMON, *_LUNA)),
    "fastformer_tiny": Recipe(3000, (*_COMMON, "--arch", "fastformer_tiny", *_APOLLO)),
    "block_tiny": Recipe(3000, (*_COMMON, "--arch", "block_tiny", *_APOLLO)),
    "mixed_tiny": Recipe(3000, (*_COMMON, "--arch", "mixed_tiny", *_ADAM)),
    "transformer_tiny": Recipe(3000, (*_COMMON, *_TRANSFORMER_OF_THE_SAME_SIZE, *_ADAM)),
}
