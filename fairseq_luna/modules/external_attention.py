"""External attention: learned slots in place of the steps' keys and values."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops.external_attention import (
    SlotMeans,
    external_attention,
    external_causal_attention,
    external_causal_attention_step,
    initial_slot_means,
)
from .attention_projections import check_slots
from .dropout import Dropout, dropout_probability
from .generation_state import GenerationState, IncrementalState
from .heads import check_heads, merge_heads, split_heads
from .masks import check_mask
from .projection import Projections


class ExternalProjections(nn.Module):
    """The parameters of external attention (arXiv 2105.02358): one projection, and slots that all heads share.

    Steps meet only in the sums that normalise the weights of the slots. These sums cancel what is added to a slot's
    score at all steps: neither queries nor the slots' keys have a bias. That of the values is a part of each slot.

    Args:
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        num_slots: S.
        dropout: dropout probability of the weights.
        bias: the output projection has a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``num_slots`` is below 1.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        num_slots: int = 64,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_heads(num_heads, embed_dim)
        check_slots(num_slots)
        self.num_heads, self.num_slots = num_heads, num_slots
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.q_proj = new.input(bias=False)
        self.out_proj = new.output()
        # The bounds of torch's linear maps, which the authors use here.
        size = embed_dim // num_heads
        self.keys = nn.Parameter(torch.empty(num_slots, size).uniform_(-(size**-0.5), size**-0.5))
        self.values = nn.Parameter(torch.empty(num_slots, size).uniform_(-(num_slots**-0.5), num_slots**-0.5))

    def queries(self, x: Tensor) -> Tensor:
        """``x (T, B, C)`` to ``(B, H, T, D)``."""
        return split_heads(self.q_proj(x), self.num_heads)

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)

    def output(self, y: Tensor) -> Tensor:
        """``(B, H, T, D)`` to ``(T, B, C)``."""
        return self.out_proj(merge_heads(y))


class ExternalAttention(ExternalProjections):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`ExternalProjections`."""

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Read the slots from each step of ``x``.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.

        Returns:
            ``(T, B, C)``; if a sentence is all padding, the bias of the output projection.
        """
        check_mask(padding_mask, x)
        q, dropout_p = self.queries(x), self.dropout_p()
        return self.output(
            external_attention(q, self.keys, self.values, padding_mask=padding_mask, dropout_p=dropout_p)
        )


class ExternalCausalAttention(GenerationState, ExternalProjections):
    """Causal self-attention for decoders, which the paper does not have. Arguments: :class:`ExternalProjections`.

    The state has S numbers for each head, and a count. Padded steps are not seen, at any position.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Read the slots from each step of ``x``, relative to it and the earlier ones.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``.
        """
        check_mask(padding_mask, x)
        arguments = self.queries(x), self.keys, self.values
        options: dict[str, Any] = {"padding_mask": padding_mask, "dropout_p": self.dropout_p()}
        if incremental_state is None:
            return self.output(external_causal_attention(*arguments, **options))
        saved = self.load_state(incremental_state)
        state = initial_slot_means(*arguments[:2]) if saved is None else SlotMeans(**saved)
        y, state = external_causal_attention_step(*arguments, state, **options)
        self.save_state(incremental_state, state._asdict())
        return self.output(y)
