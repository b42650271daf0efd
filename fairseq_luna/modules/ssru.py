"""The simpler simple recurrent unit (SSRU) in place of a decoder's self-attention.

Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation"::

    f_t = sigmoid(W_f x_t + b)
    c_t = f_t c_{t-1} + (1 - f_t) W x_t               state, C numbers for all heads together
    y_t = relu(c_t)

As Marian's transformer with a decoder of type "rnn" has it by default: W has no bias, and nothing projects the output.
Parameters: ``input_proj`` (W) and ``forget_proj`` (W_f, b). Differences from the paper are in the declaration at the
    end of the file.
"""

from typing import Any

from torch import Tensor

from ..ops.dropout import drop
from ..ops.dtypes import accumulation_dtype
from ..ops.linear_recurrence import RecurrentState, linear_recurrence, linear_recurrence_step
from ..ops.padding import Padding
from ..published import Difference, Published
from .attention import SelfAttention
from .declaration import Attention, Traits
from .projection import project_together


class SSRU(SelfAttention):
    """The simpler simple recurrent unit, for decoders alone.

    Args:
        options: arguments of :class:`.SelfAttention`, without ``num_heads`` and ``causal``; ``bias`` is b. Dropout is
            the probability that a channel leaves out a step, for all later ones. Marian's leaves out channels of x, the
            same at all steps.
    """

    State = RecurrentState

    def __init__(self, **options: Any) -> None:
        super().__init__(num_heads=1, causal=True, **options)
        self.input_proj = self.linear.output_projection(bias=False)
        self.forget_proj = self.linear.output_projection()

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        inputs, gate = project_together(x, self.input_proj, self.forget_proj)
        c = linear_recurrence(*self.factors_and_inputs(inputs, gate), padding=padding)
        return c.relu().to(inputs.dtype)

    def attend_step(self, x: Tensor, padding: Padding, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        inputs, gate = project_together(x, self.input_proj, self.forget_proj)
        c, state = linear_recurrence_step(*self.factors_and_inputs(inputs, gate), state, padding=padding)
        return c.relu().to(inputs.dtype), state

    def factors_and_inputs(self, inputs: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """The arguments of the op, in fp32 for half precision: f and ``(1 - f) W x`` of ``W x`` and the logits of f."""
        gate = gate.to(accumulation_dtype(gate))
        # Not 1 - f, which has no digits left where f is nearly 1.
        return gate.sigmoid(), (-gate).sigmoid() * drop(inputs, self.dropout_p())


ATTENTIONS = (
    Attention(
        name="ssru",
        published=Published(
            'Kim et al. 2019, "From Research to Production and Back"; the formula of the cell in Marian',
            (
                Difference(
                    "dropout",
                    "a channel leaves out a step, for all later ones",
                    "a channel of the input is left out at all steps",
                    "`--attention-dropout` leaves out steps in all attentions whose sums run over time",
                ),
            ),
        ),
        paper="https://aclanthology.org/D19-5632",
        encoder="its steps see only earlier ones",
        decoder=SSRU,
        source="it is a recurrence over one sequence",
        has_heads=False,
        traits=Traits(training_time="n", decoder_state="C numbers in total", is_matrix=False),
    ),
)
