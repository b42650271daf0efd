import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.ops.reformer_attention import chunked, naive
from fairseq_luna.ops.reformer_attention.shared import buckets
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, gradients, mixed_padding, randn
from support import golden

FORMS = pytest.mark.parametrize("form", [naive, chunked], ids=["naive", "chunked"])


def inputs(steps=40, dtype=torch.float64, rounds=3, most=64):
    q, v = (randn(3, 2, steps, 8, dtype=dtype, seed=seed) for seed in range(2))
    return q, v, randn(rounds, 8, most, grad=False, seed=2).to(dtype)


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize(("steps", "chunk", "most"), [(1, 4, 64), (40, 64, 64), (40, 4, 64), (39, 5, 2), (40, 1, 64)])
def test_chunked_equals_naive(steps, chunk, most, dtype, padded):
    q, v, directions = inputs(steps, dtype, most=most)
    mask = mixed_padding(steps) if padded and steps > 1 else None
    expected, actual = (
        form.reformer_attention(q, v, directions, chunk_size=chunk, padding_mask=mask) for form in (naive, chunked)
    )
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, (q, v), dtype)


@FORMS
def test_padding_is_not_seen_at_any_position(form):
    """Alone a sentence has the same number of buckets as in the batch."""
    (q, v, directions), mask = inputs(), mixed_padding(40)
    mask[2] = True
    out = form.reformer_attention(q, v, directions, chunk_size=3, padding_mask=mask)
    assert not out[2].any()
    for row in range(2):
        real = ~mask[row]
        alone = form.reformer_attention(*(x[row : row + 1, :, real] for x in (q, v)), directions, chunk_size=3)
        torch.testing.assert_close(out[row : row + 1, :, real], alone)
    for gradient in gradients(out, q, v):
        assert torch.isfinite(gradient).all() and not gradient.transpose(1, 2)[mask].any()


@FORMS
def test_one_direction_is_softmax_attention_to_the_others_on_the_same_side(form):
    q, v, directions = inputs(12, rounds=1, most=1)
    with torch.no_grad():
        q[:, :, 0] = directions[0, :, 0]  # this step is alone on its side
        q[:, :, 1:] = -q[:, :, 1:] * (q[:, :, 1:] @ directions[0]).sign()
        q[0] = -q[0]
    side = (q @ directions[0])[..., 0] > 0
    seen = (side[..., None] == side[..., None, :]) ^ torch.eye(12, dtype=torch.bool)
    seen[:, :, 0, 0] = True
    expected = F.scaled_dot_product_attention(q, F.normalize(q, dim=-1), v, attn_mask=seen, scale=1.0)
    torch.testing.assert_close(form.reformer_attention(q, v, directions, chunk_size=12), expected)
    assert expected[:, :, 0].equal(v[:, :, 0])


def test_long_sentences_have_more_buckets_up_to_twice_the_directions():
    q, _, directions = inputs(40, most=3)
    lengths = (40, 17, 8)
    mask = torch.arange(40) >= torch.tensor(lengths)[:, None]
    found = buckets(q, directions, chunk_size=4, padding_mask=mask)
    counts = [found[row, ..., :length].unique().numel() for row, length in enumerate(lengths)]
    assert counts == [6, 6, 2]
    assert (found.transpose(1, 3)[mask] == 6).all()


def test_no_tensor_has_a_place_for_each_pair_of_steps():
    """The largest has in each round the keys and values, of 8 numbers, that each chunk sees: 2 for each step."""
    for steps in (200, 800):
        q, v, directions = inputs(steps, torch.float32, most=8)
        with LargestTensor() as largest:
            out = chunked.reformer_attention(q, v, directions, chunk_size=8, padding_mask=mixed_padding(steps))
            out.sum().backward()
        assert largest.elements <= 3 * 2 * 3 * steps * 2 * 16


def assert_equal_to_recorded(form, recorded, scale, **tolerance):
    """Outputs and gradients for queries times ``scale``."""
    q, v = (recorded[name].clone().requires_grad_() for name in "qv")
    out = form.reformer_attention(q * scale, v, recorded["directions"], chunk_size=recorded["chunk_size"])
    torch.testing.assert_close(out, recorded["output"], **tolerance)
    for name, gradient in zip("qv", torch.autograd.grad(out, (q, v), recorded["grad_output"]), strict=True):
        torch.testing.assert_close(gradient, recorded[f"grad_{name}"], **tolerance)
    return out


@FORMS
def test_equals_the_numbers_of_the_authors_attention(form):
    """It is the port of their code in transformers, whose norm of a query has an eps of 1e-6."""
    assert_equal_to_recorded(form, golden("reformer_lsh.pt"), 1.0, rtol=1e-5, atol=1e-5)


@FORMS
def test_equals_another_public_implementation_that_divides_the_scores(form):
    """It is Phil Wang's with buckets kept apart. By default his steps see other buckets of their chunks too."""
    recorded = golden("reformer.pt")
    out = assert_equal_to_recorded(form, recorded, recorded["q"].shape[-1] ** -0.5, rtol=1e-5, atol=1e-6)
    assert (out - recorded["output_of_all_buckets"]).abs().max() > 0.1
