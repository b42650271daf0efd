"""Softmax attention to the steps of a pattern: local, top-k and sparse attention, Longformer and BigBird.

For each head, with the steps P(t) that step t sees::

    y_t = sum_{j in P(t)} softmax_{j in P(t)}( q_t . k_j / sqrt(D) ) v_j,       out = W_o [y of all heads]

===========  ======================================================================  =================
name         P(t); a decoder sees none after t
===========  ======================================================================  =================
local        the w steps on each side                                                arXiv 2011.04006
longformer   a wider window, and the first step, which sees all                      arXiv 2004.05150
topk         the steps with the largest scores                                       arXiv 1912.11637
sparse       the step's own block, and the last steps of every block                 arXiv 1904.10509
bigbird      neighboring blocks, the first, the last and random blocks               arXiv 2007.14062
===========  ======================================================================  =================

Parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``; an encoder's longformer also has ``first_q_proj``,
``first_k_proj`` and ``first_v_proj``, bigbird the buffer ``seeds``. Differences from the papers are in the declarations
at the end of the file.
"""

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
from .argument_checks import check_positive
from .attention import CrossAttention, SelfAttention
from .conversion import Rule, Rules
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues
from .softmax_attention import SourceKeysValues

# Arguments of patterns.
PATTERN_ARGUMENTS = ("window", "ramp", "dilation", "stride", "block_size", "count")

# Values of the argument ``pattern``, each with its default numbers.
local = partial(op.Window, window=16)
longformer = partial(op.Window, window=512)
topk = partial(op.TopK, count=8)
bigbird = partial(op.RandomBlocks, block_size=64, random=3)


