"""The cross entropy with label smoothing of many rows over a large vocabulary."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Logits that are in fp32 at a time. On a CPU they should stay in the cache; on an accelerator few launches are faster.
CACHE_NUMEL = 2**18
LAUNCH_NUMEL = 2**25


def label_smoothed_loss(
    logits: Tensor, target: Tensor, smoothing: float, *, ignored: int, reduce: bool = True
) -> tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood, as fairseq's ``label_smoothed_nll_loss`` of fp32 log-probabilities.

        nll_i  = -log p_i(target_i),  p_i = softmax(logits_i)
        loss_i = (1 - smoothing - e) nll_i - e sum_v log p_i(v),  e = smoothing / (V - 1)

    Rows are taken a few at a time, so that besides the logits and their gradient, in their own dtype, nothing of their
    size is written. The logits are kept for the gradient, which takes the softmax again. There is no second derivative.

    Args:
        logits: ``(N, V)``; the arithmetic is in fp32.
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
            log_probs = F.log_softmax(part, 1, dtype=torch.float32)
            of_target.append(log_probs.gather(1, words))
            of_all.append(log_probs.sum(1, keepdim=True))
        padding = target.eq(ignored)
        nll, smooth = (torch.cat(parts).neg_().masked_fill_(padding, 0) for parts in (of_target, of_all))
        if reduce:
            nll, smooth = nll.sum(), smooth.sum()
        ctx.each = smoothing / (logits.shape[1] - 1)
        ctx.right = 1.0 - smoothing - ctx.each
        ctx.save_for_backward(logits, target, padding)
        ctx.mark_non_differentiable(nll)
        return ctx.right * nll + ctx.each * smooth, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """``of_loss (p - e - (1 - smoothing - e) [v is the target])``, and 0 in ignored rows."""
        logits, target, padding = ctx.saved_tensors
        weight = of_loss.expand(padding.shape).masked_fill(padding, 0)
        gradient = torch.empty_like(logits)
        for part, words, by, out in _in_parts(logits, target, weight, gradient):
            probs = torch.softmax(part, 1, dtype=torch.float32)
            probs.scatter_add_(1, words, probs.new_full(words.shape, -ctx.right))
            torch.addcmul(by * -ctx.each, probs, by, out=out)
        return gradient, None, None, None, None


def _in_parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each, as many as have CACHE_NUMEL or LAUNCH_NUMEL elements of the first one."""
    cpu = tensors[0].device.type == "cpu"
    numel = CACHE_NUMEL * torch.get_num_threads() if cpu else LAUNCH_NUMEL
    rows = max(1, numel // tensors[0].shape[1])
    return zip(*(x.split(rows) for x in tensors), strict=True)
