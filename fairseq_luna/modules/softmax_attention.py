"""Softmax attention, with the parameters of fairseq's and its numbers, for encoder, decoder and source."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..ops.softmax_attention import Source, causal_softmax_attention, read_source, softmax_attention, source_of
from ..published import Published
from .attention import CausalAttention, EncoderAttention, SourceAttention
from .generation_state import ModuleState, as_state, from_state
from .multihead import QueriesKeysValues, joined_padding
from .projection import INPUT_GAIN

PUBLISHED = {"softmax": Published("arXiv 1706.03762; fairseq's MultiheadAttention, whose numbers it has")}


class SoftmaxProjections(QueriesKeysValues):
    """The parameters of softmax attention: those of fairseq's MultiheadAttention, in its order.

    Args:
        options: those of :class:`.QueriesKeysValues`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    def create_projections(self, *, source_dim: int, key_bias: bool) -> None:
        """fairseq's numbers from the same random ones: all maps are made first, then each is filled."""
        new = self.new
        maps = {
            "k_proj": nn.Linear(source_dim, new.size, bias=key_bias),
            "v_proj": nn.Linear(source_dim, new.size, bias=new.bias),
            "q_proj": nn.Linear(new.size, new.size, bias=new.bias),
            "out_proj": nn.Linear(new.size, new.size, bias=new.bias),
        }
        gain = INPUT_GAIN if source_dim == new.size else 1.0
        for name, linear in maps.items():
            nn.init.xavier_uniform_(linear.weight, gain=1.0 if name == "out_proj" else gain)
            setattr(self, name, new.noisy(linear))
        if new.bias:
            nn.init.zeros_(maps["out_proj"].bias)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.heads_of_each(x, self.q_proj, self.k_proj, self.v_proj)
        return q, k, v


class SoftmaxAttention(SoftmaxProjections, EncoderAttention):
    """Attention of every step to every step (arXiv 1706.03762). Arguments: :class:`SoftmaxProjections`."""

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.queries_keys_values(x)
        return self.output(softmax_attention(q, k, v, **self.options(padding_mask))[0])


class KeysAndValues(NamedTuple):
    """Those of all steps so far."""

    key: Tensor  # (B, H, N, D)
    value: Tensor  # (B, H, N, D)
    padding_mask: Tensor | None  # (B, N) bool, True = padding


class SoftmaxCausalAttention(SoftmaxProjections, CausalAttention):
    """Attention of every step to itself and the earlier ones. Arguments: :class:`SoftmaxProjections`.

    Its state, the keys and values, grows with each step. Where no step is seen, the result is the bias of the output
    projection.
    """

    State = KeysAndValues

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        return self.step(x, padding_mask, None)[0]

    def step(self, x: Tensor, padding_mask: Tensor | None, state: KeysAndValues | None) -> tuple[Tensor, KeysAndValues]:
        q, k, v = self.queries_keys_values(x)
        if state is not None:
            padding_mask = joined_padding(state.key.permute(2, 0, 1, 3), state.padding_mask, x, padding_mask)
            k, v = torch.cat([state.key, k], dim=2), torch.cat([state.value, v], dim=2)
        y = causal_softmax_attention(q, k, v, **self.options(padding_mask))
        return self.output(y), KeysAndValues(k, v, padding_mask)


class SoftmaxSourceAttention(SoftmaxProjections, SourceAttention):
    """Attention of the target's steps to those of the source, the encoder's output.

    Arguments: :class:`SoftmaxProjections`.
    """

    def read(self, source: Tensor, padding_mask: Tensor | None, *, need_weights: bool) -> ModuleState:
        k, v = self.heads_of_each(source, self.k_proj, self.v_proj)
        return as_state(source_of(k, v, padding_mask))

    def attend_to(self, q: Tensor, kept: ModuleState, *, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        return read_source(q, from_state(Source, kept), dropout_p=self.dropout_p(), need_weights=need_weights)
