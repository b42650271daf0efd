"""Token tensors whose padding is known on the host, because a recorded step cannot synchronize with the device."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Where a batch keeps what ``padding_by_name`` found.
KEY = "has_padding"


def padding_by_name(net_input: Mapping[str, Any], pads: Mapping[str, int]) -> dict[str, bool]:
    """Whether each of the tensors that ``pads`` names has padding; asked where the batch was collated, on the host.

    Args:
        net_input: the arguments of a model.
        pads: the number of the padding token in each of them.
    """
    tokens = {name: net_input.get(name) for name in pads}
    return {name: bool(x.eq(pads[name]).any()) for name, x in tokens.items() if torch.is_tensor(x)}


class TokensOfKnownPadding(Tensor):
    """Tokens ``(B, T)`` int64 that answer ``tokens.eq(pad).any()``, and what depends on it, without the device.

    fairseq's models and the models of this package ask it once, to choose between a mask and None. Every other result
    is a plain tensor.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    pad: int
    has_padding: bool

    @staticmethod
    def of(tokens: Tensor, *, pad: int, has_padding: bool) -> "TokensOfKnownPadding":
        """The same memory as ``tokens``, with what the host knows."""
        known = tokens.as_subclass(TokensOfKnownPadding)
        known.pad, known.has_padding = pad, has_padding
        return known

    def eq(self, other: Any) -> Tensor:
        """A mask, which for ``pad`` answers :meth:`_MaskOfKnownPadding.any`."""
        mask = super().eq(other)
        if not isinstance(other, int) or other != self.pad:
            return mask
        known = mask.as_subclass(_MaskOfKnownPadding)
        known.has_padding = self.has_padding
        return known


class _MaskOfKnownPadding(Tensor):
    """The mask of such tokens."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    has_padding: bool

    def any(self, *dims: Any, **options: Any) -> Tensor:
        """As torch's; of all elements, a tensor that is True or False to the host without being read."""
        answer = super().any(*dims, **options)
        if dims or options:
            return answer
        known = answer.as_subclass(_KnownAnswer)
        known.answer = self.has_padding
        return known


class _KnownAnswer(Tensor):
    """A bool on the device that the host knows."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    answer: bool

    def __bool__(self) -> bool:
        return self.answer
