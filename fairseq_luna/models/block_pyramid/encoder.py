"""Words to the tops of all cuts."""

import math
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from fairseq.modules import FairseqDropout, PositionalEmbedding
from torch import Tensor, nn

from .layers import PyramidBranch


class PyramidEncoder(FairseqEncoder):
    """Embeds a text and shrinks it to one vector for each cut.

    Args:
        cfg: the nested config.
        dictionary: of the text.
    """

    def __init__(self, cfg: Any, dictionary: Any) -> None:
        super().__init__(dictionary)
        size = cfg.encoder.embed_dim
        self.padding_idx: int = dictionary.pad()
        self.max_source_positions: int = cfg.max_source_positions
        self.embed_scale = math.sqrt(size)
        self.embed_tokens = nn.Embedding(len(dictionary), size, self.padding_idx)
        nn.init.normal_(self.embed_tokens.weight, std=size**-0.5)
        nn.init.zeros_(self.embed_tokens.weight[self.padding_idx])
        self.embed_positions = None
        if not cfg.no_token_positional_embeddings:
            self.embed_positions = PositionalEmbedding(
                cfg.max_source_positions, size, self.padding_idx, learned=cfg.encoder.learned_pos
            )
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        self.branches = nn.ModuleList(PyramidBranch(cfg, block_size=each) for each in cfg.pyramid_block_sizes)
        self.output_size = size * len(self.branches)

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None) -> Tensor:
        """Features of each text.

        Args:
            src_tokens: ``(B, T)`` int64, padded anywhere.
            src_lengths: what fairseq passes to every encoder; the padding itself says the lengths.

        Returns:
            ``(B, output_size)``: the tops of the cuts, one after the other.
        """
        x = self.embed_scale * self.embed_tokens(src_tokens)
        if self.embed_positions is not None:
            x = x + self.embed_positions(src_tokens)
        x = self.dropout_module(x).transpose(0, 1)
        padding_mask = src_tokens.eq(self.padding_idx)
        return torch.cat([branch(x, padding_mask) for branch in self.branches], dim=-1)

    def max_positions(self) -> int:
        return self.max_source_positions
