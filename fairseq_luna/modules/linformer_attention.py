"""Linformer (arXiv 2006.04768): softmax attention to slots, which are learned sums over all positions.

With learned sums E and F, each ``(L, N)`` for sequences of up to N steps, the same for all heads::

    Y = softmax( q (E k)^T / sqrt(D) ) F v,      out = W_o [Y of all heads]

Parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj`` (W_o), ``key_sums`` (E) and ``value_sums`` (F). A decoder's
self-attention cannot have it: the sums include later positions. Differences from the paper are in the declaration at
the end of the file.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..ops.linformer_attention import linformer_attention, linformer_slots, linformer_weights
from ..ops.padding import Padding
from ..ops.softmax_attention import softmax_attention
from ..published import Difference, Published
from .argument_checks import NamedArguments, check_choice, check_positive
from .attention import CrossAttention, SelfAttention
from .conversion import Rule, Rules, first_part
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues, padding_of

SHARE_CHOICES = ("none", "kv", "layers")


class LinformerProjections(NamedArguments, QueriesKeysValues):
    """The parameters of Linformer.

    Args:
        num_slots: L.
        max_positions: N, the longest sequence, which the weights of the sums limit.
        share: "none": sums of keys and of values have their own weights; "kv": they share them; "layers": so do all
            layers of a stack, to which a model gives ``key_sums`` of the first.
        options: arguments of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if a number or a choice cannot be used.
    """

    conversion_rules: ClassVar[Rules] = {
        "key_sums": Rule(fit=first_part),
        "value_sums": Rule(("key_sums",), fit=first_part),
    }

    def __init__(self, *, num_slots: int = 128, max_positions: int = 1024, share: str = "none", **options: Any) -> None:
        super().__init__(**options)
        check_positive(num_slots=num_slots)
        check_choice("share", share, SHARE_CHOICES)
        self.num_slots, self.max_positions, self.share = num_slots, max_positions, share
        self.key_sums = self.random_sums()
        self.value_sums = self.random_sums() if share == "none" else None

    def random_sums(self) -> nn.Parameter:
        """``(L, N)``, with the variance of the random projections in the paper's proof: lengths and angles are kept."""
        return nn.Parameter(torch.randn(self.num_slots, self.max_positions) * self.num_slots**-0.5)

    def sums(self, steps: int) -> tuple[Tensor, Tensor]:
        """The weights of the sums of keys and of values, E and F, each ``(L, N)``, for a sequence of ``steps``.

        Raises:
            UsageError: if the sequence is longer than they are.
        """
        self.check_length(steps, self.max_positions, attention="linformer")
        return self.key_sums, self.key_sums if self.value_sums is None else self.value_sums


class LinformerAttention(LinformerProjections, SelfAttention):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`LinformerProjections`.

    If a sentence is all padding, the result is the bias of the output projection.
    """

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        return self.project_output(linformer_attention(q, k, v, *self.sums(len(x)), **self.op_options(padding)))


class LinformerSlots(NamedTuple):
    """The cache of a source."""

    key: Tensor  # (B, H, L, D)
    value: Tensor  # (B, H, L, D)
    padding_mask: Tensor | None  # (B, S) bool; None unless weights were asked for


class LinformerCrossAttention(LinformerProjections, CrossAttention):
    """Cross-attention. Arguments: :class:`LinformerProjections`.

    The size of the cache of a sentence does not depend on its length: 2 L D numbers for each head. Only for the weights
    the mask is cached too. A weight may be negative, and they need not sum to 1.
    """

    Cached = LinformerSlots

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> LinformerSlots:
        k, v = self.project_heads(self.k_proj, source), self.project_heads(self.v_proj, source)
        k, v = linformer_slots(k, v, *self.sums(len(source)), padding=padding)
        return LinformerSlots(k, v, padding_of(source, padding).existing_mask if need_weights else None)

    def attend_queries(
        self, q: Tensor, cached: LinformerSlots, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        y, weights = softmax_attention(
            q, cached.key, cached.value, dropout_p=self.dropout_p(), need_weights=need_weights
        )
        if weights is None or cached.padding_mask is None:
            return y, None
        steps = cached.padding_mask.shape[1]
        _, value_sums = self.sums(steps)
        return y, linformer_weights(weights, value_sums, steps, padding=padding)


ATTENTIONS = (
    Attention(
        name="linformer",
        published=Published(
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
                    "of the real tokens of a sentence",
                    "of the batch, with padding",
                    "a sentence has the same result in every batch",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2006.04768",
        encoder=LinformerAttention,
        decoder="its slots are sums over all positions, later ones too",
        source=LinformerCrossAttention,
        unaligned="its weights may be negative",
        has_max_positions=True,
        traits=Traits(training_time="nLD", decoder_state=""),
        flags=(
            Flag(name="num_slots", argument="num_slots", help="slots", default=128, minimum=1),
            Flag(
                name="linformer_share",
                argument="share",
                help="kv: sums of keys and of values share their weights; layers: all layers of a side share them too",
                kind=str,
                default="none",
                choices=SHARE_CHOICES,
            ),
        ),
    ),
)
