"""Luna's bidirectional attention (arXiv 2106.01540, section 3.2): a context is packed into slots, which queries read.

For queries X (T steps), packed slots P (L slots) and a context C (S steps; X itself in self-attention)::

    Y_P = softmax over the context ( q_p(P) k_p(C)^T / sqrt(D) ) v_p(C)         pack, (L, D) for each packed head
    Y_X = softmax over the slots ( q(X) k(Y_P)^T / sqrt(D) ) v(Y_P)             unpack, (T, D) for each head
    out = W_o [Y_X of all heads],      Y_P goes to the next layer as it is

Parameters: ``pq_proj`` (q_p), ``q_proj`` (q), ``out_proj`` (W_o); with tied keys and values, the paper's default,
``pc_proj`` (k_p and v_p) and ``c_proj`` (k and v), else ``pk_proj``, ``pv_proj``, ``k_proj`` and ``v_proj``; not in the
paper: ``segment_bias`` and ``convolution``. docs/mathematics.md has the details.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..ops import folded_attention
from ..ops.padding import Padding, PaddingLike, in_own_segment
from ..ops.softmax_attention import softmax_attention
from ..published import Difference, Published
from .argument_checks import check_heads, validate_padding
from .conversion import Rule, Rules, identity
from .declaration import Attention, Traits
from .decoding_state import StateType
from .multihead import Multihead, beams_apart, beams_of, merge_heads, split_heads
from .projection import affine_of
from .short_convolution import convolution_of


class PackedSource(NamedTuple):
    """The cached keys and values of a packed context."""

    key: Tensor  # (B, H, L, D)
    value: Tensor | None  # (B, H, L, D); None: the keys
    pack_weights: Tensor | None  # (B, L, S); None unless weights were asked for


class LunaAttention(Multihead):
    """Pack and unpack attention, for encoders and for cross-attention; time and memory are linear in the lengths.

    With ``segment_bias``, b is added to the pack scores of a slot and the steps of its own segment: slot l has the l-th
    of min(L, n) equal segments of the n real steps of C. It is not in the paper.

    Args:
        num_packed_heads: heads of the pack attention.
        tie_kv: keys and values are one projection (``k_p = v_p`` and ``k = v``), the paper's default.
        kernel_size: kernel size of a convolution over X, only for self-attention, odd; 0 = none, as in the paper.
        segment_bias: if not 0, b is a learned number for each packed head that starts with this value.
        options: further arguments of :class:`.Multihead`; its heads are the heads of the unpack attention.

    Raises:
        UsageError: if a number of heads does not divide ``embed_dim``, or ``kernel_size`` is even or negative.
    """

    # The slots start as means of steps, so that the unpack attention reads them as the transformer reads the steps.
    # Where two projections are one, it is the projection of the values.
    conversion_rules: ClassVar[Rules] = {
        "pq_proj": Rule(("q_proj",)),
        "pk_proj": Rule(("pc_proj", "k_proj")),
        "pv_proj": Rule(("pc_proj",), start=identity),
        "pc_proj": Rule(("pv_proj",), start=identity),
        "c_proj": Rule(("v_proj",)),
        "k_proj": Rule(("c_proj",)),
        "v_proj": Rule(("c_proj",)),
    }
    successor_rules: ClassVar[Rules] = {"k_proj": Rule(("pc_proj",)), "v_proj": Rule(("c_proj",))}

    def __init__(
        self,
        *,
        num_packed_heads: int,
        tie_kv: bool = True,
        kernel_size: int = 0,
        segment_bias: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        linear = self.linear
        check_heads(num_packed_heads, self.embed_dim, name="num_packed_heads")
        self.num_packed_heads = num_packed_heads
        self.tie_kv = tie_kv
        self.pq_proj = linear.input_projection()
        self.q_proj = linear.input_projection()
        if tie_kv:
            self.pc_proj = linear.input_projection()
            self.c_proj = linear.input_projection()
        else:
            self.pk_proj = linear.input_projection()
            self.pv_proj = linear.input_projection()
            self.k_proj = linear.input_projection()
            self.v_proj = linear.input_projection()
        self.out_proj = linear.output_projection()
        self.segment_bias = nn.Parameter(torch.full((num_packed_heads,), segment_bias)) if segment_bias else None
        self.convolution = convolution_of(kernel_size, embed_dim=self.embed_dim)

    def forward(
        self,
        query: Tensor,
        packed: Tensor,
        context: Tensor,
        *,
        context_padding_mask: PaddingLike = None,
        packed_padding_mask: PaddingLike = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Attend from ``query`` to ``context`` through the packed slots.

        Args:
            query: X, ``(T, B, C)``.
            packed: P, ``(L, B, C)``.
            context: C, ``(S, B, C)``; X itself for self-attention.
            context_padding_mask: ``(B, S)`` bool, True = padding: not seen.
            packed_padding_mask: ``(B, L)`` bool, True = padding: a padded slot is not read.
            need_weights: also return the weights of the context steps for each query.

        Returns:
            ``out_proj(Y_X) (T, B, C)``; ``Y_P (L, B, C)``; and the weights ``(H, B, T, S)``, unpack weights times the
            mean of the pack weights over their heads, or None.
        """
        padding = validate_padding(context_padding_mask, context, "context_padding_mask")
        packed_padding = validate_padding(packed_padding_mask, packed, "packed_padding_mask")
        if self.convolution is not None:
            assert context is query, "a convolution is for self-attention"
            query = context = self.convolution.centered(query, padding=padding)
        cached, packed_context = self.read_source(packed, context, padding, need_weights=need_weights)
        out, weights = self.attend_to_source(query, cached, packed_padding, need_weights=need_weights)
        return out, packed_context, weights

    @property
    def cached_type(self) -> StateType:
        """The type of the cache of a context, for :func:`.decoding_state.unflatten_state`."""
        return PackedSource

    def read_source(
        self, packed: Tensor, context: Tensor, padding: Padding, *, need_weights: bool = False
    ) -> tuple[PackedSource, Tensor]:
        """Pack the ``context``; return keys and values for :meth:`attend_to_source`, and Y_P ``(L, B, C)``.

        Arguments as in :meth:`forward`; ``padding`` is the padding of the context. ``need_weights``: also cache the
        pack weights.
        """
        packed_context, pack_weights = self.pack(packed, context, padding, need_weights)
        key, value = self.project_packed(packed_context)
        return PackedSource(key, None if value is key else value, pack_weights), packed_context

    def attend_to_source(
        self, query: Tensor, cached: PackedSource, packed_padding: Padding, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """``out_proj(Y_X) (T, B, C)``, and if needed the weights of the context ``(H, B, T, S)``.

        The batch of ``query`` may be a multiple of the rows of ``cached``: the consecutive rows that read one sentence
        are its beams.
        """
        key, value = cached.key, cached.key if cached.value is None else cached.value
        if not need_weights:
            folded = self.unpack_folded(query, key, value, packed_padding)
            if folded is not None:
                return folded, None
        beams = beams_of(query.shape[1], key.shape[0])
        q = self.project_heads(self.q_proj, query, beams=beams)
        out, weights = softmax_attention(q, key, value, need_weights=need_weights, **self.op_options(packed_padding))
        if weights is not None:
            assert cached.pack_weights is not None, "the source was read without need_weights"
            weights = beams_apart(weights @ cached.pack_weights.unsqueeze(1), beams).transpose(0, 1)
        return self.project_output(out, beams=beams), weights

    def pack(
        self, packed: Tensor, context: Tensor, padding: Padding, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Y_P ``(L, B, C)``, and if needed the weights averaged over the packed heads, ``(B, L, S)``."""
        q = split_heads(self.pq_proj(packed), self.num_packed_heads)
        bias = self.segment_scores(packed, context, padding)
        folded = None if need_weights else self.pack_folded(q, context, padding, bias)
        if folded is not None:
            return merge_heads(folded), None
        if self.tie_kv:
            k = v = split_heads(self.pc_proj(context), self.num_packed_heads)
        else:
            k = split_heads(self.pk_proj(context), self.num_packed_heads)
            v = split_heads(self.pv_proj(context), self.num_packed_heads)
        out, weights = softmax_attention(q, k, v, bias=bias, need_weights=need_weights, **self.op_options(padding))
        return merge_heads(out), None if weights is None else weights.mean(1)

    def segment_scores(self, packed: Tensor, context: Tensor, padding: Padding) -> Tensor | None:
        """The bias to add to the pack scores, ``(B or 1, H, L, S)``, or None."""
        if self.segment_bias is None:
            return None
        own = in_own_segment(padding, packed.shape[0], context.shape[0], context.device)
        return own[:, None] * self.segment_bias.view(-1, 1, 1)

    def project_packed(self, packed_context: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of Y_P, each ``(B, H, L, D)``; one tensor if they are tied."""
        if self.tie_kv:
            key = value = self.project_heads(self.c_proj, packed_context)
            return key, value
        return self.project_heads(self.k_proj, packed_context), self.project_heads(self.v_proj, packed_context)

    def pack_folded(self, q: Tensor, context: Tensor, padding: Padding, bias: Tensor | None) -> Tensor | None:
        """Y_P ``(B, H, L, D)`` without projecting a long context, or None if that would not be cheaper."""
        steps, _, channels = context.shape
        slots, maps = self.num_packed_heads * q.shape[2], 1 if self.tie_kv else 2
        if not folded_attention.folding_pays(steps=steps, slots=slots, channels=channels, maps=maps, products=2):
            return None
        key = affine_of(self.pc_proj if self.tie_kv else self.pk_proj)
        value = key if self.tie_kv else affine_of(self.pv_proj)
        if key is None or value is None:
            return None
        return folded_attention.pack(q, context.transpose(0, 1), key, value, bias=bias, **self.op_options(padding))

    def unpack_folded(self, query: Tensor, key: Tensor, value: Tensor, padding: Padding) -> Tensor | None:
        """``out_proj(Y_X) (T, B, C)`` without projecting a long ``query``, or None if that would not be cheaper."""
        steps, batch, channels = query.shape
        sentences, heads, length, _ = key.shape
        pays = folded_attention.folding_pays(steps=steps, slots=heads * length, channels=channels, maps=2, products=2)
        if not pays or sentences < batch:
            return None
        to_query, out = affine_of(self.q_proj), affine_of(self.out_proj)
        if to_query is None or out is None:
            return None
        y = folded_attention.unpack(query.transpose(0, 1), key, value, to_query, out, **self.op_options(padding))
        return y.transpose(0, 1)


PACKED = "its layers pass a packed sequence: choose --arch luna_base"

ATTENTIONS = (
    Attention(
        name="luna",
        published=Published(
            "arXiv 2106.01540; the authors' fairseq-apollo",
            (
                Difference(
                    "beside the paper",
                    "`--luna-source-attention softmax`, `--luna-segment-bias` and `--attention-kernel-size`",
                    "not there",
                    "they learn more on small data, and are off by default: the defaults are the paper's",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2106.01540",
        encoder=PACKED,
        decoder=PACKED,
        source=PACKED,
        architecture="luna_base",
        traits=Traits(training_time="nL", is_matrix=False),
    ),
)
