"""Softmax attention, fairseq's own, called as the other attentions of this package are."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..ops.once_per_batch import once_per_batch
from ..ops.softmax_attention import additive_mask
from .generation_state import IncrementalState


class SoftmaxAttention(MultiheadAttention):
    """Attention of every step to every step (arXiv 1706.03762), with fairseq's parameters and numbers.

    Args:
        options: of fairseq's MultiheadAttention: ``embed_dim``, ``num_heads``, ``dropout``, ``bias``, ``q_noise``,
            ``qn_block_size``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(self_attention=True, **options)

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """``x (T, B, C)`` to the same; ``padding_mask (B, T)`` bool, True = padding: the step is not seen."""
        return super().forward(x, x, x, key_padding_mask=padding_mask, need_weights=False)[0]


class SoftmaxCausalAttention(MultiheadAttention):
    """Attention of every step to itself and the earlier ones. Its state grows with each step.

    Arguments are those of :class:`SoftmaxAttention`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(self_attention=True, **options)

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each step to itself and the earlier ones.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps; the first step of a sentence
        must not be padding then.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``.
        """
        steps = x.shape[0]
        saved = self._get_input_buffer(incremental_state)
        past = saved["prev_key"].shape[2] if saved else 0
        mask = None
        if incremental_state is None or steps > 1:
            mask = later_steps(steps, past, x.device)
        if incremental_state is not None and mask is not None:
            mask = additive_mask(mask, like=x)
        return super().forward(
            *(x, x, x),
            key_padding_mask=padding_mask,
            incremental_state=incremental_state,
            need_weights=False,
            attn_mask=mask,
        )[0]


@once_per_batch
def later_steps(steps: int, past: int, device: torch.device) -> Tensor:
    """Which steps are later than each of the newest ``steps``: ``(steps, past + steps)`` bool, for all layers."""
    return torch.ones(steps, past + steps, dtype=torch.bool, device=device).triu(1 + past)


class SoftmaxSourceAttention(MultiheadAttention):
    """Attention of the target's steps to those of the source, the encoder's output.

    In generation the source may have fewer rows than ``x``: one for each sentence, which as many consecutive rows of
    ``x`` read as it has beams. fairseq's class computes this, but reorders such keys only if its ``beam_size`` is set,
    with which it would be wrong outside generation. Here the number of beams is a part of the incremental state.

    Args:
        source_dim: channels of the source.
        options: those of :class:`SoftmaxAttention`.
    """

    def __init__(self, *, source_dim: int, **options: Any) -> None:
        super().__init__(kdim=source_dim, vdim=source_dim, encoder_decoder_attention=True, **options)

    def forward(
        self,
        x: Tensor,
        source: Tensor | None,
        *,
        source_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each step of ``x`` to the source.

        In generation the keys and values of the source are computed at the first step and kept; the source and its
        mask are not read later.

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, source_dim)``; in generation B may be a fraction of that of ``x``.
            source_padding_mask: ``(B, S)`` bool, True = padding: not seen.
            incremental_state: fairseq's state for generation.
            need_weights: also return the weights.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` or None.
        """
        if incremental_state is not None and source is not None and not self._get_input_buffer(incremental_state):
            beams = x.shape[1] // source.shape[1]
            if beams > 1:
                self.set_incremental_state(incremental_state, "beams", {"number": beams})
        return super().forward(
            *(x, source, source),
            key_padding_mask=source_padding_mask,
            incremental_state=incremental_state,
            static_kv=True,
            need_weights=need_weights,
            need_head_weights=need_weights,
        )

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """As in fairseq: nothing is moved unless sentences leave the batch."""
        beams = self.get_incremental_state(incremental_state, "beams")
        self.beam_size = beams["number"] if beams else 1
        try:
            return super().reorder_incremental_state(incremental_state, new_order)
        finally:
            self.beam_size = 1
