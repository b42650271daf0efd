"""External attention (arXiv 2105.02358): learned slots in place of the steps' keys and values.

With S slots of keys M_k and values M_v, each ``(S, D)``, which all heads share::

    a_ts = softmax_t( q_t . M_k[s] )                  over time
    a_ts = a_ts / sum_s a_ts                          over the slots
    y_t  = sum_s a_ts M_v[s],      out = W_o [y of all heads]

Steps meet only in the softmax over time. A decoder's softmax is over the steps so far. Parameters: ``q_proj``,
``out_proj`` (W_o), ``keys`` (M_k) and ``values`` (M_v). Differences from the paper are in the declaration at the end of
the file.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops import external_attention as op
from ..ops.padding import Padding
from ..published import Difference, Published
from .argument_checks import check_positive
from .attention import SelfAttention
from .conversion import Rule, Rules, first_part
from .declaration import Attention, Flag, Traits


class ExternalAttention(SelfAttention):
    """External attention, linear in the length; the state of a decoder has S numbers for each head, and a count.

    The sums that normalize the weights of a slot cancel any number that is added to its score at all steps: neither
    queries nor the slots' keys have a bias. A bias of the values would be a part of each slot. If a sentence is all
    padding, the result is the bias of the output projection.

    Args:
        num_slots: S.
        options: arguments of :class:`.SelfAttention`; only the output projection has a bias.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``num_slots`` is below 1.
    """

    State = op.SlotMeans
    conversion_rules: ClassVar[Rules] = {"keys": Rule(fit=first_part), "values": Rule(fit=first_part)}

    def __init__(self, *, num_slots: int = 64, **options: Any) -> None:
        super().__init__(**options)
        check_positive(num_slots=num_slots)
        self.num_slots = num_slots
        self.q_proj = self.linear.input_projection(bias=False)
        self.out_proj = self.linear.output_projection()
        # The bounds of torch's linear maps, which the authors use here.
        key_bound, value_bound = self.head_size**-0.5, num_slots**-0.5
        self.keys = nn.Parameter(torch.empty(num_slots, self.head_size).uniform_(-key_bound, key_bound))
        self.values = nn.Parameter(torch.empty(num_slots, self.head_size).uniform_(-value_bound, value_bound))

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        attention = op.external_causal_attention if self.causal else op.external_attention
        return self.project_output(attention(*self.queries_and_slots(x), **self.op_options(padding)))

    def attend_step(self, x: Tensor, padding: Padding, state: op.SlotMeans | None) -> tuple[Tensor, op.SlotMeans]:
        y, state = op.external_causal_attention_step(*self.queries_and_slots(x), state, **self.op_options(padding))
        return self.project_output(y), state

    def queries_and_slots(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries of ``x (T, B, C)``, ``(B, H, T, D)``, and the slots' keys and values, each ``(S, D)``."""
        return self.project_heads(self.q_proj, x), self.keys, self.values


ATTENTIONS = (
    Attention(
        name="external",
        published=Published(
            "arXiv 2105.02358; the authors' EANet, whose layers are of images",
            (
                Difference(
                    "channels",
                    "C, in the model's heads",
                    "4 C, in four times as many heads",
                    "as many as in the other attentions",
                ),
                Difference(
                    "biases",
                    "of the output",
                    "of all maps",
                    "a bias of queries or of the slots' keys would have no effect; a slot's values hold theirs",
                ),
                Difference(
                    "normalization over the slots",
                    "exact",
                    "1e-9 is added to the sum",
                    "sums over long texts come near to it; one softmax has no small sums",
                ),
                Difference(
                    "in the decoder",
                    "sums over the steps so far",
                    "encoder only",
                    "a decoder must not see later tokens",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2105.02358",
        encoder=ExternalAttention,
        decoder=partial(ExternalAttention, causal=True),
        source="its slots are learned: it reads no source",
        traits=Traits(training_time="nLD", is_matrix=False),
        flags=(Flag(name="num_slots", argument="num_slots", help="learned slots", default=64, minimum=1),),
    ),
)
