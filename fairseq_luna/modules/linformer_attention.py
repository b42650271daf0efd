"""Linformer, for the encoder and for the attention to the source."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..ops.linformer_attention import linformer_attention, linformer_slots, linformer_weights
from ..ops.softmax_attention import softmax_attention
from ..usage_error import CheckpointMismatch
from .attention_projections import AttentionProjections, NamedArguments, check_slots
from .choices import check_choice
from .generation_state import GenerationState, IncrementalState
from .heads import beams_apart, beams_of
from .masks import check_mask


class LinformerProjections(NamedArguments, AttentionProjections):
    """The parameters of Linformer (arXiv 2006.04768): every slot is a weighted sum of all positions, for all heads.

    Args:
        num_slots: L.
        max_positions: the longest sequence, which the weights of the sums limit.
        share: "none": sums of keys and of values have their own weights; "kv": they share them; "layers": so do all
            modules of a stack, after :func:`share_sums`.
        options: further arguments of :class:`.AttentionProjections`.

    Raises:
        UsageError: if a number or a choice cannot be used.
    """

    def __init__(self, *, num_slots: int = 128, max_positions: int = 1024, share: str = "none", **options: Any) -> None:
        super().__init__(**options)
        check_slots(num_slots)
        check_choice("share", share, ("none", "kv", "layers"))
        self.num_slots, self.max_positions, self.share = num_slots, max_positions, share
        self.key_sums = self._sums()
        self.value_sums = self._sums() if share == "none" else None

    def _sums(self) -> nn.Parameter:
        # The variance is that of the random projections in the paper's proof: sums keep lengths and angles.
        return nn.Parameter(torch.randn(self.num_slots, self.max_positions) * self.num_slots**-0.5)

    def sums(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the sums of keys and of values, E and F, each ``(L, N)``, for a sequence ``x (T, B, C)``.

        Raises:
            UsageError: if the sequence is longer than they are.
        """
        self.check_length(len(x), self.max_positions, attention="linformer")
        return self.key_sums, self.key_sums if self.value_sums is None else self.value_sums

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Called by fairseq before it loads ``state_dict``, where this module is ``name``.

        Raises:
            CheckpointMismatch: the layers share their sums here, but not in the checkpoint.
        """
        side = name.split(".")[0]
        given = [x for key, x in state_dict.items() if key.startswith(side) and key.endswith(".key_sums")]
        if self.share == "layers" and not all(x.equal(given[0]) for x in given):
            raise CheckpointMismatch(
                f"does not fit the model: its layers do not share their sums. Check {self.name_of('share')}"
            )


Stack = TypeVar("Stack", bound=nn.Module)


def share_sums(stack: Stack) -> Stack:
    """Give all Linformer attentions in ``stack`` that share between layers the weights of the first; returns it."""
    found = [m for m in stack.modules() if isinstance(m, LinformerProjections) and m.share == "layers"]
    for module in found[1:]:
        module.key_sums = found[0].key_sums
    return stack


class LinformerAttention(LinformerProjections):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`LinformerProjections`."""

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to the slots.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.

        Returns:
            ``(T, B, C)``; if a sentence is all padding, the bias of the output projection.
        """
        check_mask(padding_mask, x)
        q, k, v = self.queries_keys_values(x)
        y = linformer_attention(q, k, v, *self.sums(x), padding_mask=padding_mask, dropout_p=self.dropout_p())
        return self.output(y)


class LinformerSourceAttention(GenerationState, LinformerProjections):
    """Attention of a decoder to the encoder's output, which it reads once. Arguments: :class:`LinformerProjections`.

    What it keeps for generation does not depend on the length of the source, and a sentence's beams share it: 2 L D
    numbers for each head.
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
        """Attend from each step of ``x`` to the slots of the source.

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, C_source)``; in generation B may be a fraction of that of ``x``, and after the first step
                it may be None unless weights are asked for.
            source_padding_mask: ``(B, S)`` bool, True = padding: the step is not seen.
            incremental_state: fairseq's state for generation.
            need_weights: also return the weights, which are quadratic.

        Returns:
            ``(T, B, C)``, and the weights of the source ``(H, B, T, S)`` before dropout, or None; a weight may be
            negative, and they need not sum to 1.
        """
        check_mask(source_padding_mask, source, "source_padding_mask")
        slots = self.load_constants(incremental_state)
        if slots is None:
            assert source is not None, "the first step needs the source"
            k, v = self.heads_of(self.k_proj, source), self.heads_of(self.v_proj, source)
            k, v = linformer_slots(k, v, *self.sums(source), padding_mask=source_padding_mask)
            slots = {"key": k, "value": v}
            if incremental_state is not None:
                self.save_constants(incremental_state, slots, beams=beams_of(x.shape[1], source.shape[1]))
        beams = beams_of(x.shape[1], slots["key"].shape[0])
        q = self.heads_of(self.q_proj, x, beams=beams)
        y, weights = softmax_attention(
            q, slots["key"], slots["value"], dropout_p=self.dropout_p(), need_weights=need_weights
        )
        if weights is not None:
            assert source is not None, "weights need the source"
            _, value_sums = self.sums(source)
            mask = source_padding_mask
            if mask is not None:
                mask = mask.repeat_interleave(beams_of(x.shape[1], len(mask)), dim=0)
            weights = linformer_weights(beams_apart(weights, beams), value_sums, len(source), padding_mask=mask)
            weights = weights.transpose(0, 1)
        return self.output(y, beams=beams), weights
