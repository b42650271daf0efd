"""Softmax attention, fairseq's own, called as the other attentions of this package are."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ..ops.once_per_batch import once_per_batch
from ..ops.softmax_attention import additive_mask, softmax_attention
from .dropout import dropout_probability
from .generation_state import GenerationState, IncrementalState, ModuleState
from .heads import beams_apart, merge_heads, split_heads
from .projection import project_together


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


class SoftmaxSourceAttention(GenerationState, MultiheadAttention):
    """Attention of the target's steps to those of the source, the encoder's output.

    The parameters are those of fairseq's class, and its numbers; computed by torch's fused attention.

    Args:
        source_dim: channels of the source.
        options: those of :class:`SoftmaxAttention`.
    """

    num_heads: int
    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    out_proj: nn.Module
    dropout_module: FairseqDropout

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
        mask are not read later. There the source may have fewer rows than ``x``: one for each sentence, which as many
        consecutive rows of ``x`` read as it has beams.

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, source_dim)``; in generation B may be a fraction of that of ``x``.
            source_padding_mask: ``(B, S)`` bool, True = padding: not seen.
            incremental_state: fairseq's state for generation.
            need_weights: also return the weights.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` or None.
        """
        read = self.load_constants(incremental_state)
        if read is None:
            assert source is not None, "the first step needs the source"
            read = self.keys_and_values(source, source_padding_mask)
            if incremental_state is not None:
                self.save_constants(incremental_state, read, beams=x.shape[1] // source.shape[1])
        beams = x.shape[1] // read["key"].shape[0]
        out, weights = softmax_attention(
            split_heads(self.q_proj(x), self.num_heads, beams=beams),
            read["key"],
            read["value"],
            padding_mask=read.get("padding_mask"),
            dropout_p=dropout_probability(self.dropout_module),
            need_weights=need_weights,
        )
        if weights is not None:
            weights = (beams_apart(weights, beams) if beams > 1 else weights).transpose(0, 1)
        return self.out_proj(merge_heads(out, beams=beams)), weights

    def keys_and_values(self, source: Tensor, padding_mask: Tensor | None) -> ModuleState:
        """Keys and values ``(B, H, S, D)`` of the source ``(S, B, C)``, and the mask ``(B, S)`` to add to scores."""
        projected = project_together(source, self.k_proj, self.v_proj)
        key, value = (split_heads(x, self.num_heads) for x in projected)
        if padding_mask is None:
            return {"key": key, "value": value}
        return {"key": key, "value": value, "padding_mask": mask_for_all_layers(padding_mask, key.dtype)}


@once_per_batch
def mask_for_all_layers(padding_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """:func:`.additive_mask` in ``dtype``."""
    return additive_mask(padding_mask, like=padding_mask.new_empty(0, dtype=dtype))
