"""fairseq's transformer decoder with another self-attention, which is causal without a mask."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ...modules.generation_state import IncrementalState
from ...ops.once_per_batch import one_pass
from ...usage_error import UsageError
from .attentions import BuildAttention, source_attention
from .layers import SelfAttentionDecoderLayer, wrap_layer
from .source_rows import EncoderOut, selected_rows

NO_LAYER = -1
# What a call of a model that threads share asks for, each for itself; None: what the decoder's ``need_attn`` says.
_asked: ContextVar[bool | None] = ContextVar("alignment", default=None)


@contextmanager
def alignment_is(wanted: bool) -> Iterator[None]:
    """Within this block, in this thread, decoders return the attention to the source if it is ``wanted``."""
    token = _asked.set(wanted)
    try:
        yield
    finally:
        _asked.reset(token)


class CausalDecoder(TransformerDecoderBase):
    """A decoder whose self-attention is causal by construction.

    The attention to the source is quadratic to write down. It is returned only on request: with fairseq-generate's
    --print-alignment, with --load-alignments in training, or for an explicit ``alignment_layer``.
    """

    need_attn = False
    # A generator writes no padding after a word, so that its steps need not wait for the device to look for some.
    generates = False

    def make_generation_fast_(self, *, need_attn: Any = False, **kwargs: Any) -> None:
        """Called by fairseq-generate; ``need_attn`` is the value of --print-alignment, False if it is not given."""
        self.need_attn = bool(need_attn)
        self.generates = True

    def buffered_future_mask(self, tensor: Tensor) -> None:
        """No mask: it would be quadratic, and the self-attention is causal without it."""

    def aligned(
        self, alignment_layer: int | None, alignment_heads: int | None, full_context_alignment: bool
    ) -> tuple[int, int | None]:
        """The layer whose attention to the source is returned, or ``NO_LAYER``, and how many heads; None: all.

        Arguments are those of ``extract_features``; --alignment-layer and --alignment-heads hold without them.

        Raises:
            UsageError: for a full context, or without attention to the source.
        """
        if full_context_alignment:
            raise UsageError("full_context_alignment: this decoder is causal by construction; leave it out")
        if alignment_layer is not None:
            return alignment_layer, alignment_heads
        asked = _asked.get()
        if not (self.need_attn if asked is None else asked):
            return NO_LAYER, None
        if self.cfg.no_cross_attention:
            raise UsageError("--print-alignment: this model has no attention to the source; leave it out")
        layer = self.cfg.alignment_layer
        return self.num_layers - 1 if layer is None else layer, alignment_heads or self.cfg.alignment_heads


class SelfAttentionDecoder(CausalDecoder):
    """A decoder of :class:`.layers.SelfAttentionDecoderLayer`.

    Args:
        cfg: the nested config.
        dictionary: of the target.
        embed_tokens: its embedding.
        no_encoder_attn: build layers without attention to the encoder's output.
        build_self_attention: called with ``cfg`` for each layer; returns its self-attention.
        build_source_attention: the same for the attention to the encoder's output.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        *,
        build_self_attention: BuildAttention,
        build_source_attention: BuildAttention = source_attention,
    ) -> None:
        self.build_self_attention = build_self_attention
        self.build_source_attention = build_source_attention
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        attention = self.build_self_attention(cfg)
        source = None if no_encoder_attn else self.build_source_attention
        return wrap_layer(SelfAttentionDecoderLayer(cfg, attention, build_source_attention=source), cfg)

    @one_pass
    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """See :class:`fairseq.models.transformer.TransformerDecoderBase` for arguments and results."""
        aligned, heads = self.aligned(alignment_layer, alignment_heads, full_context_alignment)
        # Later steps of generation read it only where weights are asked for first.
        if encoder_out is not None and (not incremental_state or aligned != NO_LAYER):
            encoder_out = selected_rows(encoder_out)
        return super().extract_features_scriptable(
            prev_output_tokens, encoder_out, incremental_state, False, aligned, heads
        )
