"""Luna's causal attention for decoders (arXiv 2106.01540, section 3.4): running means over the steps so far.

With w(s) = softplus(s; beta = ln 2), or elu(s) + 1, and slots P (L slots)::

    A_t = w( q_p(P) k_p(x_t) / sqrt(D) )                    pack weights of step t, (L,)
    S_t = mean_{j<=t} k(x_j) A_j^T                          state, (D, L)
    M_t = mean_{j<=t} A_j v(x_j)^T                          state, (L, D)
    y_t = softmax over the slots ( q(x_t)^T S_t / sqrt(D) ) M_t,      out = W_o [y of all heads]

Parameters: ``pq_proj`` (q_p), ``pc_proj`` (k_p), ``q_proj`` (q), ``out_proj`` (W_o); ``c_proj`` (k and v) or, untied,
``k_proj`` and ``v_proj``; ``convolution``, which is not in the paper.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops import luna_causal_attention as op
from ..ops.folded_attention import folding_pays, scores_of
from ..ops.padding import Padding, PaddingLike
from ..ops.prefix_attention import PrefixMean
from .argument_checks import check_choice, validate_padding
from .conversion import Rule, Rules
from .decoding_state import AfterConvolution, StateType
from .multihead import Multihead, beams_apart, beams_of
from .projection import affine_of
from .short_convolution import convolution_of


class LunaCausalAttention(Multihead):
    """Causal pack and unpack attention.

    Steps do not see later ones. Padded steps are neither seen nor counted, at any position. The state of generation
    has constant size.

    Args:
        activation: the positive function of the pack scores, "softplus" or "elu".
        tie_kv: keys and values of the sequence are one projection, the paper's default.
        kernel_size: kernel size of a convolution over X before the projections, odd; 0 = none, as in the paper.
        kernel: "torch", or "triton" for training on a GPU; then the unpack weights may be None.
        options: further arguments of :class:`.Multihead`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, ``activation`` or ``kernel`` is unknown, or
            ``kernel_size`` is even or negative.
    """

    conversion_rules: ClassVar[Rules] = {
        "pq_proj": Rule(("q_proj",)),
        "pc_proj": Rule(("k_proj",)),
        "c_proj": Rule(("v_proj",)),
        "k_proj": Rule(("c_proj",)),
        "v_proj": Rule(("c_proj",)),
    }
    successor_rules: ClassVar[Rules] = {"k_proj": Rule(("pc_proj",)), "v_proj": Rule(("c_proj",))}

    def __init__(
        self,
        *,
        activation: str = "softplus",
        tie_kv: bool = True,
        kernel_size: int = 0,
        kernel: str = "torch",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("activation", activation, tuple(op.PACK_ACTIVATIONS))
        check_choice("kernel", kernel, tuple(op.KERNELS))
        self.activation = activation
        self.kernel = kernel
        self.tie_kv = tie_kv
        linear = self.linear
        self.pq_proj = linear.input_projection()
        self.q_proj = linear.input_projection()
        self.pc_proj = linear.input_projection()
        if tie_kv:
            self.c_proj = linear.input_projection()
        else:
            self.k_proj = linear.input_projection()
            self.v_proj = linear.input_projection()
        self.out_proj = linear.output_projection()
        self.convolution = convolution_of(kernel_size, embed_dim=self.embed_dim)

    def forward(
        self,
        query: Tensor,
        packed: Tensor,
        *,
        padding_mask: PaddingLike = None,
        packed_padding_mask: PaddingLike = None,
        memory: Tensor | None = None,
        memory_padding_mask: PaddingLike = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each step to itself and the earlier ones, through the packed slots.

        Args:
            query: X, ``(T, B, C)``.
            packed: P, ``(L, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            packed_padding_mask: ``(B, L)`` bool, True = padding: a padded slot is not read.
            memory: ``(S, B, C)``, steps before the first one (fairseq's cross+self attention).
            memory_padding_mask: ``(B, S)`` bool, True = padding.

        Returns:
            ``(T, B, C)`` and the unpack weights ``(H, B, T, L)``, or None.
        """
        padding = validate_padding(padding_mask, query)
        packed_padding = validate_padding(packed_padding_mask, packed, "packed_padding_mask")
        memory_padding = validate_padding(memory_padding_mask, memory, "memory_padding_mask")
        if self.convolution is not None:
            query, _ = self.convolution.causal(query, padding=padding)
        y, weights = self.attend(query, packed, padding, packed_padding, memory, memory_padding)
        return self.project_output(y), None if weights is None else weights.transpose(0, 1)

    @property
    def state_type(self) -> StateType:
        """The type of the state, for :func:`.decoding_state.unflatten_state`."""
        return PrefixMean if self.convolution is None else (AfterConvolution, {"state": PrefixMean})

    def slot_queries(self, packed: Tensor) -> Tensor:
        """The scaled queries ``(B, H, L, D)`` of the slots of P, the only part of P that steps of generation read."""
        return op.scaled(self.project_heads(self.pq_proj, packed))

    def initial_state(self, slots: Tensor, memory: Tensor | None = None, memory_padding: PaddingLike = None) -> Any:
        """The state before the first step of generation.

        Args:
            slots: the result of :meth:`slot_queries`, whose rows the state has.
            memory, memory_padding: as in :meth:`forward`.
        """
        if memory is None:
            state = op.initial_state(slots, tied=self.tie_kv)
        else:
            scores = self.project_heads(self.pc_proj, memory) @ slots.mT
            k, v = self.keys_and_values(memory)
            state = op.state_after(k, v, scores, tied=self.tie_kv, activation=self.activation, padding=memory_padding)
        if self.convolution is None:
            return state
        before = self.convolution.kernel_size - 1
        return AfterConvolution(slots.new_zeros(slots.shape[0], before, self.embed_dim), state)

    def with_room(self, state: Any, max_steps: int) -> Any:
        """See :meth:`.SelfAttention.with_room`; the size of this state does not depend on the number of steps."""
        return state

    def step(
        self, x: Tensor, padding: PaddingLike, slots: Tensor, packed_padding: PaddingLike, state: Any
    ) -> tuple[Tensor, Tensor, Any]:
        """The next step, or the next steps, of generation: a pure function of tensors.

        Args:
            x: ``(T, B, C)``; T is 1 but for a segment of several steps, which are computed one after the other.
            padding: of these steps.
            slots: the result of :meth:`slot_queries`. B may be a multiple of its rows: consecutive rows of ``x`` are
                beams of a sentence.
            packed_padding: of the slots.
            state: after the call before; at first :meth:`initial_state`, with a row for each of ``x``.

        Returns:
            ``(T, B, C)``, the unpack weights ``(H, B, T, L)``, and the state after these steps.
        """
        padding, packed_padding = validate_padding(padding, x), Padding.of(packed_padding)
        inputs = None
        if self.convolution is not None:
            x, inputs = self.convolution.causal(x, padding=padding, past=state.inputs)
            state = state.state
        outputs, weights = [], []
        for place, one in enumerate(x.split(1)):
            result = self.attend_step(one, padding.at_step(place), slots, packed_padding, state)
            outputs.append(result[0])
            weights.append(result[1])
            state = result[2]
        y, unpack = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=2) for parts in (outputs, weights))
        return (
            self.project_output(y),
            unpack.transpose(0, 1),
            state if inputs is None else AfterConvolution(inputs, state),
        )

    def attend_step(
        self, x: Tensor, padding: Padding, slots: Tensor, packed_padding: Padding, state: PrefixMean
    ) -> tuple[Tensor, Tensor, PrefixMean]:
        """After the convolution: ``(B, H, 1, D)``, the unpack weights ``(B, H, 1, L)``, and the state."""
        beams = beams_of(x.shape[1], slots.shape[0])
        scores = self.project_heads(self.pc_proj, x, beams=beams) @ slots.mT
        return op.luna_causal_attention_step(
            self.project_heads(self.q_proj, x),
            *self.keys_and_values(x),
            beams_apart(scores, beams),
            state,
            activation=self.activation,
            packed_padding=packed_padding.repeat_rows(beams),
            **self.op_options(padding),
        )

    def attend(
        self,
        query: Tensor,
        packed: Tensor,
        padding: Padding,
        packed_padding: Padding,
        memory: Tensor | None,
        memory_padding: Padding,
    ) -> tuple[Tensor, Tensor | None]:
        """All steps at once: ``(B, H, T, D)`` and the unpack weights ``(B, H, T, L)``."""
        if memory is not None:
            sizes = {"steps": len(memory), "others": len(query)}
            padding = memory_padding.followed_by(padding, like=query, **sizes)
            query = torch.cat([memory, query])
        pq = self.project_heads(self.pq_proj, packed)
        scores = self.folded_scores(pq, query)
        projections = [self.q_proj, *self.key_and_value_projections(), *([self.pc_proj] if scores is None else [])]
        projected = self.project_heads_together(query, *projections)
        if scores is None:
            projected, pack_keys = projected[:-1], projected[-1]
            scores = op.pack_scores(pq, pack_keys)
        y, weights = op.KERNELS[self.kernel](
            projected[0],
            projected[1],
            projected[-1],
            scores,
            activation=self.activation,
            packed_padding=packed_padding,
            **self.op_options(padding),
        )
        if memory is not None:
            y = y[:, :, len(memory) :]
            weights = None if weights is None else weights[:, :, len(memory) :]
        return y, weights

    def folded_scores(self, pq: Tensor, x: Tensor) -> Tensor | None:
        """Pack scores ``(B, H, T, L)`` of ``x (T, B, C)`` without its keys, or None if that would not be cheaper."""
        steps, _, channels = x.shape
        slots = self.num_heads * pq.shape[2]
        key = affine_of(self.pc_proj)
        if key is None or not folding_pays(steps=steps, slots=slots, channels=channels, maps=1, products=1):
            return None
        return scores_of(x.transpose(0, 1), pq, key).unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def key_and_value_projections(self) -> list[nn.Module]:
        """The two, or the one that is both if they are tied."""
        return [self.c_proj] if self.tie_kv else [self.k_proj, self.v_proj]

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of ``x (T, B, C)``: each ``(B, H, T, D)``."""
        projected = [self.project_heads(projection, x) for projection in self.key_and_value_projections()]
        return projected[0], projected[-1]
