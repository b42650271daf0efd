"""The places of an attention in a model, and how it is called there: in the encoder, in the decoder, to the source."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..published import Difference
from .checks import check_mask
from .generation_state import GenerationState, IncrementalState, ModuleState, as_state, from_state
from .multihead import Multihead, QueriesKeysValues, beams_apart, beams_of, one_by_one
from .short_convolution import ShortConvolution, convolved

# What differs from the published layer of nearly every attention: models with different names are to differ in nothing
# else.
OF_ALL = (
    Difference(
        "layers",
        "fairseq's: residual connections, layer norms and feed-forward networks of its transformer",
        "often others, such as RMS norms before the attention, or a gated feed-forward network",
        "only the attention is exchanged",
    ),
    Difference(
        "projections at the start",
        "Xavier uniform, divided by sqrt(2) for queries, keys and values; biases of most maps",
        "often torch's default, or no biases",
        "as fairseq's attention; `bias=False` in Python leaves the biases out",
    ),
    Difference(
        "positions",
        "fairseq's embeddings, added to the words",
        "often the same; none where the attention knows the order",
        "`--no-token-positional-embeddings` leaves them out",
    ),
    Difference(
        "padding",
        "neither seen nor counted, wherever it stands",
        "often behind the words only, or not considered",
        "a sentence has the same result in every batch",
    ),
    Difference(
        "`--attention-dropout`",
        "where no matrix of weights is made: whole steps of a head, for all that read them",
        "often none",
        "it is 0 by default",
    ),
    Difference(
        "weight decay",
        "of all parameters",
        "often not of biases, norms and rates of forgetting",
        "fairseq's trainer has one group of parameters; see below",
    ),
)


class EncoderAttention(Multihead):
    """Self-attention of an encoder: each step sees all. A subclass has :meth:`attend`."""

    causal = False

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to all of them.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; undefined, but finite, at padding.
        """
        check_mask(padding_mask, x)
        if self.convolution is not None:
            x = self.convolution.centred(x, padding_mask=padding_mask)
        return self.attend(x, padding_mask)

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """``(T, B, C)`` to the same."""
        raise NotImplementedError


class CausalAttention(GenerationState, Multihead):
    """Self-attention of a decoder: each step sees itself and the earlier ones.

    A subclass has :meth:`attend`, :meth:`step` and ``State``, a NamedTuple of tensors with the batch first, some of
    which may be None.
    """

    causal = True
    State: ClassVar[Any]

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
            ``(T, B, C)``; undefined, but finite, at padding.
        """
        check_mask(padding_mask, x)
        saved = self.load_state(incremental_state)
        x, last_inputs = convolved(x, self.convolution, saved, padding_mask)
        if incremental_state is None:
            return self.attend(x, padding_mask)
        state = None if saved is None else from_state(self.State, saved)
        outputs = []
        for now, mask in one_by_one(x, padding_mask):
            y, state = self.step(now, mask, state)
            outputs.append(y)
        self.save_state(incremental_state, as_state(state) | last_inputs)
        return y if len(x) == 1 else torch.cat(outputs)

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """All steps at once: ``(T, B, C)`` to the same."""
        raise NotImplementedError

    def step(self, x: Tensor, padding_mask: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """The next step, ``(1, B, C)`` to the same, and the state after it; ``state`` is None before the first."""
        raise NotImplementedError


class SourceAttention(GenerationState, QueriesKeysValues):
    """Attention of a decoder to the encoder's output, the source, which generation reads once.

    A subclass has :meth:`read`, which returns what is kept of it, and :meth:`attend_to`. All beams of a sentence share
    what is kept: they become steps of one sentence.
    """

    # The name of what is kept for the weights alone, if they are asked for; None: nothing.
    kept_for_weights: ClassVar[str | None] = None

    def forward(
        self,
        x: Tensor,
        source: Tensor | None,
        *,
        source_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each step of ``x`` to the source.

        In generation the source and its mask are read at the first step and may be at the first with ``need_weights``.
        There the source may have fewer rows than ``x``: one for each sentence, which as many consecutive rows of ``x``
        read as it has beams.

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, C_source)``; in generation B may be a fraction of that of ``x``.
            source_padding_mask: ``(B, S)`` bool, True = padding: not seen.
            incremental_state: fairseq's state for generation.
            need_weights: also return the weights, which are quadratic.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` before dropout or None.
        """
        check_mask(source_padding_mask, source, "source_padding_mask")
        kept = self.load_constants(incremental_state)
        if kept is None or (need_weights and self.kept_for_weights not in (None, *kept)):
            assert source is not None, "the first step, and the first with weights, need the source"
            kept = self.read(source, source_padding_mask, need_weights=need_weights)
            if incremental_state is not None:
                self.save_constants(incremental_state, kept, beams=beams_of(x.shape[1], source.shape[1]))
        beams = beams_of(x.shape[1], next(iter(kept.values())).shape[0])
        q = self.heads_of(self.q_proj, x, beams=beams)
        y, weights = self.attend_to(q, kept, need_weights=need_weights)
        if weights is not None:
            weights = beams_apart(weights, beams).transpose(0, 1)
        return self.output(y, beams=beams), weights

    def read(self, source: Tensor, padding_mask: Tensor | None, *, need_weights: bool) -> ModuleState:
        """What is kept of ``source (S, B, C_source)``, tensors with the batch first."""
        raise NotImplementedError

    def attend_to(self, q: Tensor, kept: ModuleState, *, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """What the queries ``(B, H, T, D)`` read of it, in their shape, and if needed the weights ``(B, H, T, S)``."""
        raise NotImplementedError


class ConvolvedAttention(GenerationState):
    """A self-attention of the sequence after a short convolution (``docs/mathematics.md``).

    Args:
        attention: takes ``x (T, B, C)`` and ``padding_mask (B, T)``, and if causal ``incremental_state``; returns
            ``(T, B, C)``.
        embed_dim: channels, C.
        kernel_size: steps of the convolution, odd.
        causal: the convolution reads no later steps, as the attention does not.

    Raises:
        UsageError: if ``kernel_size`` is even or negative.
    """

    def __init__(self, attention: nn.Module, *, embed_dim: int, kernel_size: int, causal: bool) -> None:
        super().__init__()
        self.attention = attention
        self.convolution = ShortConvolution(embed_dim=embed_dim, kernel_size=kernel_size)
        self.causal = causal

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """The convolution, then the attention.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: zero for the convolution, not seen by the attention.
            incremental_state: fairseq's state for generation, if causal.

        Returns:
            ``(T, B, C)``.
        """
        check_mask(padding_mask, x)
        if not self.causal:
            return self.attention(self.convolution.centred(x, padding_mask=padding_mask), padding_mask=padding_mask)
        saved = self.load_state(incremental_state)
        x, last_inputs = convolved(x, self.convolution, saved, padding_mask)
        if incremental_state is not None:
            self.save_state(incremental_state, last_inputs)
        return self.attention(x, padding_mask=padding_mask, incremental_state=incremental_state)
