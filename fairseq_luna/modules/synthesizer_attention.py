"""Synthesizer, chosen by its scores: dense, random and their factorized forms."""

from typing import Any

from torch import Tensor, nn

from ..ops.synthesizer_attention import (
    Values,
    initial_values,
    next_positions,
    synthesizer_attention_step,
)
from .attention_projections import NamedArguments
from .dropout import Dropout, dropout_probability
from .generation_state import GenerationState, IncrementalState
from .heads import check_heads, merge_heads, split_heads
from .masks import check_mask
from .projection import Projections
from .synthesizer_scores import ScoreMap


class SynthesizerProjections(NamedArguments, nn.Module):
    """The parameters of Synthesizer (arXiv 2005.00743): no word is compared with another one.

    Args:
        scores: a class of :mod:`.synthesizer_scores`; it decides which attention this is.
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        max_positions: the longest sequence, which the scores limit.
        dropout: dropout probability of the weights.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    def __init__(
        self,
        *,
        scores: type[ScoreMap],
        embed_dim: int,
        num_heads: int,
        max_positions: int = 1024,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_heads(num_heads, embed_dim)
        self.num_heads, self.max_positions = num_heads, max_positions
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.scores = scores(new=new, num_heads=num_heads, max_positions=max_positions)
        self.v_proj = new.input()
        self.out_proj = new.output()

    def values(self, x: Tensor) -> Tensor:
        """``x (T, B, C)`` to ``(B, H, T, D)``."""
        return split_heads(self.v_proj(x), self.num_heads)

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)

    def attend(self, x: Tensor, padding_mask: Tensor | None, *, causal: bool) -> Tensor:
        """The whole pass over ``x (T, B, C)``: ``(T, B, C)``."""
        self.check_length(len(x), self.max_positions, attention="a synthesizer")
        y = self.scores.attention(
            x, self.values(x), padding_mask=padding_mask, causal=causal, dropout_p=self.dropout_p()
        )
        return self.output(y)

    def output(self, y: Tensor) -> Tensor:
        """``(B, H, T, D)`` to ``(T, B, C)``."""
        return self.out_proj(merge_heads(y))


class SynthesizerAttention(SynthesizerProjections):
    """Bidirectional self-attention for encoders. Arguments: :class:`SynthesizerProjections`."""

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to all of them.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.

        Raises:
            UsageError: if the sequence is longer than ``max_positions``.
        """
        check_mask(padding_mask, x)
        return self.attend(x, padding_mask, causal=False)


class SynthesizerCausalAttention(GenerationState, SynthesizerProjections):
    """Causal self-attention for decoders. Arguments: :class:`SynthesizerProjections`.

    The state is the values of the steps before, half of what softmax attention keeps.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each step of ``x`` to itself and the earlier ones.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.

        Raises:
            UsageError: if the steps are more than ``max_positions``.
        """
        check_mask(padding_mask, x)
        if incremental_state is None:
            return self.attend(x, padding_mask, causal=True)
        v, saved = self.values(x), self.load_state(incremental_state)
        state = initial_values(v) if saved is None else Values(saved["v"], saved.get("steps"))
        steps = state.v.shape[2] + len(x)
        self.check_length(steps, self.max_positions, attention="a synthesizer")
        scores = self.scores.rows(x, next_positions(state, len(x), padding_mask), steps)
        options: dict[str, Any] = {"padding_mask": padding_mask, "dropout_p": self.dropout_p()}
        y, state = synthesizer_attention_step(scores, v, state, **options)
        self.save_state(
            incremental_state, {name: tensor for name, tensor in state._asdict().items() if tensor is not None}
        )
        return self.output(y)
