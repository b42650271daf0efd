"""Cutting into chunks: a view of full chunks, a filled last one, and a graph that holds for any length."""

import pytest
import torch

from fairseq_luna.ops.chunks import split_into_chunks

X = torch.arange(2 * 7 * 3.0).reshape(2, 7, 3)


@pytest.mark.parametrize("dim", [-1, -2, -3])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_chunks_joined_are_the_tensor_and_what_it_was_filled_with(dim, size):
    joined = split_into_chunks(X, size, dim=dim, fill=-1.0).flatten(X.dim() + dim, X.dim() + dim + 1)
    kept, filled = joined.split([X.shape[dim], joined.shape[dim] - X.shape[dim]], dim=dim)
    assert kept.equal(X)
    assert joined.shape[dim] % size == 0
    assert filled.shape[dim] < size
    assert filled.eq(-1.0).all()


def test_full_chunks_are_a_view():
    assert split_into_chunks(X, 7, dim=-2).data_ptr() == X.data_ptr()
    assert split_into_chunks(X.transpose(0, 1), 7, dim=-3).data_ptr() == X.data_ptr()


def test_nothing_is_cut_into_no_chunks():
    assert split_into_chunks(X[:, :0], 4, dim=-2).shape == (2, 0, 4, 3)


@pytest.mark.slow
def test_one_graph_holds_at_below_and_above_a_multiple_of_the_chunk():
    def batch_and_chunks(x):
        return split_into_chunks(x, 4, dim=-2).flatten(0, 1)

    compiled = torch.compile(batch_and_chunks, backend="aot_eager", dynamic=True, fullgraph=True)
    torch._dynamo.reset()
    for steps in (9, 8, 7):
        x = torch.randn(steps, 2, 3).transpose(0, 1).requires_grad_()  # batches and time cannot be joined in place
        found = compiled(x)
        torch.testing.assert_close(found, batch_and_chunks(x))
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert gradient.equal(torch.ones_like(x))
