"""Luna's encoder: fairseq's transformer encoder with a packed sequence in addition to the sequence."""

from typing import Any

import torch
from fairseq.modules import LayerNorm, SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ...modules.dropout import WordDropout
from ...ops.padding import Padding
from ..shared.encoder import PaddedEncoder
from ..shared.layers import wrap_layer
from ..shared.source_rows import EncoderOut, encoder_out, masks_of
from .layers import LunaEncoderLayer


class LunaEncoder(PaddedEncoder):
    """Encodes a source as x, one vector per token, and as p, ``cfg.projection_length`` packed slots.

    Args:
        cfg: the nested config of :func:`.config.luna_config`.
        dictionary: of the source.
        embed_tokens: its embedding.
        packed_is_read: whether p of the last layer is read; if not, it is returned without its norm.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, *, packed_is_read: bool = True) -> None:
        self.packed_is_read = packed_is_read
        self.layers_built = 0
        super().__init__(cfg, dictionary, embed_tokens)
        size = embed_tokens.embedding_dim
        self.word_dropout = WordDropout(cfg.word_dropout)
        self.fix_projection_length: bool = cfg.fix_projection_length
        self.packed_embeddings = nn.Parameter(torch.empty(cfg.projection_length, size))
        nn.init.normal_(self.packed_embeddings, std=size**-0.5)
        positions = None
        if not (cfg.no_token_positional_embeddings or cfg.encoder.learned_pos):
            positions = SinusoidalPositionalEmbedding.get_embedding(cfg.projection_length, size)
        self.register_buffer("packed_positions", positions, persistent=False)
        self.layernorm_packed_embedding = LayerNorm(size, export=cfg.export) if cfg.layernorm_embedding else None
        self.packed_layer_norm = None
        if cfg.encoder.normalize_before and packed_is_read:
            self.packed_layer_norm = LayerNorm(size, export=cfg.export)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        self.layers_built += 1
        is_last = self.layers_built == cfg.encoder.layers
        return wrap_layer(LunaEncoderLayer(cfg, packed_is_read=self.packed_is_read or not is_last), cfg)

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Tensor | None = None, padding: Padding | None = None
    ) -> tuple[Tensor, Tensor]:
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        return super().forward_embedding(src_tokens, self.word_dropout(token_embedding), padding)

    def packed_input(self, padding: Padding, batch: int, longest: int, shortest: int) -> tuple[Tensor, Padding]:
        """The input of the first layer: the packed sequence ``(L, B, C)`` and its padding.

        Unless ``--fix-projection-length`` is given, a sentence uses at most as many slots as it has tokens. Slots that
        no sentence of the batch uses are left out.

        Args:
            padding: of the source.
            batch: B.
            longest: steps of the source.
            shortest: a lower bound of the tokens of a sentence; if all have more tokens than slots, none is padding.
        """
        slots = self.packed_embeddings.shape[0]
        padding_mask = None
        if not self.fix_projection_length:
            # In a graph for sources of any length the mask alone decides.
            if not (isinstance(longest, torch.SymInt) or self.has_mask_without_padding):
                slots = min(slots, longest or 1)
            if shortest < slots:
                # A sentence that is all padding keeps one slot; without any, the softmax over its slots would be NaN.
                device = self.packed_embeddings.device
                lengths = padding.with_mask(batch, longest, device).lengths
                padding_mask = torch.arange(slots, device=device) >= lengths.clamp(min=1)[:, None]
        packed = self.embed_scale * self.packed_embeddings[:slots]
        if self.packed_positions is not None:
            packed = packed + self.packed_positions[:slots]
        if self.layernorm_packed_embedding is not None:
            packed = self.layernorm_packed_embedding(packed)
        packed = self.dropout_module(packed[:, None].expand(-1, batch, -1))
        if self.has_mask_without_padding:
            # Without dropout the first compiled layer would get other strides than the rest.
            packed = packed.contiguous()
        return packed, Padding(padding_mask)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> EncoderOut:
        """Encode ``src_tokens (B, T)``.

        Returns:
            The dictionary of fairseq's encoder, with ``packed_out`` ``(L, B, C)`` and ``packed_padding_mask``
            ``(B, L)``. The lists of masks without padding are empty.
        """
        batch, steps = src_tokens.shape
        padding = Padding(src_tokens.eq(self.padding_idx))
        has_padding: bool | None = getattr(src_tokens, "has_padding", None)  # of recorded_training.known_padding
        if self.has_mask_without_padding:
            shortest = 0
        elif has_padding is not None:
            shortest = 0 if has_padding else steps
        else:
            shortest = int(padding.lengths.min()) if batch else steps  # the one number read from the device
        if shortest == steps and not self.has_mask_without_padding:
            padding = Padding()
        return self.encode(src_tokens, padding, return_all_hiddens, token_embeddings, shortest=shortest)

    def encode(
        self,
        src_tokens: Tensor,
        padding: Padding,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        *,
        shortest: int = 0,
    ) -> EncoderOut:
        """:meth:`forward_scriptable` for known ``padding`` of ``src_tokens (B, T)``: no branch depends on the data.

        ``shortest`` is for :meth:`packed_input`; 0 is correct for sentences of any length.
        """
        batch, steps = src_tokens.shape
        x, embedding = self.forward_embedding(src_tokens, token_embeddings, padding)
        x = x.transpose(0, 1).contiguous()
        p, packed_padding = self.packed_input(padding, batch, steps, shortest)
        states = [x] if return_all_hiddens else []
        for layer in self.layers:
            x, p = layer(x, p, padding, packed_padding)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if self.packed_layer_norm is not None:
            p = self.packed_layer_norm(p)
        more = {"packed_out": [p], "packed_padding_mask": masks_of(packed_padding)}
        return encoder_out(x, embedding, padding, states, **more)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """Do nothing: the names that fairseq's encoder renames are older than any Luna checkpoint."""
        return state_dict
