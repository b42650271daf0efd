"""External attention: learned slots in place of the steps' keys and values."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops import external_attention as op
from ..ops.padding import Padding
from ..published import Difference, Published
from .attention import CausalAttention, EncoderAttention
from .checks import check_positive
from .conversion import Rule, Rules, first_part
from .declaration import Attention, Flag, Traits
from .multihead import Multihead


class ExternalProjections(Multihead):
    """The parameters of external attention (arXiv 2105.02358): one projection, and slots that all heads share.

    Steps meet only in the sums that normalise the weights of the slots. These sums cancel what is added to a slot's
    score at all steps: neither queries nor the slots' keys have a bias. That of the values is a part of each slot.

    Args:
        num_slots: S.
        options: those of :class:`.Multihead`; only the output projection has a bias.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``num_slots`` is below 1.
    """

    conversion_rules: ClassVar[Rules] = {"keys": Rule(fit=first_part), "values": Rule(fit=first_part)}

    def __init__(self, *, num_slots: int = 64, **options: Any) -> None:
        super().__init__(**options)
        check_positive(num_slots=num_slots)
        self.num_slots = num_slots
        self.q_proj = self.new.input(bias=False)
        self.out_proj = self.new.output()
        # The bounds of torch's linear maps, which the authors use here.
        of_keys, of_values = self.head_size**-0.5, num_slots**-0.5
        self.keys = nn.Parameter(torch.empty(num_slots, self.head_size).uniform_(-of_keys, of_keys))
        self.values = nn.Parameter(torch.empty(num_slots, self.head_size).uniform_(-of_values, of_values))

    def arguments(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries of ``x (T, B, C)``, ``(B, H, T, D)``, and the slots' keys and values, each ``(S, D)``."""
        return self.heads_of(self.q_proj, x), self.keys, self.values


class ExternalAttention(ExternalProjections, EncoderAttention):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`ExternalProjections`.

    If a sentence is all padding, the result is the bias of the output projection.
    """

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.output(op.external_attention(*self.arguments(x), **self.options(padding)))


class ExternalCausalAttention(ExternalProjections, CausalAttention):
    """Causal self-attention for decoders, which the paper does not have. Arguments: :class:`ExternalProjections`.

    The state has S numbers for each head, and a count.
    """

    State = op.SlotMeans

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.output(op.external_causal_attention(*self.arguments(x), **self.options(padding)))

    def attend_step(self, x: Tensor, padding: Padding, state: op.SlotMeans | None) -> tuple[Tensor, op.SlotMeans]:
        y, state = op.external_causal_attention_step(*self.arguments(x), state, **self.options(padding))
        return self.output(y), state


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
                    "normalisation over the slots",
                    "exact",
                    "1e-9 is added to the sum",
                    "sums over long texts come near to it; one softmax has no small sums",
                ),
                Difference(
                    "in the decoder",
                    "sums over the steps so far",
                    "encoder only",
                    "a decoder must not see later words",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2105.02358",
        encoder=ExternalAttention,
        decoder=ExternalCausalAttention,
        source="its slots are learned: it reads no source",
        traits=Traits(training_time="nLD", is_matrix=False),
        flags=(Flag(name="num_slots", argument="num_slots", help="learned slots", default=64, minimum=1),),
    ),
)
