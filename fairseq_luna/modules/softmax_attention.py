"""Softmax attention (arXiv 1706.03762), with the parameters and the numbers of fairseq's MultiheadAttention.

For each head, with the projections q, k and v of size D::

    y_t = sum_j softmax_j( q_t . k_j / sqrt(D) ) v_j        over all steps j; over j <= t if causal
    out = W_o [y of all heads]

Parameters: ``k_proj``, ``v_proj``, ``q_proj``, ``out_proj``, in fairseq's order. No differences from the paper.
"""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.padding import Padding
from ..ops.softmax_attention import causal_softmax_attention, softmax_attention
from ..published import Published
from .attention import CrossAttention, SelfAttention
from .declaration import Attention, Traits
from .multihead import QueriesKeysValues
from .projection import INPUT_GAIN


class SoftmaxProjections(QueriesKeysValues):
    """The parameters of softmax attention, named and ordered as in fairseq's MultiheadAttention.

    Args:
        options: arguments of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    def create_projections(self, *, source_dim: int, key_bias: bool) -> None:
        """Draw the same random numbers as fairseq: all maps are created first, then each is filled."""
        linear, size = self.linear, self.embed_dim
        maps = {
            "k_proj": nn.Linear(source_dim, size, bias=key_bias),
            "v_proj": nn.Linear(source_dim, size, bias=linear.bias),
            "q_proj": nn.Linear(size, size, bias=linear.bias),
            "out_proj": nn.Linear(size, size, bias=linear.bias),
        }
        gain = INPUT_GAIN if source_dim == size else 1.0
        for name, each in maps.items():
            nn.init.xavier_uniform_(each.weight, gain=1.0 if name == "out_proj" else gain)
            setattr(self, name, linear.with_quant_noise(each))
        if linear.bias:
            nn.init.zeros_(maps["out_proj"].bias)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.project_heads_together(x, self.q_proj, self.k_proj, self.v_proj)
        return q, k, v


class KeysAndValues(NamedTuple):
    """The cached keys and values of all steps so far."""

    key: Tensor  # (B, H, N, D)
    value: Tensor  # (B, H, N, D)
    padding_mask: Tensor | None  # (B, N) bool, True = padding, or a place that is free
    filled: Tensor | None = None  # (B,) int64, the number of places in use; None: all, each step adds a place


class SoftmaxAttention(SoftmaxProjections, SelfAttention):
    """Attention of every step to every step or, if ``causal``, to itself and the earlier ones.

    The state, keys and values, grows with each step. Where no step is seen, the result is the bias of the output
    projection. Arguments: :class:`SoftmaxProjections`, and ``causal``.
    """

    State = KeysAndValues

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        if self.causal:
            return self.attend_step(x, padding, None)[0]
        q, k, v = self.queries_keys_values(x)
        return self.project_output(softmax_attention(q, k, v, **self.op_options(padding))[0])

    def attend_step(self, x: Tensor, padding: Padding, state: KeysAndValues | None) -> tuple[Tensor, KeysAndValues]:
        q, k, v = self.queries_keys_values(x)
        if state is not None and state.filled is not None:
            state = with_next_place(state, k, v, padding)
            y = causal_softmax_attention(q, state.key, state.value, **self.op_options(Padding(state.padding_mask)))
            return self.project_output(y), state
        if state is not None:
            steps = state.key.shape[2]
            padding = Padding(state.padding_mask).followed_by(padding, steps=steps, others=len(x), like=x)
            k, v = torch.cat([state.key, k], dim=2), torch.cat([state.value, v], dim=2)
        y = causal_softmax_attention(q, k, v, **self.op_options(padding))
        return self.project_output(y), KeysAndValues(k, v, padding.mask)

    def state_with_room(self, state: KeysAndValues, max_steps: int) -> KeysAndValues:
        """Add free places, which a mask hides; places are filled from the first one on."""
        batch, _, places, _ = state.key.shape
        free = max(0, max_steps - places)
        mask = state.padding_mask
        if mask is None:
            mask = torch.zeros(batch, places, dtype=torch.bool, device=state.key.device)
        filled = torch.full((batch,), places, device=mask.device) if state.filled is None else state.filled
        key, value = (F.pad(x, (0, 0, 0, free)) for x in (state.key, state.value))
        return KeysAndValues(key, value, F.pad(mask, (0, free), value=True), filled)


def with_next_place(state: KeysAndValues, k: Tensor, v: Tensor, padding: Padding) -> KeysAndValues:
    """Write ``k`` and ``v (B, H, 1, D)`` into the first free place of the state; a padded step leaves it free."""
    assert state.padding_mask is not None and state.filled is not None
    place = torch.arange(state.key.shape[2], device=k.device) == state.filled[:, None]
    filled = state.filled + 1
    if padding.mask is not None:
        place, filled = place & ~padding.mask, state.filled + ~padding.mask[:, 0]
    is_next_place = place[:, None, :, None]
    return KeysAndValues(
        torch.where(is_next_place, k, state.key),
        torch.where(is_next_place, v, state.value),
        state.padding_mask & ~place,
        filled,
    )


class SourceKeysValues(NamedTuple):
    """The cached keys and values of a source."""

    key: Tensor  # (B, H, S, D)
    value: Tensor  # (B, H, S, D)


class SoftmaxCrossAttention(SoftmaxProjections, CrossAttention):
    """Cross-attention of each target step to all steps of the source. Arguments: :class:`SoftmaxProjections`."""

    Cached = SourceKeysValues

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> SourceKeysValues:
        k, v = self.project_heads_together(source, self.k_proj, self.v_proj)
        return SourceKeysValues(k, v)

    def attend_queries(
        self, q: Tensor, cached: SourceKeysValues, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        return softmax_attention(q, *cached, need_weights=need_weights, **self.op_options(padding))


ATTENTIONS = (
    Attention(
        name="softmax",
        published=Published("arXiv 1706.03762; fairseq's MultiheadAttention, whose numbers it has"),
        paper="https://arxiv.org/abs/1706.03762",
        encoder=SoftmaxAttention,
        decoder=partial(SoftmaxAttention, causal=True),
        source=SoftmaxCrossAttention,
        traits=Traits(training_time="n²", decoder_state="grows with every token", quadratic=True, state_grows=True),
    ),
)
