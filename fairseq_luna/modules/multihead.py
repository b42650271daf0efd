"""The base of every attention with heads, and the two layouts: time first, as in fairseq, and heads, as in the ops."""

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn

from ..ops.padding import Padding
from .checks import check_heads
from .dropout import Dropout, dropout_probability
from .projection import Projections, project_together
from .short_convolution import ShortConvolution


class Multihead(nn.Module):
    """Heads, dropout and an output; a subclass creates its projections with ``new``, the output as ``out_proj``.

    A checkpoint's optimizer state has the parameters in the order in which they are created.

    Args:
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        dropout: dropout probability of the attention weights, unless the attention says of what.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    causal: ClassVar[bool]  # of a self-attention: no step sees a later one
    out_proj: nn.Module

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_heads(num_heads, embed_dim)
        self.num_heads, self.head_size = num_heads, embed_dim // num_heads
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        self.new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.convolution: ShortConvolution | None = None

    def heads_of(self, projection: nn.Module, x: Tensor, *, beams: int = 1) -> Tensor:
        """A projection of ``x (T, B, C)``: ``(B / beams, H, T beams, D)``."""
        return split_heads(projection(x), self.num_heads, beams=beams)

    def heads_of_each(self, x: Tensor, *projections: nn.Module) -> tuple[Tensor, ...]:
        """Several projections of ``x (T, B, C)`` to as many channels, each ``(B, H, T, D)``."""
        return tuple(split_heads(y, self.num_heads) for y in project_together(x, *projections))

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)

    def options(self, padding: Padding) -> dict[str, Any]:
        """Keyword arguments of all ops except decays, which have no weights to drop: see ``drop_steps``."""
        return {"padding": padding, "dropout_p": self.dropout_p()}

    def output(self, y: Tensor, *, beams: int = 1) -> Tensor:
        """``(B / beams, H, T beams, D)`` to ``(T, B, C)``."""
        return self.out_proj(merge_heads(y, beams=beams))


class QueriesKeysValues(Multihead):
    """Projections of queries, keys, values and output.

    Args:
        source_dim: channels of keys and values; None = C.
        key_bias: keys have a bias too; False where it would have no effect.
        options: further arguments, of :class:`Multihead`.

    Raises:
        UsageError: as there.
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module

    def __init__(self, *, source_dim: int | None = None, key_bias: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.create_projections(source_dim=source_dim or self.new.size, key_bias=self.new.bias and key_bias)

    def create_projections(self, *, source_dim: int, key_bias: bool) -> None:
        of_source = replace(self.new, size=source_dim)
        self.q_proj = self.new.input()
        self.k_proj = of_source.input(outputs=self.new.size, bias=key_bias)
        self.v_proj = of_source.input(outputs=self.new.size)
        self.out_proj = self.new.output()

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        return self.heads_of(self.q_proj, x), self.heads_of(self.k_proj, x), self.heads_of(self.v_proj, x)


def split_heads(x: Tensor, num_heads: int, *, beams: int = 1) -> Tensor:
    """``(T, B, C)`` to ``(B / beams, H, T beams, C / H)``.

    Consecutive rows of the batch that are ``beams`` of one sentence become steps of it, to read the same keys at once.
    """
    steps, batch, channels = x.shape
    if steps == 1:  # in generation: fewer operations, of which an exported step has many
        return x.view(-1, beams, num_heads, channels // num_heads).transpose(1, 2)
    if beams > 1:
        return x.view(steps, -1, beams, num_heads, channels // num_heads).permute(1, 3, 0, 2, 4).flatten(2, 3)
    return x.view(steps, batch, num_heads, channels // num_heads).permute(1, 2, 0, 3)


def merge_heads(x: Tensor, *, beams: int = 1) -> Tensor:
    """``(B / beams, H, T beams, D)`` to ``(T, B, H D)``."""
    if x.shape[2] == beams:  # T = 1
        return x.transpose(1, 2).reshape(1, -1, x.shape[1] * x.shape[3])
    x = beams_apart(x, beams)
    batch, heads, steps, size = x.shape
    return x.permute(2, 0, 1, 3).reshape(steps, batch, heads * size)


def beams_apart(x: Tensor, beams: int) -> Tensor:
    """``(B / beams, H, T beams, D)`` to ``(B, H, T, D)``."""
    return x.unflatten(2, (-1, beams)).permute(0, 3, 1, 2, 4).flatten(0, 1) if beams > 1 else x


def beams_of(batch: int, sentences: int) -> int:
    """How many consecutive rows of a ``batch`` read each of its ``sentences``."""
    return batch // sentences if batch and sentences else 1


def padding_of(x: Tensor, padding: Padding) -> Padding:
    """``padding`` with a mask, also if nothing of ``x (T, B, C)`` is padded."""
    steps, batch = x.shape[:2]
    return padding.with_mask(batch, steps, x.device)
