"""Reformer's attention (arXiv 2001.04451) for encoders: softmax attention to the steps with the same hash.

With unit keys k_j = q_j / |q_j|, and the hash of a step the direction of [R q ; -R q] that is largest, steps are sorted
by hash, cut into chunks, and attend to the steps of their own hash in their chunk and the one before it::

    y_t = sum_j softmax_j( q_t . k_j ) v_j            over the steps j of the same hash, in several rounds of hashing

Parameters: ``q_proj``, ``v_proj``, ``out_proj``; there is no projection of keys. Differences from the paper are in the
declaration at the end of the file.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.padding import Padding
from ..ops.reformer_attention import reformer_attention
from ..published import Difference, Published
from .argument_checks import check_positive
from .attention import SelfAttention
from .conversion import Rule, Rules
from .declaration import Attention, Flag, Traits
from .redrawn_directions import RedrawnDirections

# 64 directions give 128 buckets, enough for 8,192 steps in chunks of 64. Hashing costs a quarter of attending then.
MOST_DIRECTIONS = 64


class ReformerAttention(RedrawnDirections, SelfAttention):
    """Self-attention to the steps with the same hash, O(T log T).

    All heads share the random directions of the hashes, which stay as they are in evaluation; the authors draw them at
    every call. At padding the result is the bias of the output projection.

    Args:
        num_hashes: rounds of hashing, each with directions of its own.
        chunk_size: steps of a chunk; each sees the steps of its bucket in its own chunk and the one before it.
        redraw_features: draw new directions every ``redraw_features`` updates, in training; 0 = never.
        options: arguments of :class:`.SelfAttention`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or another number is too small.
    """

    successor_rules: ClassVar[Rules] = {"k_proj": Rule(("q_proj",))}

    def __init__(
        self, *, num_hashes: int = 8, chunk_size: int = 64, redraw_features: int = 1000, **options: Any
    ) -> None:
        super().__init__(**options)
        check_positive(num_hashes=num_hashes, chunk_size=chunk_size)
        self.num_hashes, self.chunk_size = num_hashes, chunk_size
        linear = self.linear
        self.q_proj, self.v_proj, self.out_proj = (
            linear.input_projection(),
            linear.input_projection(),
            linear.output_projection(),
        )
        self.register_directions(redraw_features)

    def draw(self, generator: torch.Generator) -> Tensor:
        """``(R, D, M)``: M directions for each of R rounds."""
        shape = self.num_hashes, self.head_size, MOST_DIRECTIONS
        return torch.randn(shape, generator=generator, device=generator.device)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        y = reformer_attention(
            self.project_heads(self.q_proj, x),
            self.project_heads(self.v_proj, x),
            self.directions,
            chunk_size=self.chunk_size,
            **self.op_options(padding),
        )
        return self.project_output(y)


ATTENTIONS = (
    Attention(
        name="reformer",
        published=Published(
            "arXiv 2001.04451; reformer-pytorch, and the port of the authors' trax in transformers",
            (
                Difference(
                    "random directions",
                    "stay for `--redraw-features` updates, and in evaluation",
                    "drawn at every call",
                    "a translation does not depend on chance, and resuming is exact",
                ),
                Difference(
                    "place",
                    "encoder",
                    "decoder and encoder",
                    "with its state, a step of generation would sort all steps",
                ),
                Difference(
                    "layers",
                    "fairseq's",
                    "reversible, with feed-forward networks in chunks",
                    "only the attention is replaced; `--checkpoint-activations` saves memory too",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2001.04451",
        encoder=ReformerAttention,
        decoder="its steps are sorted together with later ones",
        source="its keys are its queries",
        traits=Traits(training_time="n log n", decoder_state="", sees_every_step=False, continuous=False),
        flags=(
            Flag(name="num_hashes", argument="num_hashes", help="rounds of hashing", default=8, minimum=1),
            Flag(name="attention_chunk", argument="chunk_size", help="steps of a chunk", default=64, minimum=1),
            Flag(
                name="redraw_features",
                argument="redraw_features",
                help="updates between two random draws in training; 0: never (the authors draw at every call)",
                default=1000,
                minimum=0,
            ),
        ),
    ),
)