def sparse(*, stride: int = 32) -> op.Strided:
    """The own block of ``stride`` steps, and the last quarter of every block, 8 at most: O(N^1.5) at sqrt(N)."""
    return op.Strided(stride, summary=max(1, min(8, stride // 4)))


class PatternProjections(QueriesKeysValues):
    """The parameters of attention to a pattern, which are the parameters of softmax attention.

    Args:
        pattern: ``local``, ``longformer``, ``topk``, ``sparse`` or ``bigbird``; it decides which attention this is.
        options: arguments of ``pattern`` and of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if an argument of ``pattern`` is below 1, or :class:`.QueriesKeysValues` refuses an option.
    """

    def __init__(self, *, pattern: Callable[..., op.Pattern], **options: Any) -> None:
        chosen = {name: options.pop(name) for name in PATTERN_ARGUMENTS if name in options}
        super().__init__(**options)
        check_positive(**chosen)
        self.pattern = pattern(**chosen)

    def op_arguments(self, x: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor, op.Pattern]:
        """q, k and v of ``x (T, B, C)``, each ``(B, H, T, D)``, and the pattern."""
        return *self.queries_keys_values(x), self.pattern


class PatternAttention(PatternProjections, SelfAttention):
    """Self-attention to the steps of a pattern. Arguments: :class:`PatternProjections`, and ``causal``.

    The state of a decoder is the keys and values of the earlier steps that a later step can see: for top-k attention
    all, as for sparse attention in a batch with padding or in an exported model. At padding the result is the bias of
    the output projection.
    """

    State: ClassVar[Any] = op.PatternCache

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.project_output(self.attend_heads(x, padding))

    def attend_heads(self, x: Tensor, padding: Padding) -> Tensor:
        """The outputs of the heads, ``(B, H, T, D)``."""
        return op.pattern_attention(*self.op_arguments(x, padding), causal=self.causal, **self.op_options(padding))

    def attend_step(
        self, x: Tensor, padding: Padding, state: op.PatternCache | op.PatternRing | None
    ) -> tuple[Tensor, op.PatternCache | op.PatternRing]:
        y, state = op.pattern_attention_step(*self.op_arguments(x, padding), state, **self.op_options(padding))
        return self.project_output(y), state

    def state_with_room(self, state: op.PatternCache | op.PatternRing, max_steps: int) -> op.PatternRing:
        return op.allocate_ring(state, self.pattern, max_steps)


class TopKCrossAttention(PatternProjections, CrossAttention):
    """Cross-attention to the steps of the source with the largest scores.

    Arguments: :class:`PatternProjections`, with the pattern ``topk``.
    """

    pattern: op.TopK

    Cached = SourceKeysValues

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> SourceKeysValues:
        return SourceKeysValues(self.project_heads(self.k_proj, source), self.project_heads(self.v_proj, source))

    def attend_queries(
        self, q: Tensor, cached: SourceKeysValues, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        options = {**self.op_options(padding), "count": self.pattern.count, "need_weights": need_weights}
        return op.topk_attention(q, *cached, **options)


class LongformerAttention(PatternAttention):
    """An encoder's attention to a window and to the first step, which sees all with projections of its own.

    Args:
        options: arguments of :class:`PatternProjections` with the pattern ``longformer``.
    """

    State = None  # a decoder's longformer has no step that sees all: it is PatternAttention
    conversion_rules: ClassVar[Rules] = {
        "first_q_proj": Rule(("q_proj",)),
        "first_k_proj": Rule(("k_proj",)),
        "first_v_proj": Rule(("v_proj",)),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(pattern=partial(longformer, first=True), **options)
        self.first_q_proj = self.linear.input_projection()
        self.first_k_proj = self.linear.input_projection()
        self.first_v_proj = self.linear.input_projection()

    def attend_heads(self, x: Tensor, padding: Padding) -> Tensor:
        y = super().attend_heads(x, padding)
        is_first = None
        first = x[:1]
        if padding.mask is not None:
            is_first = ~padding.mask & (padding.counts == 1)
            first = (x * is_first.t()[:, :, None]).sum(0, keepdim=True)
        y_first, _ = softmax_attention(
            self.project_heads(self.first_q_proj, first),
            *(self.project_heads(projection, x) for projection in (self.first_k_proj, self.first_v_proj)),
            **self.op_options(padding),
        )
        if is_first is None:
            return torch.cat([y_first, y[:, :, 1:]], dim=2)
        return torch.where(is_first[:, None, :, None], y_first, y)


class BigBirdAttention(PatternAttention):
    """An encoder's attention to neighboring, to the first, the last and to random blocks.

    The random blocks of a head are a function of its seed, which torch's generator gives when the module is created and
    which is in the checkpoint, and of the number of blocks of the sentence.

    Args:
        num_heads, options: arguments of :class:`PatternProjections` with the pattern ``bigbird``.
    """

    State = None  # its blocks see later steps
    pattern: op.RandomBlocks
    seeds: Tensor

    def __init__(self, *, num_heads: int, **options: Any) -> None:
        seeds = torch.randint(2**31, (num_heads,))
        super().__init__(pattern=partial(bigbird, seeds=seeds), num_heads=num_heads, **options)
        self.register_buffer("seeds", seeds)

    def op_arguments(self, x: Tensor, padding: Padding) -> tuple[Tensor, Tensor, Tensor, op.Pattern]:
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
                    "a token at the edge of a block would not see its neighbor",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2011.04006",
        encoder=partial(PatternAttention, pattern=local),
        decoder=partial(PatternAttention, pattern=local, causal=True),
        source="there is no distance between a target token and a source token",
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
        decoder=partial(PatternAttention, pattern=topk, causal=True),
        source=partial(TopKCrossAttention, pattern=topk),
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
                    "32 steps; all see the last 8, or the last quarter of shorter blocks",
                    "128 in the paper, and all see 8 to 32 of them; 32 and 8 in fairseq; both with the next block's"
                    " first step",
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
        decoder=partial(PatternAttention, pattern=sparse, causal=True),
        source="there is no distance between a target token and a source token",
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
                    "the first token of an encoder; none in a decoder",
                    "chosen for each task",
                    "no later token is known in a decoder, and fairseq's tasks choose none",
                ),
                Difference(
                    "their projections at the start",
                    "drawn",
                    "copies of the projections of the other steps",
                    "the authors start from a trained RoBERTa; here training starts from scratch",
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
        decoder=partial(PatternAttention, pattern=longformer, causal=True),
        source="there is no distance between a target token and a source token",
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
                help="distance between two neighboring steps that a step sees",
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
        decoder="its blocks see later tokens",
        source="there is no distance between a target token and a source token",
        traits=Traits(training_time="n", decoder_state="", sees_every_step=False),
        flags=(Flag(name="attention_chunk", argument="block_size", help="steps of a block", default=64, minimum=1),),
    ),
)
