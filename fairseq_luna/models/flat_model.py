"""An encoder-decoder that fairseq builds from a flat config."""

from argparse import ArgumentParser
from typing import Any

from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from .kept_layers import keep_layers


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

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """fairseq's own, but for --encoder-layers-to-keep and --decoder-layers-to-keep, each of which it takes alone.

        fairseq would drop all layers of a side that has no such flag, and the layers of a model that was trained with
        one and has no others. See :meth:`fairseq.models.BaseFairseqModel.load_state_dict` for the arguments.
        """
        if model_cfg is None:
            return super().load_state_dict(state_dict, strict, args=args)
        for side in ("encoder", "decoder"):
            name = f"{side}_layers_to_keep"
            kept = getattr(model_cfg, name, None)
            if kept:
                state_dict = keep_layers(state_dict, side, [int(layer) for layer in kept.split(",")])
                setattr(model_cfg, name, None)  # as fairseq does: the weights here have no other layers any more
        return super().load_state_dict(state_dict, strict, model_cfg)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's own, but for the output weights that it makes of shared embeddings with adaptive softmax too.

        There they are not expected, and no checkpoint of such a model could be loaded.
        """
        super().upgrade_state_dict_named(state_dict, name)
        if self.decoder.adaptive_softmax is not None:
            state_dict.pop(f"{name}.decoder.output_projection.weight".lstrip("."), None)
