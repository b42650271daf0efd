"""The base of every attention with heads, and the two layouts: time first, as in fairseq, and heads, as in the ops."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ..ops.padding import Padding
from .argument_checks import check_heads
from .dropout import Dropout, dropout_probability
from .projection import LinearMaps, project_together
from .short_convolution import ShortConvolution


class Multihead(nn.Module):
    """Heads, dropout and an output; a subclass creates its projections with ``linear``, the output as ``out_proj``.

    A checkpoint's optimizer state has the parameters in the order in which they are created.

    Args:
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        dropout: dropout probability of the attention weights; an attention without weights says what it drops.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantization noise on the projections.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

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
        self.embed_dim, self.num_heads, self.head_size = embed_dim, num_heads, embed_dim // num_heads
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        self.linear = LinearMaps(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.convolution: ShortConvolution | None = None

    def project_heads(self, projection: nn.Module, x: Tensor, *, beams: int = 1) -> Tensor:
        """Project ``x (T, B, C)`` and split the heads: ``(B / beams, H, T beams, D)``."""
        return split_heads(projection(x), self.num_heads, beams=beams)

    def project_heads_together(self, x: Tensor, *projections: nn.Module) -> tuple[Tensor, ...]:
        """Several projections of ``x (T, B, C)`` to as many channels, each ``(B, H, T, D)``."""
        return tuple(split_heads(y, self.num_heads) for y in project_together(x, *projections))

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)

    def op_options(self, padding: Padding) -> dict[str, Any]:
        """Keyword arguments of every op with attention weights; a decay has no weights to drop: see ``drop_steps``."""
        return {"padding": padding, "dropout_p": self.dropout_p()}

    def project_output(self, y: Tensor, *, beams: int = 1) -> Tensor:
        """Merge the heads ``(B / beams, H, T beams, D)`` and project them: ``(T, B, C)``."""
        return self.out_proj(merge_heads(y, beams=beams))


class QueriesKeysValues(Multihead):
    """Projections of queries, keys, values and output.

    Args:
        source_dim: channels of keys and values; None = C.
        key_bias: keys have a bias too; False where it would have no effect.
        options: further arguments, of :class:`Multihead`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module

    def __init__(self, *, source_dim: int | None = None, key_bias: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.create_projections(source_dim=source_dim or self.embed_dim, key_bias=self.linear.bias and key_bias)

    def create_projections(self, *, source_dim: int, key_bias: bool) -> None:
        """Create the four maps; a subclass may create them in another order."""
        source_maps = replace(self.linear, size=source_dim)
        self.q_proj = self.linear.input_projection()
        self.k_proj = source_maps.input_projection(outputs=self.embed_dim, bias=key_bias)
        self.v_proj = source_maps.input_projection(outputs=self.embed_dim)
        self.out_proj = self.linear.output_projection()

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        q, k, v = (self.project_heads(projection, x) for projection in (self.q_proj, self.k_proj, self.v_proj))
        return q, k, v


def split_heads(x: Tensor, num_heads: int, *, beams: int = 1) -> Tensor:
    """``(T, B, C)`` to ``(B / beams, H, T beams, C / H)``.

    Consecutive rows of the batch that are ``beams`` of one sentence become steps of it, to read the same keys at once.
    """
    steps, batch, channels = x.shape
    if steps == 1:  # in generation: fewer operators in an exported step
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
    """The number of beams: consecutive rows of a ``batch`` that read the same one of its ``sentences``."""
    return batch // sentences if batch > 0 and sentences > 0 else 1


def padding_of(x: Tensor, padding: Padding) -> Padding:
    """``padding`` with a mask, also if nothing of ``x (T, B, C)`` is padded."""
    steps, batch = x.shape[:2]
    return padding.with_mask(batch, steps, x.device)
