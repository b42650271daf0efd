"""A function of ``fairseq_luna.ops``, called as all the others are: what makes its inputs, its forms and its steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fairseq_luna.ops import (
    fastformer_attention,
    folded_attention,
    luna_causal_attention,
    prefix_attention,
    synthesizer_attention,
)
from fairseq_luna.ops.block_partition import cut_by_number, cut_by_size
from fairseq_luna.ops.dtypes import accumulation_dtype
from numeric import TOLERANCE, randn

SIZES = {"B": 3, "H": 2, "T": 40, "Q": 7, "D": 8, "E": 4, "R": 6, "L": 5, "S": 5, "K": 5, "N": 3, "M": 64, "1": 1}
BLOCK = 4  # steps of a causal block


class References:
    """The references in the module of an op, under the names of the functions that they specify."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._module, f"{name}_reference")


def tensors(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(x for x in tree_leaves(outputs) if isinstance(x, Tensor))


class Op(NamedTuple):
    """``shapes`` has a word for each input and a letter for each of its dimensions.

    B is the batch, H are heads, T the steps that a mask pads, and P their positions. Q are the steps of queries, which
    it does not pad: then the output has these and not T.
    """

    name: str
    shapes: str
    options: Mapping[str, Any] = {}
    steps: bool = False  # it has a form for generation
    long: bool = False  # tested at 100,000 steps; its state does not grow
    sums: bool = False  # autocast leaves it in fp32
    per_step: int | None = None  # elements of the largest tensor of 2048 steps, for each; None = quadratic
    zero: bool = True  # for a sentence that is all padding
    undefined: bool = False  # but finite, at padding
    rounding: float = 1.0  # times the usual tolerance
    extra: Any = None  # an argument after the inputs
    sizes: Mapping[str, int] = {}
    maps: Mapping[str, Callable[[Tensor], Tensor]] = {}  # of the random inputs of these shapes
    constants: int = 0  # how many of the last inputs have no gradient
    folder: str | None = None  # of the name by default

    @property
    def causal(self) -> bool:
        return self.steps or bool(self.options.get("causal"))

    def function(self, name: str) -> Callable[..., Any]:
        """A public function of the op."""
        return getattr(import_module(f"fairseq_luna.ops.{self.folder or self.name}"), name)

    def make(self, like: Tensor | None = None, seed: int = 0, **sizes: int) -> list[Tensor]:
        """Random inputs, of the dtype and the device of ``like``, fp64 by default."""
        sizes = {**SIZES, **self.sizes, **sizes}
        sizes |= {"P": sizes["T"], "W": sizes["T"] + 3, "C": sizes["H"] * sizes["D"]}
        inputs, shapes = [], self.shapes.split()
        for i, shape in enumerate(shapes):
            x = randn(*(sizes[letter] for letter in shape), seed=seed + i, grad=False)
            x = self.maps[shape](x) if shape in self.maps else x
            inputs.append((x if like is None else x.to(like)).requires_grad_(i < len(shapes) - self.constants))
        return inputs

    def arguments(self, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        return *inputs, *([] if self.extra is None else [self.extra])

    def __call__(self, form: str, inputs: Sequence[Tensor], padding_mask: Tensor | None = None, **options: Any):
        """The outputs of the "naive" or the "fast" form."""
        options |= {**self.options, "padding": padding_mask}
        function = self.function(f"{self.name}_reference" if form == "naive" else self.name)
        return tensors(function(*self.arguments(inputs), **options))

    def step(self, inputs: Sequence[Tensor], state: Any, padding_mask: Tensor | None = None, **options: Any):
        """The outputs of one step, and the state after it; ``state`` is None before the first."""
        options |= {name: value for name, value in self.options.items() if name != "causal"}
        function = self.function(f"{self.name}_step")
        *outputs, state = function(*self.arguments(inputs), state, padding=padding_mask, **options)
        return tuple(outputs), state

    def in_steps(self, inputs: Sequence[Tensor], mask: Tensor | None = None, **options: Any) -> Iterator[Any]:
        """Outputs and state after each step of a sequence; without a mask where nothing is padded."""
        state = None
        for t in range(next(x.shape[word.index("T")] for word, x in self.words(inputs) if "T" in word)):
            now = slice(t, t + 1)
            padding = None if mask is None or not mask[:, now].any() else mask[:, now]
            outputs, state = self.step(self.of_steps(inputs, now), state, padding, **options)
            yield outputs, state

    def generated(self, inputs: Sequence[Tensor], mask: Tensor | None = None, **options: Any) -> list[Tensor]:
        """The outputs of all steps."""
        outputs, _ = zip(*self.in_steps(inputs, mask, **options), strict=True)
        return [torch.cat(steps, dim=2) for steps in zip(*outputs, strict=True)]

    def words(self, inputs: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The inputs, each with the letters of its dimensions."""
        return zip(self.shapes.split(), inputs, strict=True)

    def of_steps(self, inputs: Sequence[Tensor], now: slice) -> list[Tensor]:
        return [x[tuple(now if letter == "T" else slice(None) for letter in word)] for word, x in self.words(inputs)]

    def alone(self, inputs: Sequence[Tensor], row: int, real: Tensor) -> list[Tensor]:
        """The inputs of one sentence without its padding."""
        chosen = {"B": torch.tensor([row]), "T": real.nonzero()[:, 0], "P": torch.arange(int(real.sum()))}
        found = []
        for shape, x in self.words(inputs):
            for dim, letter in enumerate(shape):
                x = x.index_select(dim, chosen[letter]) if letter in chosen else x
            found.append(x)
        return found

    def real(self, outputs: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
        """Outputs ``(B, H, T, D)`` without those of padding, ``(n, H, D)``, and those that have no padding."""
        if "Q" not in self.shapes:
            return [x.transpose(1, 2)[~mask] if x.shape[2] == mask.shape[1] else x for x in outputs]
        out, *weights = outputs
        return [out, *(x[..., ~mask[0]] if len(mask) == 1 else x for x in weights)]

    def defined(self, outputs: Sequence[Tensor], mask: Tensor | None) -> Sequence[Tensor]:
        """Outputs with 0 where they are undefined."""
        if mask is None or not self.undefined:
            return outputs
        return [x.masked_fill(mask[:, None, :, None], 0) for x in outputs]

    def tolerance(self, dtype: torch.dtype) -> dict[str, float]:
        return {name: self.rounding * value for name, value in TOLERANCE[dtype].items()}


class Fastformer(Op):
    """Scores are of all channels of a step; ``extra`` combines keys and values."""

    def arguments(self, inputs):
        *sequences, query_weight, key_weight = inputs
        maps = fastformer_attention.FastformerMaps(
            query_score=lambda x: (x[:, None] * query_weight[:, :, None]).sum((2, 4)),
            key_score=lambda x: (x[:, None] * key_weight[:, :, None]).sum((2, 4)),
            combine_key=self.extra,
            combine_value=self.extra,
        )
        return *sequences, maps


class LunaCausal(Op):
    """Without values, these are the keys; BL is positive at slots that are padding, of which the first is none."""

    def arguments(self, inputs):
        q, k, *v, pq, pk = inputs[: len(inputs) - self.constants]
        return q, k, *(v or [k]), pq, pk

    def masks(self, inputs):
        slots = torch.arange(inputs[-1].shape[1], device=inputs[-1].device)
        return {"packed_padding": (inputs[-1] > 0) & (slots > 0)} if self.constants else {}

    def __call__(self, form, inputs, padding_mask=None, **options):
        return super().__call__(form, inputs, padding_mask, **self.masks(inputs), **options)

    def step(self, inputs, state, padding_mask=None, **options):
        """With scores in place of the queries of slots and the keys."""
        *qkv, pq, pk = self.arguments(inputs)
        state = state or luna_causal_attention.initial_state(pq, tied=qkv[1] is qkv[2])
        options |= {**self.options, **self.masks(inputs), "padding": padding_mask}
        scores = luna_causal_attention.pack_scores(pq, pk)
        *outputs, state = luna_causal_attention.luna_causal_attention_step(*qkv, scores, state, **options)
        return tuple(outputs), state


class Prefix(Op):
    """Its state is advanced by one step, and read by a product."""

    def step(self, inputs, state, padding_mask=None):
        q, k, v = inputs
        dtype, before = accumulation_dtype(q), state or prefix_attention.initial_prefix_mean(k, v)
        state = prefix_attention.update_prefix_mean(k.to(dtype), v, before, padding=padding_mask)
        return ((q.to(dtype).mT * state.mean).sum(2, keepdim=True).to(q.dtype),), state


class Delta(Op):
    """Gates are made of any numbers: decays of 0 to 1, and strengths between."""

    def arguments(self, inputs):
        *sequences, decay, strength = inputs
        return *sequences, -0.3 * decay.abs(), strength.sigmoid()


class Recurrence(Op):
    """Time first, and without heads: here their channels are joined, ``(T, B, H D)``. Factors are from 0 to 1."""

    def arguments(self, inputs):
        f, b = (x.permute(2, 0, 1, 3).flatten(2) for x in inputs)
        return f.to(accumulation_dtype(f)).sigmoid(), b

    def apart(self, y, inputs):
        """``(T, B, H D)`` to ``(B, H, T, D)``."""
        return y.unflatten(2, inputs[0].shape[1::2]).permute(1, 2, 0, 3)

    def __call__(self, form, inputs, padding_mask=None, **options):
        return tuple(self.apart(y, inputs) for y in super().__call__(form, inputs, padding_mask, **options))

    def step(self, inputs, state, padding_mask=None, **options):
        outputs, state = super().step(inputs, state, padding_mask, **options)
        return tuple(self.apart(y, inputs) for y in outputs), state


class Pattern(Op):
    """``extra`` is a pattern, or makes it for heads."""

    def arguments(self, inputs):
        heads = torch.arange(inputs[0].shape[1], device=inputs[0].device)
        return *inputs, self.extra(heads) if callable(self.extra) else self.extra


class SoftWindow(Op):
    """The last input are the spans of heads; ``extra`` is a window."""

    def arguments(self, inputs):
        *sequences, spans = inputs
        return *sequences, replace(self.extra, spans=spans)


class Synthesizer(Op):
    """A step takes the scores of its position."""

    def step(self, inputs, state, padding_mask=None, **options):
        scores, v = inputs
        (batch, heads, *_), seen = v.shape, 1 if state is None else state.v.shape[2] + 1
        p = synthesizer_attention.next_positions(state, v).expand(batch, -1)
        rows = p[:, None, :, None].expand(-1, heads, -1, scores.shape[3])
        scores = scores.expand(batch, -1, -1, -1).gather(2, rows)[..., :seen]
        options["padding"] = padding_mask
        y, state = synthesizer_attention.synthesizer_attention_step(scores, v, state, **options)
        return (y,), state


class TransformerXl(Op):
    """The memory has the keys and values of the steps, without their gradient; generation has one cache."""

    def arguments(self, inputs):
        q, k, v, *positions = inputs
        return q, k, v, k.detach(), v.detach(), *positions

    def step(self, inputs, state, padding_mask=None, **options):
        options |= {name: value for name, value in self.options.items() if name != "causal"}
        y, state = self.function(f"{self.name}_step")(*inputs, state, padding=padding_mask, **options)
        return (y,), state


class Folded(Op):
    """Linear maps: each is a weight CC and, if there is one, a bias C."""

    def arguments(self, inputs):
        count = self.shapes.split().index("CC")
        maps, bias = inputs[count:], "C" in self.shapes.split()
        affines = map(folded_attention.Affine, maps[::2], maps[1::2]) if bias else ((x, None) for x in maps)
        return *inputs[:count], *(folded_attention.Affine(*affine) for affine in affines)


class Block(Op):
    """Y and Z of each step; ``extra`` has the fast form, and the function that reads Z of each step from its result.

    The second level's maps are matrices and biases, except for keys: a softmax cancels their bias. The specification is
    computed in fp64, because a rounded summary is seen by every step.
    """

    def levels(self, inputs):
        """The inputs of the first level, and the maps of the second."""
        *first, q_weight, k_weight, v_weight, q_bias, v_bias = inputs
        return first, lambda s: (s @ q_weight + q_bias, s @ k_weight, s @ v_weight + v_bias)

    def cut(self, x, padding_mask=None):
        """The blocks of ``x (B, H, T, D)``."""
        mask = x.new_zeros(x.shape[0], x.shape[2], dtype=torch.bool) if padding_mask is None else padding_mask
        return cut_by_size(mask, BLOCK, dtype=x.dtype) if self.causal else cut_by_number(mask, 0, dtype=x.dtype)

    def __call__(self, form, inputs, padding_mask=None, *, blocks=None, **options):
        (fast, read_blocks), dtype, seen = self.extra, inputs[0].dtype, {"causal": True} if self.causal else {}
        function = self.function(f"{self.name}_reference") if form == "naive" else fast
        first, second = self.levels([x.double() for x in inputs] if form == "naive" else inputs)
        blocks = self.cut(first[-1], padding_mask) if blocks is None else blocks
        options |= seen | {name: value for name, value in self.options.items() if name != "block_size"}
        y, z = function(*first, second, blocks, **options)
        if form != "naive":
            z = read_blocks(z.transpose(1, 2).flatten(2), blocks, **seen).unflatten(2, y.shape[1::2])
            z = z.permute(1, 2, 0, 3)
        return y.to(dtype), z.to(dtype)

    def arguments(self, inputs):
        first, second = self.levels(inputs)
        return *first, second

    def step(self, inputs, state, padding_mask=None, **options):
        return super().step(inputs, state, padding_mask, finish=lambda z: z, **options)
