"""Softmax attention to the steps of a pattern: local, top-k and sparse attention; with Longformer's in decoders."""

from typing import Any

from torch import Tensor

from ..ops.pattern_attention import (
    Cache,
    TopK,
    initial_cache,
    pattern_attention,
    pattern_attention_step,
    topk_attention,
)
from .generation_state import GenerationState, IncrementalState
from .heads import beams_apart, beams_of
from .masks import check_mask
from .pattern_projections import PatternProjections


class PatternAttention(PatternProjections):
    """Self-attention of an encoder to the steps of a pattern. Arguments: :class:`PatternProjections`."""

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to those of its pattern.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.
        """
        check_mask(padding_mask, x)
        return self.output(self.attend(x, padding_mask))

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """What the output projection gets, ``(B, H, T, D)``."""
        q, k, v = self.queries_keys_values(x)
        return pattern_attention(q, k, v, self.pattern, padding_mask=padding_mask, dropout_p=self.dropout_p())


class PatternCausalAttention(GenerationState, PatternProjections):
    """Self-attention of a decoder to the earlier steps of a pattern. Arguments: :class:`PatternProjections`.

    The state is the keys and values of the steps before that a later step can see: for top-k attention all, as for
    sparse attention in a batch with padding or in an exported model.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each step of ``x`` to itself and the earlier ones of its pattern.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.
        """
        check_mask(padding_mask, x)
        q, k, v = self.queries_keys_values(x)
        options: dict[str, Any] = {"padding_mask": padding_mask, "dropout_p": self.dropout_p()}
        if incremental_state is None:
            y = pattern_attention(q, k, v, self.pattern, causal=True, **options)
        else:
            saved = self.load_state(incremental_state)
            cache = initial_cache(k)
            if saved is not None:
                cache = Cache(saved["k"], saved["v"], *(saved.get(name) for name in Cache._fields[2:]))
            y, cache = pattern_attention_step(q, k, v, self.pattern, cache, **options)
            state = {name: tensor for name, tensor in cache._asdict().items() if tensor is not None}
            self.save_state(incremental_state, state)
        return self.output(y)


class TopKSourceAttention(GenerationState, PatternProjections):
    """Attention of a decoder to the steps of the source with the largest scores.

    Arguments: :class:`PatternProjections`, with the pattern :func:`topk`.
    """

    pattern: TopK

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

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, C_source)``. In generation it is read at the first step and may be None later, and B may
                be a fraction of that of ``x``: as many consecutive rows of ``x`` read one of it as it has beams.
            source_padding_mask: ``(B, S)`` bool, True = padding: not seen. In generation it is read with the source.
            incremental_state: fairseq's state for generation.
            need_weights: also return the weights.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` before dropout, or None.
        """
        check_mask(source_padding_mask, source, "source_padding_mask")
        kept = self.load_constants(incremental_state)
        if kept is None:
            assert source is not None, "the first step needs the source"
            kept = {"k": self.heads_of(self.k_proj, source), "v": self.heads_of(self.v_proj, source)}
            if source_padding_mask is not None:
                kept["padding_mask"] = source_padding_mask
            if incremental_state is not None:
                self.save_constants(incremental_state, kept, beams=beams_of(x.shape[1], source.shape[1]))
        beams = beams_of(x.shape[1], kept["k"].shape[0])
        y, weights = topk_attention(
            *(self.heads_of(self.q_proj, x, beams=beams), kept["k"], kept["v"]),
            count=self.pattern.count,
            padding_mask=kept.get("padding_mask"),
            dropout_p=self.dropout_p(),
            need_weights=need_weights,
        )
        if weights is not None:
            weights = (beams_apart(weights, beams) if beams > 1 else weights).transpose(0, 1)
        return self.output(y, beams=beams), weights
