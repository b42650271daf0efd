"""Softmax attention, with the parameters of fairseq's and its numbers, for encoder, decoder and source."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops.softmax_attention import additive_mask, mask_of_scores, scaled_dot_product_attention, softmax_attention
from .attention_projections import AttentionProjections
from .generation_state import GenerationState, IncrementalState, ModuleState
from .heads import beams_apart, beams_of, split_heads
from .masks import check_mask
from .projection import INPUT_GAIN, Projections, project_together


class SoftmaxProjections(AttentionProjections):
    """The parameters of softmax attention: those of fairseq's MultiheadAttention, in its order.

    Args:
        options: those of :class:`.AttentionProjections`; dropout is of the attention weights.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    def create_projections(self, new: Projections, *, source_dim: int, key_bias: bool) -> None:
        """fairseq's numbers from the same random ones: all maps are made first, then each is filled."""
        maps = {
            "k_proj": nn.Linear(source_dim, new.size, bias=key_bias),
            "v_proj": nn.Linear(source_dim, new.size, bias=new.bias),
            "q_proj": nn.Linear(new.size, new.size, bias=new.bias),
            "out_proj": nn.Linear(new.size, new.size, bias=new.bias),
        }
        gain = INPUT_GAIN if source_dim == new.size else 1.0
        for name, linear in maps.items():
            nn.init.xavier_uniform_(linear.weight, gain=1.0 if name == "out_proj" else gain)
            setattr(self, name, new.noisy(linear))
        if new.bias:
            nn.init.zeros_(maps["out_proj"].bias)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (split_heads(y, self.num_heads) for y in project_together(x, self.q_proj, self.k_proj, self.v_proj))
        return q, k, v


class SoftmaxAttention(SoftmaxProjections):
    """Attention of every step to every step (arXiv 1706.03762). Arguments: :class:`SoftmaxProjections`."""

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """``x (T, B, C)`` to the same; ``padding_mask (B, T)`` bool, True = padding: the step is not seen."""
        check_mask(padding_mask, x)
        q, k, v = self.queries_keys_values(x)
        y, _ = softmax_attention(q, k, v, padding_mask=padding_mask, dropout_p=self.dropout_p())
        return self.output(y)


class SoftmaxCausalAttention(GenerationState, SoftmaxProjections):
    """Attention of every step to itself and the earlier ones. Arguments: :class:`SoftmaxProjections`.

    Its state, the keys and values, grows with each step.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each step to itself and the earlier ones.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``; the bias of the output projection where no step is seen.
        """
        check_mask(padding_mask, x)
        q, k, v = self.queries_keys_values(x)
        saved = self.load_state(incremental_state)
        if saved is not None:
            padding_mask = joined_mask(saved.get("padding_mask"), padding_mask, saved["key"], k)
            k, v = torch.cat([saved["key"], k], dim=2), torch.cat([saved["value"], v], dim=2)
        if incremental_state is not None:
            mask = {} if padding_mask is None else {"padding_mask": padding_mask}
            self.save_state(incremental_state, {"key": k, "value": v} | mask)
        return self.output(causal_softmax_attention(q, k, v, padding_mask=padding_mask, dropout_p=self.dropout_p()))


def causal_softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding_mask: Tensor | None, dropout_p: float
) -> Tensor:
    """Attention of the newest steps ``q (B, H, T, D)`` to the earlier ones of ``k`` and ``v (B, H, S, D)``."""
    steps, seen = q.shape[2], k.shape[2]
    if padding_mask is None and steps == seen:
        return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    bias = None
    if steps > 1:
        later = torch.ones(steps, seen, dtype=torch.bool, device=q.device).triu(1 + seen - steps)
        bias = additive_mask(later, like=q)
    return softmax_attention(q, k, v, padding_mask=padding_mask, bias=bias, dropout_p=dropout_p)[0]


def joined_mask(before: Tensor | None, now: Tensor | None, past_keys: Tensor, keys: Tensor) -> Tensor | None:
    """The mask ``(B, S + T)`` of the steps before ``(B, S)`` and now ``(B, T)``, or None if neither is padded."""
    if before is None and now is None:
        return None
    masks = ((before, past_keys), (now, keys))
    return torch.cat([k.new_zeros(len(k), k.shape[2], dtype=torch.bool) if m is None else m for m, k in masks], dim=1)


class SoftmaxSourceAttention(GenerationState, SoftmaxProjections):
    """Attention of the target's steps to those of the source, the encoder's output.

    Args:
        source_dim: channels of the source.
        options: those of :class:`SoftmaxProjections`.
    """

    def __init__(self, *, source_dim: int, **options: Any) -> None:
        super().__init__(source_dim=source_dim, **options)

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
        check_mask(source_padding_mask, source, "source_padding_mask")
        read = self.load_constants(incremental_state)
        if read is None:
            assert source is not None, "the first step needs the source"
            read = self.keys_and_values(source, source_padding_mask)
            if incremental_state is not None:
                self.save_constants(incremental_state, read, beams=beams_of(x.shape[1], source.shape[1]))
        beams = beams_of(x.shape[1], read["key"].shape[0])
        out, weights = softmax_attention(
            self.heads_of(self.q_proj, x, beams=beams),
            read["key"],
            read["value"],
            padding_mask=read.get("padding_mask"),
            dropout_p=self.dropout_p(),
            need_weights=need_weights,
        )
        if weights is not None:
            weights = (beams_apart(weights, beams) if beams > 1 else weights).transpose(0, 1)
        return self.output(out, beams=beams), weights

    def keys_and_values(self, source: Tensor, padding_mask: Tensor | None) -> ModuleState:
        """Keys and values ``(B, H, S, D)`` of the source ``(S, B, C)``, and the mask ``(B, S)`` to add to scores."""
        projected = project_together(source, self.k_proj, self.v_proj)
        key, value = (split_heads(x, self.num_heads) for x in projected)
        if padding_mask is None:
            return {"key": key, "value": value}
        return {"key": key, "value": value, "padding_mask": mask_of_scores(padding_mask, key.dtype)}
