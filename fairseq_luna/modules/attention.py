"""The two bases of attentions, self-attention and cross-attention, which define how every attention is called."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..older_names import rename_parameters
from ..ops.padding import Padding, PaddingLike
from ..published import Difference
from ..usage_error import ArgumentError
from .argument_checks import validate_padding
from .decoding_state import AfterConvolution, StateType, batch_size_of
from .multihead import Multihead, QueriesKeysValues, beams_apart, beams_of
from .short_convolution import convolution_of

# Differences from the published layer of nearly every attention: models with different names differ only in their
# attention.
DIFFERENCES_OF_ALL = (
    Difference(
        "layers",
        "fairseq's: residual connections, layer norms and feed-forward networks of its transformer",
        "often others, such as RMS norms before the attention, or a gated feed-forward network",
        "only the attention is replaced",
    ),
    Difference(
        "projections at the start",
        "Xavier uniform, divided by sqrt(2) for queries, keys and values; biases of most maps",
        "often torch's default, or no biases",
        "as fairseq's attention; `bias=False` in Python leaves the biases out",
    ),
    Difference(
        "positions",
        "fairseq's embeddings, added to the tokens",
        "often the same; none where the attention knows the order",
        "`--no-token-positional-embeddings` leaves them out",
    ),
    Difference(
        "padding",
        "masked and not counted, at any position",
        "often supported at the end only, or ignored",
        "a sentence has the same result in every batch",
    ),
    Difference(
        "`--attention-dropout`",
        "where no weight matrix is computed: whole steps of a head, for all queries",
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


class SelfAttention(Multihead):
    """Self-attention, which a convolution may precede: each step sees all steps or, if ``causal``, no later one.

    A subclass has :meth:`attend`. If it can be causal it also has :meth:`attend_step` for one step of generation, and
    ``State``, the NamedTuple of tensors, with the batch first, that is the state between two steps. The fields of a
    state may be None.

    Args:
        causal: for a decoder: no step sees a later one.
        options: further arguments, of :class:`.Multihead`.

    Raises:
        UsageError: if the class has no causal form and ``causal`` is set, or :class:`.Multihead` refuses an option.
    """

    State: ClassVar[Any] = None

    def __init__(self, *, causal: bool = False, **options: Any) -> None:
        super().__init__(**options)
        if causal and self.State is None:
            raise ArgumentError("causal", causal, f"{type(self).__name__} has no causal form; leave it out")
        self.causal = causal

    def convolve(self, kernel_size: int) -> None:
        """Add a short convolution over the whole sequence, before the attention (``docs/mathematics.md``); 0 adds none.

        Called after all other parameters have been created: optimizer states of checkpoints are in this order.

        Raises:
            UsageError: if ``kernel_size`` is even or negative.
        """
        self.convolution = convolution_of(kernel_size, embed_dim=self.embed_dim)

    def forward(self, x: Tensor, *, padding_mask: PaddingLike = None) -> Tensor:
        """Attend from each step of ``x`` to the steps that it sees.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; undefined, but finite, at padding.
        """
        padding = validate_padding(padding_mask, x)
        if self.convolution is not None and self.causal:
            x, _ = self.convolution.causal(x, padding=padding)
        elif self.convolution is not None:
            x = self.convolution.centered(x, padding=padding)
        return self.attend(x, padding)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        """The attention of all steps at once, after the convolution: ``(T, B, C)`` to the same."""
        raise NotImplementedError

    @property
    def state_type(self) -> StateType:
        """The type of the state, for :func:`.decoding_state.unflatten_state`."""
        return self.State if self.convolution is None else (AfterConvolution, {"state": self.State})

    def step(self, x: Tensor, padding: PaddingLike, state: Any) -> tuple[Tensor, Any]:
        """The next step, or the next steps, of generation: a pure function of tensors.

        Args:
            x: ``(T, B, C)``; T is 1 but for a segment of several steps, which are computed one after the other.
            padding: of these steps, as in :meth:`forward`. A padded step changes nothing for later ones.
            state: the second result of the call before; None: there is none.

        Returns:
            ``(T, B, C)``, and the state after these steps: tensors ``(B, ...)`` in a NamedTuple.

        Raises:
            UsageError: if the attention is not causal.
        """
        if not self.causal:
            raise ArgumentError("causal", self.causal, "step() is for generation; build the attention with causal=True")
        padding = validate_padding(padding, x)
        inputs = None
        if self.convolution is not None:
            inputs, state = (None, None) if state is None else state
            x, inputs = self.convolution.causal(x, padding=padding, past=inputs)
        if x.shape[0] == 1:
            y, state = self.attend_step(x, padding, state)
        else:
            outputs = []
            for place, one in enumerate(x.split(1)):
                y, state = self.attend_step(one, padding.at_step(place), state)
                outputs.append(y)
            y = torch.cat(outputs)
        return y, state if inputs is None else AfterConvolution(inputs, state)

    def with_room(self, state: Any, max_steps: int) -> Any:
        """Allocate memory in ``state`` for at most ``max_steps`` steps, the past ones included.

        Steps on the result change no shape, so that they can be recorded and replayed on the same memory. A state that
        has room already gets more. A state whose size does not depend on the number of steps is returned as it is.

        Args:
            state: the second result of :meth:`step`.
            max_steps: steps that the state must hold, at least as many as it holds now.
        """
        if self.convolution is None:
            return self.state_with_room(state, max_steps)
        return state._replace(state=self.state_with_room(state.state, max_steps))

    def state_with_room(self, state: Any, max_steps: int) -> Any:
        """:meth:`with_room` for the state after the convolution; a subclass whose state grows overrides it."""
        return state

    def attend_step(self, x: Tensor, padding: Padding, state: Any) -> tuple[Tensor, Any]:
        """:meth:`step` for one step, after the convolution: ``(1, B, C)`` and the state, to the same."""
        raise NotImplementedError

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Rename parameters of older checkpoints; fairseq calls it. See :func:`..older_names.rename_parameters`."""
        rename_parameters(state_dict)


