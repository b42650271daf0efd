"""BP-Transformer's attention (arXiv 1911.04070): near tokens one by one, far tokens as spans of a binary tree.

A step i sees itself and on each side k nodes of each level, where a node of level l is a span of 2^l steps. With u a
node, s a learned query, and p a learned vector of the level, the side and the number of the node::

    k_u, v_u = sum_j a_j k_j, sum_j a_j v_j        a = softmax of s k_j / sqrt(D) over the steps j of the span
    y_i = softmax_u(q_i (k_u + p) / sqrt(D)) v_u

Parameters: the parameters of softmax attention, ``span_query`` (s), ``own_position`` and ``positions`` (p). Differences
from the paper are in the declaration at the end of the file.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.binary_partition_attention import (
    SpanCache,
    binary_partition_attention,
    binary_partition_attention_step,
)
from ..ops.padding import Padding
from ..published import Difference, Published
from .argument_checks import check_positive
from .attention import SelfAttention
from .conversion import Rule, Rules, zero
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues

# Levels with position vectors of their own; higher levels share the vectors of the last. With 4 nodes on each
# side of a level they reach 120 steps far.
POSITION_LEVELS = 5


class BinaryPartitionAttention(QueriesKeysValues, SelfAttention):
    """Self-attention to the spans of a binary tree, O(n k log n).

    The state of a decoder is 2 k + 2 keys and values on each of 16 levels. At padding the result is the bias of the
    output projection.

    Args:
        nodes: k, the nodes that a step sees of each level on each side.
        options: arguments of :class:`.QueriesKeysValues` and :class:`.SelfAttention`.

    Raises:
        UsageError: if ``nodes`` is below 1, or a base class refuses an option.
    """

    State = SpanCache
    conversion_rules: ClassVar[Rules] = {
        "span_query": Rule(start=zero),
        "own_position": Rule(start=zero),
        "positions": Rule(start=zero),
    }

    def __init__(self, *, nodes: int = 4, **options: Any) -> None:
        super().__init__(**options)
        check_positive(nodes=nodes)
        self.nodes = nodes
        sides = 1 if self.causal else 2
        self.span_query = nn.Parameter(torch.zeros(self.num_heads, self.head_size))
        self.own_position = nn.Parameter(torch.randn(self.head_size) * 0.02)
        self.positions = nn.Parameter(torch.randn(POSITION_LEVELS, sides, nodes, self.head_size) * 0.02)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        arguments = *self.queries_keys_values(x), self.span_query, self.own_position, self.positions
        y = binary_partition_attention(*arguments, causal=self.causal, **self.op_options(padding))
        return self.project_output(y)

    def attend_step(self, x: Tensor, padding: Padding, state: SpanCache | None) -> tuple[Tensor, SpanCache]:
        arguments = *self.queries_keys_values(x), self.span_query, self.own_position, self.positions
        y, state = binary_partition_attention_step(*arguments, state, **self.op_options(padding))
        return self.project_output(y), state


ATTENTIONS = (
    Attention(
        name="bp",
        published=Published(
            "arXiv 1911.04070; the authors' BPT, whose graph it has",
            (
                Difference(
                    "vector of a span",
                    "in each layer a weighted mean of its tokens' keys and values, by one learned query of a head",
                    "a state of its own that passes from layer to layer, with attention to its tokens, norms and a"
                    " feed-forward network",
                    "an attention of these layers gets the tokens alone; a query of 0, as at the start, is the mean, as"
                    " in their first layer",
                ),
                Difference(
                    "tokens on each level",
                    "4 nodes on each side, `--attention-nodes`",
                    "1 to 64, 4 or 8 for translation",
                    "theirs for translation",
                ),
                Difference(
                    "levels with vectors for their positions",
                    "5, of 16 levels",
                    "2 to 9, by task; all levels",
                    "one setting for all; spans have at most 32,768 tokens",
                ),
                Difference(
                    "nodes that do not exist at the end of a sentence",
                    "are not seen",
                    "the first node of the next level is seen in their place, by their code",
                    "the paper does not mention it",
                ),
                Difference(
                    "position embeddings",
                    "fairseq's, added to the tokens, beside the relative ones",
                    "the relative ones alone",
                    "one setting for all names; `--no-token-positional-embeddings` leaves them out",
                ),
                Difference("biases", "of queries, keys, values and output", "none", "as fairseq's attention has"),
            ),
        ),
        paper="https://arxiv.org/abs/1911.04070",
        encoder=BinaryPartitionAttention,
        decoder=partial(BinaryPartitionAttention, causal=True),
        source="its spans lie around a step of the same sequence",
        traits=Traits(training_time="nk log n", decoder_state="16(2k + 2) keys and values"),
        flags=(
            Flag(
                name="attention_nodes",
                argument="nodes",
                help="spans of each length that a step sees on each side",
                default=4,
                minimum=1,
            ),
        ),
    ),
)
