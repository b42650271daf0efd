"""Parameters of an attention with queries, keys and values."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from ..usage_error import ArgumentError
from .dropout import Dropout, dropout_probability
from .heads import check_heads, merge_heads, split_heads
from .projection import Projections


class AttentionProjections(nn.Module):
    """Projections of queries, keys, values and output.

    Args:
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        source_dim: channels of keys and values; None = C.
        dropout: dropout probability; of what, the attention says.
        bias: projections have a bias.
        key_bias: keys have one too; False where it would have no effect.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        source_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        key_bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_heads(num_heads, embed_dim)
        self.num_heads = num_heads
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.create_projections(new, source_dim=source_dim or embed_dim, key_bias=bias and key_bias)

    def create_projections(self, new: Projections, *, source_dim: int, key_bias: bool) -> None:
        """Create the four; their order is that of the parameters in a checkpoint's optimizer."""
        of_source = replace(new, size=source_dim)
        self.q_proj = new.input()
        self.k_proj = of_source.input(outputs=new.size, bias=key_bias)
        self.v_proj = of_source.input(outputs=new.size)
        self.out_proj = new.output()

    def heads_of(self, projection: nn.Module, x: Tensor, *, beams: int = 1) -> Tensor:
        """A projection of ``x (T, B, C)``: ``(B / beams, H, T beams, D)``."""
        return split_heads(projection(x), self.num_heads, beams=beams)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        return self.heads_of(self.q_proj, x), self.heads_of(self.k_proj, x), self.heads_of(self.v_proj, x)

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)

    def output(self, y: Tensor, *, beams: int = 1) -> Tensor:
        """``(B / beams, H, T beams, D)`` to ``(T, B, C)``."""
        return self.out_proj(merge_heads(y, beams=beams))


def check_slots(num_slots: int) -> None:
    """Raise UsageError if an attention cannot have ``num_slots`` slots."""
    if num_slots < 1:
        raise ArgumentError("num_slots", num_slots, "must be 1 or more")


class NamedArguments:
    """Errors of a forward pass name an argument as ``argument_names`` does: models give the flags."""

    argument_names: Mapping[str, str] = {}

    def name_of(self, argument: str) -> str:
        return self.argument_names.get(argument, argument)

    def check_length(self, steps: int, max_positions: int, *, attention: str) -> None:
        """Raise UsageError if ``attention``, which has ``max_positions``, cannot read ``steps``."""
        if steps > max_positions:
            raise ArgumentError(
                self.name_of("max_positions"),
                max_positions,
                f"{attention} reads at most so many words, and a sentence has {steps}; leave it out, or train with a"
                " larger number",
            )
