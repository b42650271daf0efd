"""Star-Transformer's attention (arXiv 1902.09113): each step sees its neighbors and a relay, which sees all steps.

With m the mean of the steps, and separate projections for the relay::

    r = W_ro softmax_j(W_rq m . W_rk z_j / sqrt(D)) W_rv z_j          z: m and all steps x
    y_i = softmax_u(q_i k_u / sqrt(D)) v_u                            u: steps i - 1, i, i + 1, and the relay r

Parameters: the parameters of softmax attention, and ``relay_q_proj``, ``relay_k_proj``, ``relay_v_proj``,
``relay_out_proj`` (W_r...). Differences from the paper are in the declaration at the end of the file.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.masked_softmax import masked_mean
from ..ops.padding import Padding
from ..ops.softmax_attention import softmax_attention
from ..ops.star_attention import star_attention
from ..published import Difference, Published
from .attention import SelfAttention
from .conversion import Rule, Rules
from .declaration import Attention, Traits
from .multihead import QueriesKeysValues, merge_heads, padding_of


class StarAttention(QueriesKeysValues, SelfAttention):
    """An encoder's attention to the neighbors of a step, itself and a relay, O(n).

    At padding the result is the bias of the output projection.

    Args:
        options: arguments of :class:`.QueriesKeysValues` and :class:`.SelfAttention`.

    Raises:
        UsageError: if a base class refuses an option.
    """

    conversion_rules: ClassVar[Rules] = {
        "relay_q_proj": Rule(("q_proj",)),
        "relay_k_proj": Rule(("k_proj",)),
        "relay_v_proj": Rule(("v_proj",)),
        "relay_out_proj": Rule(("out_proj",)),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.relay_q_proj = self.linear.input_projection()
        self.relay_k_proj = self.linear.input_projection()
        self.relay_v_proj = self.linear.input_projection()
        self.relay_out_proj = self.linear.output_projection()

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        mean = masked_mean(x, padding_of(x, padding).existing_mask)[None]
        relay = self.relay(mean, x, padding)
        relay_k, relay_v = (self.project_heads(projection, relay) for projection in (self.k_proj, self.v_proj))
        y = star_attention(*self.queries_keys_values(x), relay_k, relay_v, **self.op_options(padding))
        return self.project_output(y)

    def relay(self, before: Tensor, x: Tensor, padding: Padding) -> Tensor:
        """The relay ``(1, B, C)`` that sees the relay ``before (1, B, C)`` and the steps ``x (T, B, C)``."""
        padding = Padding().followed_by(padding, steps=1, others=x.shape[0], like=x)
        y, _ = softmax_attention(
            self.project_heads(self.relay_q_proj, before),
            # Not the projection of a cat with x: inductor of torch 2.6 overwrites x there (docs/reliability.md).
            *(
                torch.cat([self.project_heads(projection, steps) for steps in (before, x)], dim=2)
                for projection in (self.relay_k_proj, self.relay_v_proj)
            ),
            **self.op_options(padding),
        )
        return self.relay_out_proj(merge_heads(y))


ATTENTIONS = (
    Attention(
        name="star",
        published=Published(
            "arXiv 1902.09113; the authors' fastNLP",
            (
                Difference(
                    "relay",
                    "of each layer, from the mean and the tokens that the layer gets; then the tokens see it",
                    "passes from layer to layer, starting as the mean; a layer's tokens see the relay of the layer"
                    " before",
                    "an attention of these layers gets the tokens alone",
                ),
                Difference(
                    "embedding of a token",
                    "in the residual connection",
                    "also a key and a value of each layer",
                    "an attention of these layers gets the tokens alone",
                ),
                Difference(
                    "after an attention",
                    "fairseq's residual connection, norm and feed-forward network",
                    "a leaky ReLU of the tokens and of the relay",
                    "only the attention is replaced",
                ),
                Difference(
                    "neighbors of the first and of the last token",
                    "one each",
                    "one each, and a key and a value of zeros, in the code",
                    "a token beside padding would have them or not",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/1902.09113",
        encoder=StarAttention,
        decoder="its relay is made of all steps, later ones too",
        source="its neighbors are of one sequence",
        traits=Traits(training_time="nD", decoder_state="", is_matrix=False),
    ),
)
