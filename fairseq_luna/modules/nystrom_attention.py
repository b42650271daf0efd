"""Nystrom attention (Nystromformer, arXiv 2102.03902) for encoders: softmax attention through a few landmarks.

With L landmarks q', k', the means of consecutive queries and keys, pinv an iterative pseudo-inverse, and a depthwise
convolution of the values::

    Y = softmax(q k'^T / sqrt(D)) pinv(softmax(q' k'^T / sqrt(D))) softmax(q' k^T / sqrt(D)) v + conv(v)

Parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj`` and ``kernel`` of the convolution. Differences from the
    paper are in the declaration at the end of the file.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.nystrom_attention import nystrom_attention
from ..ops.padding import Padding
from ..published import Difference, Published
from ..usage_error import ArgumentError
from .argument_checks import check_positive
from .attention import SelfAttention
from .conversion import Rule, Rules, zero
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues


class NystromAttention(QueriesKeysValues, SelfAttention):
    """Bidirectional self-attention through the means of consecutive steps, linear in the length.

    Keys have no bias: it would add the same number to all scores of a query. If a sentence is all padding, the result
    is the bias of the output projection.

    Args:
        num_slots: landmarks, L.
        kernel_size: steps of the convolution of the values, odd.
        iterations: iterations of the pseudo-inverse.
        options: arguments of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, ``num_slots`` is below 1, or ``kernel_size`` is even
            or below 1.
    """

    conversion_rules: ClassVar[Rules] = {"kernel": Rule(start=zero)}

    def __init__(self, *, num_slots: int = 64, kernel_size: int = 33, iterations: int = 6, **options: Any) -> None:
        super().__init__(key_bias=False, **options)
        check_positive(num_slots=num_slots, kernel_size=kernel_size)
        if kernel_size % 2 == 0:
            raise ArgumentError("kernel_size", kernel_size, "must be odd, such as 33: its middle is the step itself")
        self.num_slots, self.iterations = num_slots, iterations
        bound = kernel_size**-0.5  # as in torch's convolutions
        self.kernel = nn.Parameter(torch.empty(self.num_heads, kernel_size).uniform_(-bound, bound))

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        y = nystrom_attention(
            *(q, k, v, self.kernel),
            num_landmarks=self.num_slots,
            iterations=self.iterations,
            **self.op_options(padding),
        )
        return self.project_output(y)


ATTENTIONS = (
    Attention(
        name="nystrom",
        published=Published(
            "arXiv 2102.03902; the authors' Nystromformer",
            (
                Difference(
                    "landmarks",
                    "of a sentence's own tokens, of any number",
                    "of the batch, whose length they must divide",
                    "a sentence has the same result in every batch",
                ),
                Difference(
                    "initial value of the pseudo-inverse",
                    "scaled for each head and sentence",
                    "scaled by the batch's largest sum, or the same as an option",
                    "a sentence has the same result in every batch",
                ),
                Difference("bias of the keys", "none", "yes", "it would have no effect"),
            ),
        ),
        paper="https://arxiv.org/abs/2102.03902",
        encoder=NystromAttention,
        decoder="its landmarks are means of all positions, later ones too",
        source="its landmarks are of one sequence",
        traits=Traits(training_time="nLD", decoder_state=""),
        flags=(Flag(name="num_slots", argument="num_slots", help="landmarks", default=64, minimum=1),),
    ),
)