class CrossAttention(QueriesKeysValues):
    """Attention of a decoder to the encoder's output, the source, which generation reads once.

    A subclass has :meth:`read_source`, which returns a ``Cached``, a NamedTuple of tensors with the batch first, and
    :meth:`attend_queries`. All beams of a sentence share its cache: they become steps of one sentence.
    """

    Cached: ClassVar[Any]

    @property
    def cached_type(self) -> StateType:
        """The type of the cache of a source, for :func:`.decoding_state.unflatten_state`."""
        return self.Cached

    def forward(
        self, x: Tensor, source: Tensor, *, source_padding_mask: PaddingLike = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each step of ``x`` to the source.

        Args:
            x: ``(T, B, C)``.
            source: ``(S, B, C_source)``; B may be a fraction of the batch of ``x``: see :meth:`attend_to_source`.
            source_padding_mask: ``(B, S)`` bool, True = padding: not seen.
            need_weights: also return the weights, which are quadratic in size.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` before dropout or None.
        """
        padding = validate_padding(source_padding_mask, source, "source_padding_mask")
        cached = self.read_source(source, padding, need_weights=need_weights)
        return self.attend_to_source(x, cached, padding, need_weights=need_weights)

    def attend_to_source(
        self, x: Tensor, cached: Any, padding: Padding, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to a source that has been read; see :meth:`forward`.

        Args:
            x: ``(T, B, C)``.
            cached: the result of :meth:`read_source`. It may have fewer rows than ``x``: one for each sentence, which
                as many consecutive rows of ``x`` read as the sentence has beams.
            padding: of the source.
            need_weights: also return the weights, for which the source must have been read.

        Returns:
            As :meth:`forward`.
        """
        beams = beams_of(x.shape[1], batch_size_of(cached))
        q = self.project_heads(self.q_proj, x, beams=beams)
        y, weights = self.attend_queries(q, cached, padding, need_weights=need_weights)
        if weights is not None:
            weights = beams_apart(weights, beams).transpose(0, 1)
        return self.project_output(y, beams=beams), weights

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> Any:
        """Cache ``source (S, B, C_source)``; ``need_weights``: also the parts that only the weights need."""
        raise NotImplementedError

    def attend_queries(
        self, q: Tensor, cached: Any, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The output for the queries ``(B, H, T, D)``, in their shape, and if needed the weights ``(B, H, T, S)``."""
        raise NotImplementedError
