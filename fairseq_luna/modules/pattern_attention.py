"""Softmax attention to the steps of a pattern: local, top-k and sparse attention, Longformer and BigBird."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops import pattern_attention as op
from ..ops.padding import Padding
from ..ops.softmax_attention import softmax_attention
from ..published import Difference, Published
from .attention import CausalAttention, EncoderAttention, SourceAttention
from .checks import check_positive
from .conversion import Rule, Rules
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues
from .softmax_attention import SourceKeysValues

# The numbers that patterns have.
NUMBERS = ("window", "ramp", "dilation", "stride", "block_size", "count")

# What ``pattern`` may be, each with the numbers that it has by default.
local = partial(op.Window, window=16)
longformer = partial(op.Window, window=512)
topk = partial(op.TopK, count=8)
bigbird = partial(op.RandomBlocks, block_size=64, random=3)


def sparse(*, stride: int = 32) -> op.Strided:
    """The own block of ``stride`` steps, and the last quarter of every block, 8 at most: O(N^1.5) at sqrt(N)."""
    return op.Strided(stride, summary=max(1, min(8, stride // 4)))


class PatternProjections(QueriesKeysValues):
    """The parameters of attention to a pattern: those of softmax attention.

    Args:
        pattern: ``local``, ``longformer``, ``topk``, ``sparse`` or ``bigbird``; it decides which attention this is.
        options: arguments of ``pattern``, and those of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if an argument of ``pattern`` is below 1, or :class:`.QueriesKeysValues` refuses an option.
    """

    def __init__(self, *, pattern: Callable[..., op.Pattern], **options: Any) -> None:
        chosen = {name: options.pop(name) for name in NUMBERS if name in options}
        super().__init__(**options)
        check_positive(**chosen)
        self.pattern = pattern(**chosen)

    def inputs(self, x: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor, op.Pattern]:
        """The arguments of the op for ``x (T, B, C)``: q, k and v, and the pattern."""
        return *self.queries_keys_values(x), self.pattern


class PatternAttention(PatternProjections, EncoderAttention):
    """Self-attention of an encoder to the steps of a pattern. Arguments: :class:`PatternProjections`.

    At padding the result is the bias of the output projection.
    """

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.output(self.attended(x, padding))

    def attended(self, x: Tensor, padding: Padding) -> Tensor:
        """What the output projection gets, ``(B, H, T, D)``."""
        return op.pattern_attention(*self.inputs(x, padding), **self.options(padding))


class PatternCausalAttention(PatternProjections, CausalAttention):
    """Self-attention of a decoder to the earlier steps of a pattern. Arguments: :class:`PatternProjections`.

    The state is the keys and values of the steps before that a later step can see: for top-k attention all, as for
    sparse attention in a batch with padding or in an exported model. At padding the result is the bias of the output
    projection.
    """

    State = op.Cache

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        inputs = self.inputs(x, padding)
        return self.output(op.pattern_attention(*inputs, causal=True, **self.options(padding)))

    def attend_step(
        self, x: Tensor, padding: Padding, state: op.Cache | op.Ring | None
    ) -> tuple[Tensor, op.Cache | op.Ring]:
        inputs = self.inputs(x, padding)
        y, state = op.pattern_attention_step(*inputs, state, **self.options(padding))
        return self.output(y), state

    def state_with_room(self, state: op.Cache | op.Ring, tokens: int) -> op.Ring:
        return op.ring_of(state, self.pattern, tokens)


class TopKSourceAttention(PatternProjections, SourceAttention):
    """Cross-attention to the steps of the source with the largest scores.

    Arguments: :class:`PatternProjections`, with the pattern ``topk``.
    """

    pattern: op.TopK

    Cached = SourceKeysValues

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> SourceKeysValues:
        return SourceKeysValues(self.heads_of(self.k_proj, source), self.heads_of(self.v_proj, source))

    def attend_queries(
        self, q: Tensor, cached: SourceKeysValues, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        options = self.options(padding) | {"count": self.pattern.count, "need_weights": need_weights}
        return op.topk_attention(q, *cached, **options)


class LongformerAttention(PatternAttention):
    """Attention to a window and to the first step, which sees all with projections of its own (arXiv 2004.05150).

    Args:
        options: those of :class:`PatternProjections` with the pattern ``longformer``.
    """

    conversion_rules: ClassVar[Rules] = {
        "first_q_proj": Rule(("q_proj",)),
        "first_k_proj": Rule(("k_proj",)),
        "first_v_proj": Rule(("v_proj",)),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(pattern=partial(longformer, first=True), **options)
        self.first_q_proj = self.new.input()
        self.first_k_proj = self.new.input()
        self.first_v_proj = self.new.input()

    def attended(self, x: Tensor, padding: Padding) -> Tensor:
        y = super().attended(x, padding)
        is_first = None
        first = x[:1]
        if padding.mask is not None:
            is_first = ~padding.mask & (padding.counts == 1)
            first = (x * is_first.t()[:, :, None]).sum(0, keepdim=True)
        of_first, _ = softmax_attention(
            self.heads_of(self.first_q_proj, first),
            *(self.heads_of(projection, x) for projection in (self.first_k_proj, self.first_v_proj)),
            **self.options(padding),
        )
        if is_first is None:
            return torch.cat([of_first, y[:, :, 1:]], dim=2)
        return torch.where(is_first[:, None, :, None], of_first, y)


class BigBirdAttention(PatternAttention):
    """Attention to neighbouring, to the first, the last and to random blocks (arXiv 2007.14062).

    The random blocks of a head are a function of its seed, which torch's generator gives when the module is made and
    which is in the checkpoint, and of the number of blocks of the sentence.

    Args:
        num_heads, options: those of :class:`PatternProjections` with the pattern ``bigbird``.
    """

    pattern: op.RandomBlocks
    seeds: Tensor

    def __init__(self, *, num_heads: int, **options: Any) -> None:
        seeds = torch.randint(2**31, (num_heads,))
        super().__init__(pattern=partial(bigbird, seeds=seeds), num_heads=num_heads, **options)
        self.register_buffer("seeds", seeds)

    def inputs(self, x: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor, op.Pattern]:
        return *self.queries_keys_values(x), replace(self.pattern, seeds=self.seeds)


ATTENTIONS = (
    Attention(
        name="local",
        published=Published(
            "the local attention of the Long Range Arena (arXiv 2011.04006)",
            (
                Difference(
                    "what a step sees",
                    "16 steps on each side of it",
                    "the steps of its block",
                    "a word at the edge of a block would not see its neighbour",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2011.04006",
        encoder=partial(PatternAttention, pattern=local),
        decoder=partial(PatternCausalAttention, pattern=local),
        source="there is no distance between a target word and a source word",
        traits=Traits(training_time="nwD", decoder_state="a window of keys and values", sees_every_step=False),
        flags=(
            Flag(
                name="attention_window",
                argument="window",
                help="steps that a step sees on each side",
                default=16,
                minimum=1,
            ),
        ),
    ),
    Attention(
        name="topk",
        published=Published("arXiv 1912.11637"),
        paper="https://arxiv.org/abs/1912.11637",
        encoder=partial(PatternAttention, pattern=topk),
        decoder=partial(PatternCausalAttention, pattern=topk),
        source=partial(TopKSourceAttention, pattern=topk),
        unaligned="most of its weights are 0",
        traits=Traits(
            training_time="n²",
            decoder_state="grows",
            sees_every_step=False,
            quadratic=True,
            state_grows=True,
            continuous=False,
        ),
        flags=(
            Flag(
                name="attention_topk",
                argument="count",
                help="steps that a query keeps: the steps with the largest scores",
                default=8,
                minimum=1,
            ),
        ),
    ),
    Attention(
        name="sparse",
        published=Published(
            "arXiv 1904.10509, the fixed pattern, as in fairseq",
            (
                Difference(
                    "block and summary",
                    "32 steps, of which the last 8 are seen by all; of shorter blocks a quarter",
                    "128 in the paper, of which 8 to 32; 32 and 8 in fairseq, with the next block's first step in both",
                    "fairseq's defaults, because sentences are shorter than the paper's images; the paper's blocks",
                ),
                Difference(
                    "heads",
                    "all see both parts",
                    "both parts, or one each",
                    "the merged form of the paper, as in fairseq",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/1904.10509",
        encoder=partial(PatternAttention, pattern=sparse),
        decoder=partial(PatternCausalAttention, pattern=sparse),
        source="there is no distance between a target word and a source word",
        traits=Traits(
            training_time="n·sqrt(n) to n²",
            decoder_state="grows",
            sees_every_step=False,
            quadratic=True,
            state_grows=True,
        ),
        flags=(Flag(name="attention_chunk", argument="stride", help="steps of a block", default=32, minimum=1),),
    ),
    Attention(
        name="longformer",
        published=Published(
            "arXiv 2004.05150",
            (
                Difference(
                    "window",
                    "512 steps on each side",
                    "512 in all",
                    "`--attention-window` counts one side, as for local; 256 is the paper's",
                ),
                Difference(
                    "steps that see all",
                    "the first word of an encoder; none in a decoder",
                    "chosen for each task",
                    "no later word is known in a decoder, and fairseq's tasks choose none",
                ),
                Difference(
                    "their projections at the start",
                    "drawn",
                    "copies of those of the other steps",
                    "the authors start from a trained RoBERTa, here training starts from nothing",
                ),
                Difference(
                    "dilation",
                    "`--attention-dilation`, of all heads and layers; 1 by default",
                    "of two heads in the upper layers",
                    "one number for a model",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2004.05150",
        encoder=LongformerAttention,
        decoder=partial(PatternCausalAttention, pattern=longformer),
        source="there is no distance between a target word and a source word",
        traits=Traits(training_time="nwD", decoder_state="a window", sees_every_step=False),
        flags=(
            Flag(
                name="attention_window",
                argument="window",
                help="steps that a step sees on each side; the paper has 512 in all",
                default=512,
                minimum=1,
            ),
            Flag(
                name="attention_dilation",
                argument="dilation",
                help="distance between two neighbouring steps that a step sees",
                default=1,
                minimum=1,
            ),
        ),
    ),
    Attention(
        name="bigbird",
        published=Published(
            "arXiv 2007.14062, with the first and the last block seen by all",
            (
                Difference(
                    "random blocks",
                    "of a sentence's own number of blocks, from the seed of a head",
                    "of the padded length, from the number of the layer",
                    "a sentence has the same result in every batch",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2007.14062",
        encoder=BigBirdAttention,
        decoder="its blocks see later words",
        source="there is no distance between a target word and a source word",
        traits=Traits(training_time="n", decoder_state="", sees_every_step=False),
        flags=(Flag(name="attention_chunk", argument="block_size", help="steps of a block", default=64, minimum=1),),
    ),
)
