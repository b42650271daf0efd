"""Softmax attention to the steps of a pattern: local and top-k attention."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ..ops.pattern_attention import (
    Cache,
    Pattern,
    TopK,
    Window,
    initial_cache,
    pattern_attention,
    pattern_attention_step,
    topk_attention,
)
from ..usage_error import UsageError
from .dropout import dropout_probability
from .generation_state import GenerationState, IncrementalState
from .heads import beams_apart, merge_heads, split_heads
from .projection import Projections, project_together

FLAGS = {"window": "--attention-window", "dilation": "--attention-dilation", "count": "--attention-topk"}


def local(*, window: int = 16) -> Window:
    """The steps up to ``window`` away."""
    return Window(window)


def topk(*, count: int = 8) -> TopK:
    """The steps with the ``count`` largest scores."""
    return TopK(count)


class PatternProjections(nn.Module):
    """The parameters of attention to a pattern: those of softmax attention.

    Args:
        pattern: a function of this file, such as :func:`local`; it decides which attention this is.
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        source_dim: channels of keys and values; None = C.
        dropout: dropout probability of the attention weights.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.
        pattern_options: arguments of ``pattern``.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or an option of the pattern is below 1.
    """

    def __init__(
        self,
        *,
        pattern: Callable[..., Pattern],
        embed_dim: int,
        num_heads: int,
        source_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        **pattern_options: int,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise UsageError(f"--*-attention-heads {num_heads}: must be 1 or more and divide --*-embed-dim {embed_dim}")
        for name, value in pattern_options.items():
            if value < 1:
                raise UsageError(f"{FLAGS[name]} {value}: must be 1 or more")
        self.num_heads = num_heads
        self.pattern = pattern(**pattern_options)
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        of_source = replace(new, size=source_dim or embed_dim)
        self.q_proj = new.input()
        self.k_proj = of_source.input(outputs=embed_dim)
        self.v_proj = of_source.input(outputs=embed_dim)
        self.out_proj = new.output()

    def project(self, x: Tensor, *projections: nn.Module) -> tuple[Tensor, ...]:
        """Projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        return tuple(split_heads(projected, self.num_heads) for projected in project_together(x, *projections))

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)


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
        q, k, v = self.project(x, self.q_proj, self.k_proj, self.v_proj)
        y = pattern_attention(q, k, v, self.pattern, padding_mask=padding_mask, dropout_p=self.dropout_p())
        return self.out_proj(merge_heads(y))


class PatternCausalAttention(GenerationState, PatternProjections):
    """Self-attention of a decoder to the earlier steps of a pattern. Arguments: :class:`PatternProjections`.

    The state is the keys and values of the steps before: of a window, so many of them, otherwise all.
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
        q, k, v = self.project(x, self.q_proj, self.k_proj, self.v_proj)
        options: dict[str, Any] = {"padding_mask": padding_mask, "dropout_p": self.dropout_p()}
        if incremental_state is None:
            y = pattern_attention(q, k, v, self.pattern, causal=True, **options)
        else:
            saved = self.load_state(incremental_state)
            cache = initial_cache(k) if saved is None else Cache(saved["k"], saved["v"], saved.get("steps"))
            y, cache = pattern_attention_step(q, k, v, self.pattern, cache, **options)
            state = {name: tensor for name, tensor in cache._asdict().items() if tensor is not None}
            self.save_state(incremental_state, state)
        return self.out_proj(merge_heads(y))


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
        kept = self.load_constants(incremental_state)
        if kept is None:
            assert source is not None, "the first step needs the source"
            k, v = self.project(source, self.k_proj, self.v_proj)
            kept = {"k": k, "v": v}
            if source_padding_mask is not None:
                kept["padding_mask"] = source_padding_mask
            if incremental_state is not None:
                self.save_constants(incremental_state, kept, beams=x.shape[1] // source.shape[1])
        beams = x.shape[1] // kept["k"].shape[0]
        y, weights = topk_attention(
            *(split_heads(self.q_proj(x), self.num_heads, beams=beams), kept["k"], kept["v"]),
            count=self.pattern.count,
            padding_mask=kept.get("padding_mask"),
            dropout_p=self.dropout_p(),
            need_weights=need_weights,
        )
        if weights is not None:
            weights = (beams_apart(weights, beams) if beams > 1 else weights).transpose(0, 1)
        return self.out_proj(merge_heads(y, beams=beams)), weights
