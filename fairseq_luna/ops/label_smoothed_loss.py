"""Cross entropy with label smoothing for many rows over a large vocabulary."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Logits per part. On a CPU they should stay in the cache; on an accelerator few launches are faster.
CACHE_NUMEL = 2**18
LAUNCH_NUMEL = 2**26


def label_smoothed_loss(
    logits: Tensor, target: Tensor, smoothing: float, *, ignored: int, reduce: bool = True
) -> tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood, as fairseq's ``label_smoothed_nll_loss`` of fp32 log-probabilities.

        nll_i  = -log p_i(target_i),  p_i = softmax(logits_i)
        loss_i = (1 - smoothing - e) nll_i - e sum_v log p_i(v),  e = smoothing / (V - 1)

    Rows are taken a few at a time, so that besides the logits and their gradient, in their own dtype, no tensor of
    their size is written. The logits are kept for the gradient, which computes the softmax again. There is no second
    derivative. The arithmetic is in fp32. On an accelerator, whose memory is slow compared to its arithmetic,
    probabilities of bf16 and their logarithms are rounded to bf16; sums are not.

    Args:
        logits: ``(N, V)``.
        target: ``(N,)``, the right token of each row.
        smoothing: the probability that is taken from the right token and given to all others.
        ignored: the target whose rows are 0.
        reduce: add the rows up.

    Returns:
        Both in fp32: sums, or ``(N, 1)``. Only the loss has a gradient.
    """
    return _LabelSmoothedLoss.apply(logits, target.unsqueeze(1), smoothing, ignored, reduce)


def most_likely_tokens(logits: Tensor) -> Tensor:
    """The most probable token of each row of ``logits (N, V)``, the first if rounding makes several equal: ``(N,)``."""
    return torch.cat([F.log_softmax(part, 1, dtype=torch.float32).argmax(1) for (part,) in _in_parts(logits)])


class _LabelSmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, smoothing: float, ignored: int, reduce: bool
    ) -> tuple[Tensor, Tensor]:
        target_parts, all_parts = [], []
        for part, tokens in _in_parts(logits, target):
            log_probs = F.log_softmax(part, 1, dtype=_dtype_of_probabilities(part))
            target_parts.append(log_probs.gather(1, tokens).float())
            all_parts.append(log_probs.sum(1, keepdim=True, dtype=torch.float32))
        padding = target.eq(ignored)
        nll, smooth = (torch.cat(parts).neg_().masked_fill_(padding, 0) for parts in (target_parts, all_parts))
        ctx.each = smoothing / (logits.shape[1] - 1)
        ctx.right = 1.0 - smoothing - ctx.each
        ctx.save_for_backward(logits, target, padding, nll)
        if reduce:
            nll, smooth = nll.sum(), smooth.sum()
        else:
            nll = nll.clone()  # a saved tensor must not be an output
        ctx.mark_non_differentiable(nll)
        return ctx.right * nll + ctx.each * smooth, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """``dloss (p - e - (1 - smoothing - e) [v is the target])``, and 0 in ignored rows."""
        logits, target, padding, nll = ctx.saved_tensors
        weight = dloss.expand(padding.shape).masked_fill(padding, 0)
        # The gradient of the target's logit is a small difference of numbers that are not rounded before.
        dtarget = weight * (torch.exp(-nll) - ctx.right - ctx.each)
        gradient = torch.empty_like(logits)
        for part, tokens, by, right, out in _in_parts(logits, target, weight, dtarget, gradient):
            probs = torch.softmax(part, 1, dtype=_dtype_of_probabilities(part))
            torch.addcmul(by * -ctx.each, probs, by, out=out)
            out.scatter_(1, tokens, right.to(out.dtype))
        return gradient, None, None, None, None


def _dtype_of_probabilities(logits: Tensor) -> torch.dtype:
    """fp32, or on an accelerator bf16 for bf16.

    The range of fp16 is too small. On a CPU torch's softmax of bf16 rounds between its steps.
    """
    rounded = logits.dtype == torch.bfloat16 and logits.device.type != "cpu"
    return torch.bfloat16 if rounded else torch.float32


def _in_parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each tensor, as many as have CACHE_NUMEL or LAUNCH_NUMEL elements of the first one."""
    cpu = tensors[0].device.type == "cpu"
    numel = CACHE_NUMEL * torch.get_num_threads() if cpu else LAUNCH_NUMEL
    rows = max(1, numel // tensors[0].shape[1])
    return zip(*(x.split(rows) for x in tensors), strict=True)
