"""Kernel attention, chosen by its feature map: linear, Performer, RFA and efficient attention."""

from typing import Any

from torch import Tensor

from ..ops.kernel_attention import (
    initial_kernel_mean,
    kernel_attention,
    kernel_causal_attention,
    kernel_causal_attention_step,
    kernel_mean_of,
    kernel_weights,
    read_kernel_mean,
)
from ..ops.prefix_attention import PrefixMean
from .feature_maps import FeatureMap
from .generation_state import GenerationState, IncrementalState, ModuleState
from .heads import beams_apart, beams_of
from .kernel_projections import KernelProjections
from .masks import check_mask


class KernelAttention(KernelProjections):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`KernelProjections`."""

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to all of them.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.

        Returns:
            ``(T, B, C)``; if a sentence is all padding, the bias of the output projection.
        """
        check_mask(padding_mask, x)
        y = kernel_attention(
            *self.features_and_values(x),
            normaliser=self.normaliser,
            padding_mask=padding_mask,
            dropout_p=self.dropout_p(),
        )
        return self.output(y)


class KernelCausalAttention(GenerationState, KernelProjections):
    """Causal self-attention for decoders, with a state of constant size. Arguments: :class:`KernelProjections`.

    The state has R (D + 1) numbers for each head, and a count. Padded steps are not seen, at any position.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each step of ``x`` to itself and the earlier ones.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``.
        """
        check_mask(padding_mask, x)
        q, k, v = self.features_and_values(x)
        options: dict[str, Any] = {
            "normaliser": self.normaliser,
            "padding_mask": padding_mask,
            "dropout_p": self.dropout_p(),
        }
        if incremental_state is None:
            return self.output(kernel_causal_attention(q, k, v, **options))
        saved = self.load_state(incremental_state)
        state = initial_kernel_mean(k, v) if saved is None else PrefixMean(**saved)
        y, state = kernel_causal_attention_step(q, k, v, state, **options)
        self.save_state(incremental_state, state._asdict())
        return self.output(y)


class KernelSourceAttention(GenerationState, KernelProjections):
    """Attention of a decoder to the encoder's output, which it reads once. Arguments: :class:`KernelProjections`.

    What it keeps of a sentence for generation does not depend on its length, and all beams share it: R (D + 1) numbers
    for each head, and a count. Only for the weights it keeps the features of all keys too.
    """

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

        In generation the source and its mask are read at the first step and at the first with ``need_weights``.

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, C_source)``; in generation B may be a fraction of that of ``x``, whose consecutive rows are
                then the beams of a sentence.
            source_padding_mask: ``(B, S)`` bool, True = padding: the step is not seen.
            incremental_state: fairseq's state for generation.
            need_weights: also return the weights, which are quadratic.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` before dropout, or None. With RFA's features weights may be
            negative, and they sum to -1 to 1 (``normaliser`` "bounded"); the others are positive and sum to 1.
        """
        check_mask(source_padding_mask, source, "source_padding_mask")
        features = self.feature_map()
        kept = self.load_constants(incremental_state)
        if kept is None or (need_weights and "keys" not in kept):
            assert source is not None, "the first step, and the first with weights, need the source"
            kept = self.read(source, source_padding_mask, features, keep_keys=need_weights)
            if incremental_state is not None:
                self.save_constants(incremental_state, kept, beams=beams_of(x.shape[1], source.shape[1]))
        state = PrefixMean(kept["mean"], kept["steps"])
        beams = beams_of(x.shape[1], state.steps.shape[0])
        projected = self.heads_of(self.q_proj, x, beams=beams)
        q = features.of_queries(projected)
        y = read_kernel_mean(q, state, normaliser=self.normaliser).to(projected.dtype)
        weights = None
        if need_weights:
            weights = kernel_weights(q, kept["keys"], state, normaliser=self.normaliser).to(projected.dtype)
            weights = beams_apart(weights, beams).transpose(0, 1)
        return self.output(y, beams=beams), weights

    def read(
        self, source: Tensor, padding_mask: Tensor | None, features: FeatureMap, *, keep_keys: bool
    ) -> ModuleState:
        """All that queries need of ``source (S, B, C_source)``; the features of its keys only for the weights."""
        k = features.of_keys(self.heads_of(self.k_proj, source))
        v = self.heads_of(self.v_proj, source)
        mean = kernel_mean_of(k, v, padding_mask=padding_mask, dropout_p=self.dropout_p())._asdict()
        if not keep_keys:
            return mean
        return mean | {"keys": k if padding_mask is None else k.masked_fill(padding_mask[:, None, :, None], 0)}
