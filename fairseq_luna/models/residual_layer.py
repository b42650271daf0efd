"""What every layer has: residual connections, their norms, and a feed-forward network."""

from typing import Any

from fairseq import utils
from fairseq.modules import FairseqDropout, LayerNorm
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ..ops.dropout import add_dropped


class ResidualLayer(nn.Module):
    """A layer of one side of an encoder-decoder, without its attention.

    fairseq's own layers are not the base: in one of the supported versions they hold a second, untrained copy of
    their weights, for a fast path that only softmax attention can take.

    Args:
        cfg: fairseq's nested transformer config.
        side: its encoder or decoder part.
    """

    def __init__(self, cfg: Any, side: Any) -> None:
        super().__init__()
        self.embed_dim: int = side.embed_dim
        self.normalize_before: bool = side.normalize_before
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        self.activation_fn = utils.get_activation_fn(activation=cfg.activation_fn)
        activation_dropout = float(cfg.activation_dropout or cfg.relu_dropout or 0)
        self.activation_dropout_module = FairseqDropout(activation_dropout, module_name=type(self).__name__)
        noise = {"p": cfg.quant_noise.pq, "block_size": cfg.quant_noise.pq_block_size}
        self.fc1 = quant_noise(nn.Linear(self.embed_dim, side.ffn_embed_dim), **noise)
        self.fc2 = quant_noise(nn.Linear(side.ffn_embed_dim, self.embed_dim), **noise)
        self.final_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def before(self, x: Tensor, norm: nn.Module) -> Tensor:
        """What a sub-layer gets: ``x``, normalised first in a pre-norm layer."""
        return norm(x) if self.normalize_before else x

    def after(self, x: Tensor, residual: Tensor, norm: nn.Module | None) -> Tensor:
        """Dropout and residual connection; normalised in a post-norm layer, unless ``norm`` is None."""
        x = add_dropped(residual, x, self.dropout_p)
        return x if self.normalize_before or norm is None else norm(x)

    @property
    def dropout_p(self) -> float:
        """Probability with which an element of a sub-layer's output is dropped now."""
        dropout = self.dropout_module
        return dropout.p if dropout.training or dropout.apply_during_inference else 0.0

    def feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward sub-layer, residual connection and norm included: any shape ``(..., C)``."""
        residual = x
        x = self.activation_fn(self.fc1(self.before(x, self.final_layer_norm)))
        x = self.fc2(self.activation_dropout_module(x))
        return self.after(x, residual, self.final_layer_norm)
