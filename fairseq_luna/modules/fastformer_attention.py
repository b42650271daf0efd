"""Fastformer's additive attention (arXiv 2108.09084, section 3.2) and a causal form of our own.

For each head, with learned scores w_q and w_k of all channels of a step::

    alpha = softmax_j( w_q(Q_j) / sqrt(D) ),     global query  q = sum_j alpha_j Q_j
    p_j   = q * K_j
    beta  = softmax_j( w_k(p_j) / sqrt(D) ),     global key    k = sum_j beta_j p_j
    out_t = W_r (k * V_t) + Q_t

In the causal form both sums run over the steps so far, with a softmax for every step; docs/mathematics.md derives it.

Parameters: ``q_proj``, and ``k_proj`` and ``v_proj`` unless shared, ``query_score`` (w_q), ``key_score`` (w_k),
``out_proj`` (W_r); with ``combine="concat"`` also ``query_key_proj`` and ``key_value_proj``. Differences from the paper
are in the declaration at the end of the file.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops import fastformer_attention as op
from ..ops.padding import Padding
from ..published import Difference, Published
from .argument_checks import check_choice
from .attention import SelfAttention
from .conversion import Rule, Rules
from .declaration import Attention, Flag, Traits
from .multihead import merge_heads, split_heads

COMBINE_CHOICES = ("product", "sum", "concat")
RESIDUAL_CHOICES = ("query", "global-query")
SHARE_CHOICES = ("none", "query-value", "query-key-value")


class FastformerAttention(SelfAttention):
    """Additive self-attention, linear in the length; the state of a decoder has constant size.

    The scores have no bias, because a softmax over time cancels it. If a sentence is all padding, its global query and
    global key are zero. In a decoder dropout removes a step from the pooled vectors of all later steps, and leaves the
    softmax denominators unchanged.

    Args:
        combine: of global query and key, and of global key and value: "product", elementwise; "sum"; or "concat", a
            learned map of the concatenated vectors, 2C to C, one for each pair.
        residual: added to the output: "query", the query of the step, or "global-query".
        share: which of queries, keys and values are one projection: "none", "query-value" (as in the paper), or
            "query-key-value".
        options: arguments of :class:`.SelfAttention`.

    Raises:
        UsageError: if an option is unknown, or ``num_heads`` does not divide ``embed_dim``.
    """

    State = op.FastformerState
    conversion_rules: ClassVar[Rules] = {"k_proj": Rule(("q_proj",)), "v_proj": Rule(("q_proj",))}
    successor_rules: ClassVar[Rules] = {"k_proj": Rule(("q_proj",)), "v_proj": Rule(("q_proj",))}

    def __init__(
        self, *, combine: str = "product", residual: str = "query", share: str = "query-value", **options: Any
    ) -> None:
        super().__init__(**options)
        check_choice("combine", combine, COMBINE_CHOICES)
        check_choice("residual", residual, RESIDUAL_CHOICES)
        check_choice("share", share, SHARE_CHOICES)
        self.combine, self.residual, self.share = combine, residual, share
        linear = self.linear
        self.q_proj = linear.input_projection()
        if share != "query-key-value":
            self.k_proj = linear.input_projection()
        if share == "none":
            self.v_proj = linear.input_projection()
        self.query_score = linear.input_projection(outputs=self.num_heads, bias=False)
        self.key_score = linear.input_projection(outputs=self.num_heads, bias=False)
        self.query_key_proj = linear.input_projection(inputs=2) if combine == "concat" else None
        self.key_value_proj = linear.input_projection(inputs=2) if combine == "concat" else None
        self.out_proj = linear.output_projection()

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        attention = op.fastformer_causal_attention if self.causal else op.fastformer_attention
        u, global_query = attention(q, k, v, self.learned_maps(), **self.op_options(padding))
        return self.project_with_residual(u, q, global_query)

    def attend_step(
        self, x: Tensor, padding: Padding, state: op.FastformerState | None
    ) -> tuple[Tensor, op.FastformerState]:
        q, k, v = self.queries_keys_values(x)
        u, global_query, state = op.fastformer_causal_attention_step(
            q, k, v, self.learned_maps(), state, **self.op_options(padding)
        )
        return self.project_with_residual(u, q, global_query), state

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of ``x (T, B, C)``, each ``(B, H, T, D)``; shared ones are the same tensor."""
        q = self.project_heads(self.q_proj, x)
        k = q if self.share == "query-key-value" else self.project_heads(self.k_proj, x)
        v = self.project_heads(self.v_proj, x) if self.share == "none" else q
        return q, k, v

    def learned_maps(self) -> op.FastformerMaps:
        """The learned maps as functions, for the ops."""
        return op.FastformerMaps(
            query_score=lambda q: self.score_steps(self.query_score, q),
            key_score=lambda p: self.score_steps(self.key_score, p),
            combine_key=lambda global_query, k: self.combine_vectors(self.query_key_proj, global_query, k),
            combine_value=lambda global_key, v: self.combine_vectors(self.key_value_proj, global_key, v),
        )

    def score_steps(self, score: nn.Module, x: Tensor) -> Tensor:
        """One score per head from all channels of each step: ``(B, H, T, D)`` to ``(B, H, T)``."""
        return score(merge_heads(x)).permute(1, 2, 0)

    def combine_vectors(self, concat_proj: nn.Module | None, pooled: Tensor, x: Tensor) -> Tensor:
        """Combine ``pooled (B, H, T or 1, D)`` with ``x (B, H, T, D)``: ``(B, H, T, D)``."""
        if concat_proj is not None:
            both = torch.cat([merge_heads(pooled.expand_as(x)), merge_heads(x)], dim=-1)
            return split_heads(concat_proj(both), self.num_heads)
        # In the layout of x, in which the projections are plain products.
        return x * pooled if self.combine == "product" else x + pooled

    def project_with_residual(self, u: Tensor, q: Tensor, global_query: Tensor) -> Tensor:
        """``out_proj(u)`` plus the residual: ``(T, B, C)`` from ``(B, H, T, D)``."""
        return self.project_output(u) + merge_heads(q if self.residual == "query" else global_query)


ATTENTIONS = (
    Attention(
        name="fastformer",
        published=Published(
            "arXiv 2108.09084; the authors' notebook",
            (
                Difference(
                    "in the decoder",
                    "a causal form of our own: [mathematics](mathematics.md#causal)",
                    "encoder only",
                    "the global vectors of a whole sentence would show later tokens",
                ),
                Difference(
                    "layers",
                    "have parameters of their own",
                    "in the paper all layers share them, in the notebook none does",
                    "`--fastformer-share-layers` shares them",
                ),
                Difference("biases of the scores", "none", "yes", "they would have no effect"),
            ),
        ),
        paper="https://arxiv.org/abs/2108.09084",
        encoder=FastformerAttention,
        decoder=partial(FastformerAttention, causal=True),
        source="its global query and key are of one sequence",
        traits=Traits(training_time="nD", is_matrix=False),
        flags=(
            Flag(
                name="fastformer_combine",
                argument="combine",
                help="how a global vector and a position's vector are combined",
                kind=str,
                default="product",
                choices=COMBINE_CHOICES,
            ),
            Flag(
                name="fastformer_residual",
                argument="residual",
                help="what is added at the end: the position's or the global query",
                kind=str,
                default="query",
                choices=RESIDUAL_CHOICES,
            ),
            Flag(
                name="fastformer_share",
                argument="share",
                help="projections that share parameters",
                kind=str,
                default="query-value",
                choices=SHARE_CHOICES,
            ),
        ),
    ),
)
