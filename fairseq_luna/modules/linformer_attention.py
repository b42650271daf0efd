"""Linformer, for the encoder and for the attention to the source."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops.linformer_attention import linformer_attention, linformer_slots, linformer_weights
from ..ops.softmax_attention import softmax_attention
from ..published import Difference, Published
from .attention import EncoderAttention, SourceAttention
from .checks import NamedArguments, check_choice, check_positive
from .generation_state import ModuleState
from .multihead import QueriesKeysValues, mask_of

PUBLISHED = {
    "linformer": Published(
        "arXiv 2006.04768; the Nystromformer authors' implementation",
        (
            Difference(
                "weights of the sums",
                "one matrix for all heads; keys and values have their own",
                "a matrix for each head, which keys, values and all layers share",
                "the paper tries several ways; `--linformer-share` chooses what is shared",
            ),
            Difference(
                "their start",
                "normal, with a deviation of 1/sqrt(slots)",
                "normal, with a deviation of 0.02",
                "sums keep lengths and angles, as in the paper's proof",
            ),
            Difference(
                "positions of the weights",
                "of the real words of a sentence",
                "of the batch, with padding",
                "a sentence has the same result in every batch",
            ),
        ),
    )
}


class LinformerProjections(NamedArguments, QueriesKeysValues):
    """The parameters of Linformer (arXiv 2006.04768): every slot is a weighted sum of all positions, for all heads.

    Args:
        num_slots: L.
        max_positions: the longest sequence, which the weights of the sums limit.
        share: "none": sums of keys and of values have their own weights; "kv": they share them; "layers": so do all
            layers of a stack, to which a model gives ``key_sums`` of the first.
        options: further arguments of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if a number or a choice cannot be used.
    """

    def __init__(self, *, num_slots: int = 128, max_positions: int = 1024, share: str = "none", **options: Any) -> None:
        super().__init__(**options)
        check_positive(num_slots=num_slots)
        check_choice("share", share, ("none", "kv", "layers"))
        self.num_slots, self.max_positions, self.share = num_slots, max_positions, share
        self.key_sums = self._sums()
        self.value_sums = self._sums() if share == "none" else None

    def _sums(self) -> nn.Parameter:
        # The variance is that of the random projections in the paper's proof: sums keep lengths and angles.
        return nn.Parameter(torch.randn(self.num_slots, self.max_positions) * self.num_slots**-0.5)

    def sums(self, steps: int) -> tuple[Tensor, Tensor]:
        """The weights of the sums of keys and of values, E and F, each ``(L, N)``, for a sequence of ``steps``.

        Raises:
            UsageError: if the sequence is longer than they are.
        """
        self.check_length(steps, self.max_positions, attention="linformer")
        return self.key_sums, self.key_sums if self.value_sums is None else self.value_sums


class LinformerAttention(LinformerProjections, EncoderAttention):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`LinformerProjections`.

    If a sentence is all padding, the result is the bias of the output projection.
    """

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        return self.output(linformer_attention(q, k, v, *self.sums(len(x)), **self.options(padding_mask)))


class LinformerSourceAttention(LinformerProjections, SourceAttention):
    """Attention of a decoder to the encoder's output. Arguments: :class:`LinformerProjections`.

    What it keeps for generation does not depend on the length of the source: 2 L D numbers for each head. Only for the
    weights it keeps the mask too. A weight may be negative, and they need not sum to 1.
    """

    kept_for_weights = "padding_mask"

    def read(self, source: Tensor, padding_mask: Tensor | None, *, need_weights: bool) -> ModuleState:
        k, v = self.heads_of(self.k_proj, source), self.heads_of(self.v_proj, source)
        k, v = linformer_slots(k, v, *self.sums(len(source)), padding_mask=padding_mask)
        mask = {"padding_mask": mask_of(source, padding_mask)} if need_weights else {}
        return {"key": k, "value": v, **mask}

    def attend_to(self, q: Tensor, kept: ModuleState, *, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        y, weights = softmax_attention(
            q, kept["key"], kept["value"], dropout_p=self.dropout_p(), need_weights=need_weights
        )
        if weights is None:
            return y, None
        mask = kept["padding_mask"]
        _, value_sums = self.sums(mask.shape[1])
        return y, linformer_weights(weights, value_sums, mask.shape[1], padding_mask=mask)
