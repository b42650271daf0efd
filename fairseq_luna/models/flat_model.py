"""An encoder-decoder that fairseq builds from a flat config."""

from argparse import ArgumentParser
from typing import Any

from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerModelBase


class FlatConfigModel(TransformerModelBase):
    """fairseq's transformer, whose flat config (see :mod:`.flat_config`) is turned into the nested one it expects.

    A subclass has a static method ``nested_config``, which checks and nests its flat config, and builds its encoder
    and decoder.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        # The transformer's own adds its nested config; the base class adds the flat one that was registered.
        BaseFairseqModel.add_args.__func__(cls, parser)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "FlatConfigModel":
        """Build from the flat config of the command line, of hydra or of a checkpoint."""
        nested = cls.nested_config(cfg)
        model = super().build_model(nested, task)
        # With --encoder-layers-to-keep there are fewer: what is saved must say how many.
        cfg.encoder_layers, cfg.decoder_layers = nested.encoder.layers, nested.decoder.layers
        return model
