import pytest
import torch
from torch import Tensor

from fairseq_luna.ops import label_smoothed_loss as op
from largest_tensor import LargestTensor
from numeric import TOLERANCE

ROWS, WORDS, PADDING = 37, 50, 3
# Numbers that are given to a CPU's threads, or to a kernel of a GPU, whose probabilities in bf16 are rounded.
SHARES = ("CACHE_NUMEL", "LAUNCH_NUMEL")
ROUNDED = torch.get_default_device().type == "cuda"
HALF = (torch.bfloat16, torch.float16)


def problem(dtype=torch.float32):
    """Logits of a wide range, and targets of which some are padding."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(ROWS, WORDS, generator=generator)
    return logits.to(dtype).requires_grad_(), torch.randint(0, 8, (ROWS,), generator=generator)


def formula(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Each row's loss in fp64: the cross entropy to a distribution that has ``smoothing`` for all wrong words."""
    wanted = torch.full(logits.shape, smoothing / (WORDS - 1), dtype=torch.float64)
    wanted[torch.arange(ROWS), target] = 1 - smoothing
    losses = -(wanted * logits.double().log_softmax(1)).sum(1)
    return losses.masked_fill(target.eq(PADDING), 0)


@pytest.mark.parametrize("numel", [1, 3 * WORDS, 2**18])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=["fp32", "bf16", "fp16"])
def test_equals_the_formula_however_it_is_cut(dtype, smoothing, numel, monkeypatch):
    for share in SHARES:
        monkeypatch.setattr(op, share, numel)
    logits, target = problem(dtype)
    losses, nll = op.label_smoothed_loss(logits, target, smoothing, ignored=PADDING, reduce=False)
    total, total_nll = op.label_smoothed_loss(logits, target, smoothing, ignored=PADDING)
    expected = formula(logits, target, smoothing)
    bound = {"rtol": 4e-3 if ROUNDED and dtype == torch.bfloat16 else 1e-5, "atol": 1e-5}
    torch.testing.assert_close(losses[:, 0].double(), expected, **bound)
    torch.testing.assert_close(nll[:, 0].double(), formula(logits, target, 0.0), **bound)
    torch.testing.assert_close([total, total_nll], [losses.sum(), nll.sum()])

    weights = torch.linspace(-2, 3, ROWS)
    (found,) = torch.autograd.grad((losses[:, 0] * weights).sum(), logits)
    (exact,) = torch.autograd.grad((expected * weights).sum(), logits)
    assert found.dtype == dtype
    torch.testing.assert_close(found, exact, **TOLERANCE[dtype])


def test_bf16_as_on_an_accelerator(monkeypatch):
    """A CPU's softmax rounds more than a GPU's."""
    logits, target = problem(torch.bfloat16)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        monkeypatch.setattr(op, "_dtype_of_probabilities", lambda logits, dtype=dtype: dtype)
        loss, nll = op.label_smoothed_loss(logits, target, 0.1, ignored=PADDING)
        found.append([loss.detach(), nll, *torch.autograd.grad(loss, logits)])
    (loss, nll, gradient), (rounded_loss, rounded_nll, rounded_gradient) = found
    torch.testing.assert_close([rounded_loss, rounded_nll], [loss, nll], rtol=2e-3, atol=0)
    torch.testing.assert_close(rounded_gradient, gradient, rtol=2e-2, atol=2e-2)
    assert loss != rounded_loss


def test_a_loss_scale_keeps_gradients_that_fp16_would_lose():
    logits = torch.zeros(1, 2**15, dtype=torch.float16, requires_grad=True)
    loss, _ = op.label_smoothed_loss(logits, torch.zeros(1, dtype=torch.int64), 0.0, ignored=PADDING)
    (found,) = torch.autograd.grad(128 * loss, logits)
    torch.testing.assert_close(found[0, 1:], torch.full((2**15 - 1,), 128 / 2**15, dtype=torch.float16))


@pytest.mark.parametrize("dtype", HALF, ids=["bf16", "fp16"])
def test_nothing_of_the_logits_size_is_in_fp32(dtype, monkeypatch):
    for share in SHARES:
        monkeypatch.setattr(op, share, 4 * WORDS)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    logits, target = problem(dtype)
    with LargestTensor(torch.float32) as largest:
        loss, _ = op.label_smoothed_loss(logits, target, 0.1, ignored=PADDING)
        loss.backward()
        op.most_likely_tokens(logits)
    assert largest.elements <= 4 * WORDS


def test_the_best_word_is_the_first_of_equal_ones():
    logits = torch.tensor([[0.0, 2.0, 2.0], [5.0, 4.0, 4.0]])
    assert op.most_likely_tokens(logits).tolist() == [1, 0]


def test_no_rows_have_no_loss():
    logits = torch.zeros(0, 5, requires_grad=True)
    loss, nll = op.label_smoothed_loss(logits, torch.zeros(0, dtype=torch.int64), 0.1, ignored=PADDING)
    loss.backward()
    assert loss == nll == 0 and logits.grad.shape == (0, 5)
