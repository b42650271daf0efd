"""Adaptive attention span (arXiv 1905.07799): attention to a window; each head learns how much of it to see.

For each head, with a learned share s in [0, 1] of the largest distance S, and a ramp of R steps::

    m(d) = clamp( (R + s S - d) / R, 0, 1 )                     soft mask of the distance d
    y_t  = sum_j m(t - j) exp( q_t . k_j / sqrt(D) ) v_j  /  the same sum without v_j

Parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``, and ``span (H,)``. Differences from the paper are in the
declaration at the end of the file.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.padding import Padding
from ..ops.pattern_attention import Pattern, Window
from ..published import Difference, Published
from ..usage_error import ArgumentError
from .conversion import Rule, Rules, ones
from .declaration import Attention, Flag, Traits
from .multihead import padding_of
from .pattern_attention import PatternAttention


class AdaptiveSpanAttention(PatternAttention):
    """Attention to a window, to both sides or, if ``causal``, before each step; each head learns how much of it to see.

    As published, the shares start at 0, where a head sees its ramp, and act as 0 or 1 if beyond. The state of a decoder
    is the last S steps.

    Args:
        window: S, the largest distance that a head sees.
        ramp: R, the steps beyond a head's span over which its weights fall to 0.
        penalty: cost that the paper adds to the loss of a token for each step of the heads' mean span. Here the
            backward pass of training adds it, as a gradient of the spans, for each real step: fairseq divides gradients
            by the number of target tokens. A decoder therefore pays the paper's cost, and an encoder that cost times
            the ratio of source to target tokens. --sentence-avg multiplies it by the tokens per sentence; --fp16 and
            --amp divide it by the loss scale.
        options: arguments of :class:`.PatternAttention`.

    Raises:
        UsageError: if ``penalty`` is below 0 or not finite, or :class:`.PatternAttention` refuses an option.
    """

    # Heads see the whole window, as a transformer's do.
    conversion_rules: ClassVar[Rules] = {"span": Rule(start=ones)}

    pattern: Window

    def __init__(self, *, window: int = 512, ramp: int = 32, penalty: float = 2e-6, **options: Any) -> None:
        super().__init__(pattern=partial(Window, window=window, ramp=ramp), **options)
        if not 0 <= penalty < math.inf:
            raise ArgumentError("penalty", penalty, "must be 0 or more, such as 2e-6")
        self.penalty = penalty
        self.span = nn.Parameter(torch.zeros(self.num_heads))

    def op_arguments(self, x: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor, Pattern]:
        window, span = self.pattern.window, self.span.clamp(0, 1)
        if self.training:
            real = padding_of(x, padding).lengths.sum()
            span = ClampedSpan.apply(self.span, real * (self.penalty * window / self.num_heads))
        return *self.queries_keys_values(x), replace(self.pattern, spans=span * window)


class ClampedSpan(torch.autograd.Function):
    """Clamps shares to [0, 1]; adds a cost to their gradient, which is 0 where it would lead further out."""

    @staticmethod
    def forward(ctx: Any, span: Tensor, cost: Tensor) -> Tensor:
        ctx.save_for_backward(span, cost)
        return span.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        span, cost = ctx.saved_tensors
        gradient = gradient + cost
        return gradient.masked_fill(((span < 0) & (gradient > 0)) | ((span > 1) & (gradient < 0)), 0), None


ATTENTIONS = (
    Attention(
        name="adaptive-span",
        published=Published(
            "arXiv 1905.07799; the authors' adaptive-span",
            (
                Difference(
                    "what a step sees",
                    "itself and the steps before it",
                    "the steps before it",
                    "as every decoder of fairseq; the largest distance is `--attention-window`",
                ),
                Difference(
                    "positions",
                    "fairseq's embeddings, added to the tokens",
                    "a learned vector for each distance",
                    "they would need a second product for the scores; order is known from the embeddings",
                ),
                Difference(
                    "earlier text",
                    "none",
                    "a memory of the steps before the batch",
                    "sentences and documents are read whole",
                ),
                Difference(
                    "penalty",
                    "a gradient, added in the backward pass for each real step",
                    "a part of the loss",
                    "fairseq's criterions do not ask a model for losses",
                ),
                Difference("biases", "of all projections", "none", "as fairseq's attention has"),
                Difference(
                    "in the encoder",
                    "a span to both sides",
                    "decoder only",
                    "an encoder's tokens should see both sides",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/1905.07799",
        encoder=AdaptiveSpanAttention,
        decoder=partial(AdaptiveSpanAttention, causal=True),
        source="there is no distance between a target token and a source token",
        traits=Traits(training_time="nwD", decoder_state="a window", sees_every_step=False),
        flags=(
            Flag(
                name="attention_window",
                argument="window",
                help="largest distance that a head sees",
                default=512,
                minimum=1,
            ),
            Flag(
                name="span_ramp",
                argument="ramp",
                help="steps beyond a head's span over which its weights fall to 0",
                default=32,
                minimum=1,
            ),
            Flag(
                name="span_penalty",
                argument="penalty",
                help="loss for each step of the mean span, added as a gradient; not with --fp16, --amp",
                kind=float,
                default=2e-6,
                minimum=0,
            ),
        ),
    ),
)
