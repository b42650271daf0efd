"""The cross entropy with label smoothing of many rows over a large vocabulary."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Logits at a time. On a CPU they should stay in the cache; on an accelerator few launches are faster.
CACHE_NUMEL = 2**18
LAUNCH_NUMEL = 2**26


def label_smoothed_loss(
    logits: Tensor, target: Tensor, smoothing: float, *, ignored: int, reduce: bool = True
) -> tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood, as fairseq's ``label_smoothed_nll_loss`` of fp32 log-probabilities.

        nll_i  = -log p_i(target_i),  p_i = softmax(logits_i)
        loss_i = (1 - smoothing - e) nll_i - e sum_v log p_i(v),  e = smoothing / (V - 1)

    Rows are taken a few at a time, so that besides the logits and their gradient, in their own dtype, nothing of their
    size is written. The logits are kept for the gradient, which takes the softmax again. There is no second derivative.
    The arithmetic is in fp32. On an accelerator, whose memory is slow beside its arithmetic, probabilities of bf16 and
    their logarithms are rounded to bf16; sums are not.

    Args:
        logits: ``(N, V)``.
        target: ``(N,)``, the right word of each row.
        smoothing: the probability that is taken from the right word and given to all others.
        ignored: the target whose rows are 0.
        reduce: add the rows up.

    Returns:
        Both in fp32: sums, or ``(N, 1)``. Only the loss has a gradient.
    """
    return _LabelSmoothedLoss.apply(logits, target.unsqueeze(1), smoothing, ignored, reduce)


def best_words(logits: Tensor) -> Tensor:
    """The most probable word of each row of ``logits (N, V)``, the first if rounding makes several equal: ``(N,)``."""
    return torch.cat([F.log_softmax(part, 1, dtype=torch.float32).argmax(1) for (part,) in _in_parts(logits)])


class _LabelSmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, smoothing: float, ignored: int, reduce: bool
    ) -> tuple[Tensor, Tensor]:
        of_target, of_all = [], []
        for part, words in _in_parts(logits, target):
            log_probs = F.log_softmax(part, 1, dtype=_dtype_of_probabilities(part))
            of_target.append(log_probs.gather(1, words).float())
            of_all.append(log_probs.sum(1, keepdim=True, dtype=torch.float32))
        padding = target.eq(ignored)
        nll, smooth = (torch.cat(parts).neg_().masked_fill_(padding, 0) for parts in (of_target, of_all))
        ctx.each = smoothing / (logits.shape[1] - 1)
        ctx.right = 1.0 - smoothing - ctx.each
        ctx.save_for_backward(logits, target, padding, nll)
        if reduce:
            nll, smooth = nll.sum(), smooth.sum()
        else:
            nll = nll.clone()  # what is kept is not an output
        ctx.mark_non_differentiable(nll)
        return ctx.right * nll + ctx.each * smooth, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """``of_loss (p - e - (1 - smoothing - e) [v is the target])``, and 0 in ignored rows."""
        logits, target, padding, nll = ctx.saved_tensors
        weight = of_loss.expand(padding.shape).masked_fill(padding, 0)
        # The target's is a small difference of numbers that are not rounded before.
        of_target = weight * (torch.exp(-nll) - ctx.right - ctx.each)
        gradient = torch.empty_like(logits)
        for part, words, by, right, out in _in_parts(logits, target, weight, of_target, gradient):
            probs = torch.softmax(part, 1, dtype=_dtype_of_probabilities(part))
            torch.addcmul(by * -ctx.each, probs, by, out=out)
            out.scatter_(1, words, right.to(out.dtype))
        return gradient, None, None, None, None


def _dtype_of_probabilities(logits: Tensor) -> torch.dtype:
    """Not fp16: its range is too small. Not bf16 on a CPU, where torch's softmax rounds between its steps."""
    rounded = logits.dtype == torch.bfloat16 and logits.device.type != "cpu"
    return torch.bfloat16 if rounded else torch.float32


def _in_parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each, as many as have CACHE_NUMEL or LAUNCH_NUMEL elements of the first one."""
    cpu = tensors[0].device.type == "cpu"
    numel = CACHE_NUMEL * torch.get_num_threads() if cpu else LAUNCH_NUMEL
    rows = max(1, numel // tensors[0].shape[1])
    return zip(*(x.split(rows) for x in tensors), strict=True)
