"""Gradients in memory of their own, and tokens whose padding the host knows."""

import pytest
import torch

from fairseq_luna.recorded_training import FlatGradients, gradients
from fairseq_luna.recorded_training.known_padding import TokensOfKnownPadding


def parameters(*shapes):
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def test_an_update_begins_with_zeros_and_keeps_what_eager_steps_computed():
    params = parameters((3, 5), (7,), (2, 2))
    flat = FlatGradients(params)
    for _ in range(2):
        for p in params:
            p.grad = None
        params[1].grad = torch.full((7,), 2.0)
        flat.attach([0, 1])
        assert params[2].grad is None
        flat.add([torch.ones(3, 5), torch.ones(7), None])
        flat.attach([0, 1])  # of a second step of the same update
        params[0].sum().backward()
        assert torch.equal(params[0].grad, torch.full((3, 5), 2.0))
        assert torch.equal(params[1].grad, torch.full((7,), 3.0))


def test_each_gradient_is_aligned_and_has_the_dtype_of_its_parameter():
    params = [*parameters((3,), (5, 2)), torch.nn.Parameter(torch.randn(4, dtype=torch.bfloat16))]
    flat = FlatGradients(params)
    assert [vector.dtype for vector in flat.vectors] == [torch.float32, torch.bfloat16]
    for p, view in zip(params, flat.views, strict=True):
        assert view.shape == p.shape and view.dtype == p.dtype
        assert view.storage_offset() % gradients.ALIGNMENT == 0


def test_processes_get_the_mean_of_all_gradients(monkeypatch):
    params = parameters((3,), (2,))
    flat = FlatGradients(params)
    params[0].grad = torch.tensor([2.0, 4.0, 6.0])
    # The other process has the same gradients.
    monkeypatch.setattr(gradients.distributed_utils, "all_reduce", lambda vector, group: vector.mul_(2))
    flat.all_reduce(2, None)
    assert params[0].grad.tolist() == [2, 4, 6] and params[1].grad.tolist() == [0, 0]


@pytest.mark.parametrize("has_padding", [True, False])
def test_tokens_answer_what_the_host_knows(has_padding):
    # The memory says something else, so that an answer from there would be noticed.
    tokens = torch.tensor([[5, 6, 5]]) if has_padding else torch.tensor([[5, 6, 1]])
    known = TokensOfKnownPadding.of(tokens, pad=1, has_padding=has_padding)
    mask = known.eq(1)
    assert bool(mask.any()) is has_padding
    assert torch.equal(mask.any().type_as(torch.zeros(1)), tokens.eq(1).any().float())
    assert torch.equal(mask.any(1), tokens.eq(1).any(1))
    assert bool(known.eq(6).any()) and not bool(known.eq(7).any())
    for plain in (known + 1, known.ne(1), ~mask, known.eq(6), torch.nn.functional.embedding(known, torch.randn(9, 2))):
        assert type(plain) is torch.Tensor
    tokens[0, 0] = 8
    assert known.tolist() == tokens.tolist()
