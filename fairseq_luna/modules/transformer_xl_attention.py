"""Transformer-XL's attention (arXiv 1901.02860, section 3): segments, a memory of earlier steps, relative positions.

For steps i of a segment of N steps, and j of the segment or of the M steps before it::

    s_ij = ((q_i + u) k_j + (q_i + v) W_r r(i - j)) / sqrt(D)        r(d): sinusoids of the distance, (C,)
    y_i = softmax_j(s_ij) v_j

Parameters: the parameters of softmax attention, ``position_proj`` (W_r), ``content_bias`` (u) and ``position_bias``
(v). Differences from the paper are in the declaration at the end of the file.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.padding import Padding
from ..ops.transformer_xl_attention import (
    SegmentCache,
    transformer_xl_attention,
    transformer_xl_attention_step,
)
from ..published import Difference, Published
from ..usage_error import ArgumentError
from .argument_checks import check_positive
from .attention import SelfAttention
from .conversion import Rule, Rules, zero
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues
from .projection import affine_of


class TransformerXLAttention(QueriesKeysValues, SelfAttention):
    """Self-attention to a step's own segment (in a decoder, to its earlier steps) and to the memory before it.

    The state of a decoder is the keys and values of N + M steps, from the first step on. At padding the result is the
    bias of the output projection.

    Args:
        segment: N, steps of a segment.
        memory: M, steps before a segment that all its steps see. No gradient reaches them through the memory.
        options: arguments of :class:`.QueriesKeysValues` and :class:`.SelfAttention`.

    Raises:
        UsageError: if ``segment`` is below 1 or ``memory`` below 0, or a base class refuses an option.
    """

    State = SegmentCache
    conversion_rules: ClassVar[Rules] = {
        "position_proj": Rule(start=zero),
        "content_bias": Rule(start=zero),
        "position_bias": Rule(start=zero),
    }

    def __init__(self, *, segment: int = 128, memory: int = 128, **options: Any) -> None:
        super().__init__(**options)
        check_positive(segment=segment)
        if memory < 0:
            raise ArgumentError("memory", memory, "must be 0 or more, such as 128")
        self.segment, self.memory = segment, memory
        self.position_proj = self.linear.input_projection(bias=False)
        self.content_bias = nn.Parameter(torch.randn(self.num_heads, self.head_size) * 0.02)
        self.position_bias = nn.Parameter(torch.randn(self.num_heads, self.head_size) * 0.02)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        memory_k, memory_v = k, v
        if torch.is_grad_enabled() and self.memory and x.shape[0] > self.segment:
            earlier = x.detach()
            memory_k, memory_v = (self.project_heads(projection, earlier) for projection in (self.k_proj, self.v_proj))
        y = transformer_xl_attention(
            *(q, k, v, memory_k, memory_v, *self.position_arguments()),
            segment=self.segment,
            memory=self.memory,
            causal=self.causal,
            **self.op_options(padding),
        )
        return self.project_output(y)

    def attend_step(self, x: Tensor, padding: Padding, state: SegmentCache | None) -> tuple[Tensor, SegmentCache]:
        y, state = transformer_xl_attention_step(
            *self.queries_keys_values(x),
            *self.position_arguments(),
            state,
            segment=self.segment,
            memory=self.memory,
            **self.op_options(padding),
        )
        return self.project_output(y), state

    def position_arguments(self) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of the op for positions: u and v, each ``(H, D)``, and W_r ``(H, D, C)``."""
        affine = affine_of(self.position_proj)
        if affine is not None:
            weight = affine.weight
        else:  # hooks, such as quantization noise, act when it is called
            like = self.content_bias
            weight = self.position_proj(torch.eye(self.embed_dim, dtype=like.dtype, device=like.device)).t()
        return self.content_bias, self.position_bias, weight.unflatten(0, (self.num_heads, self.head_size))


ATTENTIONS = (
    Attention(
        name="transformer-xl",
        published=Published(
            "arXiv 1901.02860; the authors' transformer-xl",
            (
                Difference(
                    "memory",
                    "of the steps of the same sentence or document, in one pass",
                    "of the batch before, whose documents continue",
                    "a translation model reads its documents whole, so that batches need no order",
                ),
                Difference(
                    "segment and memory",
                    "128 steps each, `--attention-chunk` and `--attention-memory`",
                    "150 each for WikiText-103, 512 each for enwik8; longer memories in evaluation",
                    "the same function in training and generation",
                ),
                Difference(
                    "u and v",
                    "of each layer",
                    "shared by all layers; of each layer with an option of the code",
                    "an attention knows nothing of other layers",
                ),
                Difference(
                    "position embeddings",
                    "fairseq's, added to the tokens, beside the relative ones",
                    "the relative ones alone",
                    "one setting for all names; `--no-token-positional-embeddings` leaves them out",
                ),
                Difference("biases", "of queries, keys, values and output", "none", "as fairseq's attention has"),
                Difference(
                    "in the encoder",
                    "a step's own segment to both sides, and the memory before it",
                    "decoder only",
                    "an encoder's tokens should see both sides",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/1901.02860",
        encoder=TransformerXLAttention,
        decoder=partial(TransformerXLAttention, causal=True),
        source="its segments and its memory are of one sequence",
        traits=Traits(
            training_time="n(N + M)D",
            decoder_state="N + M keys and values",
            sees_every_step=False,
        ),
        flags=(
            Flag(
                name="attention_chunk",
                argument="segment",
                help="steps of a segment, which all see each other (in a decoder: the earlier ones)",
                default=128,
                minimum=1,
            ),
            Flag(
                name="attention_memory",
                argument="memory",
                help="steps before a segment that its steps see; no gradient reaches them",
                default=128,
                minimum=0,
            ),
        ),
    ),
)
