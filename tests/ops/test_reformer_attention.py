import pytest
import torch
import torch.nn.functional as F

from every_op import OPS
from fairseq_luna.ops.reformer_attention import buckets, reformer_attention, reformer_attention_reference
from support import assert_recorded, golden

FORMS = pytest.mark.parametrize("form", [reformer_attention_reference, reformer_attention], ids=["naive", "chunked"])


@FORMS
def test_one_direction_is_softmax_attention_to_the_others_on_the_same_side(form):
    q, v, directions = OPS["reformer-4"].make(T=12, N=1, M=1)
    with torch.no_grad():
        q[:, :, 0] = directions[0, :, 0]  # this step is alone on its side
        q[:, :, 1:] = -q[:, :, 1:] * (q[:, :, 1:] @ directions[0]).sign()
        q[0] = -q[0]
    side = (q @ directions[0])[..., 0] > 0
    seen = (side[..., None] == side[..., None, :]) ^ torch.eye(12, dtype=torch.bool)
    seen[:, :, 0, 0] = True
    expected = F.scaled_dot_product_attention(q, F.normalize(q, dim=-1), v, attn_mask=seen, scale=1.0)
    torch.testing.assert_close(form(q, v, directions, chunk_size=12), expected)
    assert expected[:, :, 0].equal(v[:, :, 0])


def test_long_sentences_have_more_buckets_up_to_twice_the_directions():
    q, _, directions = OPS["reformer-4"].make(M=3)
    lengths = (40, 17, 8)
    mask = torch.arange(40) >= torch.tensor(lengths)[:, None]
    found = buckets(q, directions, chunk_size=4, padding=mask)
    counts = [found[row, ..., :length].unique().numel() for row, length in enumerate(lengths)]
    assert counts == [6, 6, 2]
    assert (found.transpose(1, 3)[mask] == 6).all()


@FORMS
def test_equals_the_numbers_of_the_authors_attention(form):
    """It is the port of their code in transformers, whose norm of a query has an eps of 1e-6."""

    def attention(q, v, *, recorded):
        return form(q, v, recorded["directions"], chunk_size=recorded["chunk_size"])

    assert_recorded("reformer_lsh.pt", attention, "qv", rtol=1e-5)


@FORMS
def test_equals_another_public_implementation_that_divides_the_scores(form):
    """It is Phil Wang's with buckets kept apart. By default his steps see other buckets of their chunks too."""

    def attention(q, v, *, recorded):
        scaled = q * q.shape[-1] ** -0.5
        return form(scaled, v, recorded["directions"], chunk_size=recorded["chunk_size"])

    out = assert_recorded("reformer.pt", attention, "qv", rtol=1e-5, atol=1e-6)
    assert (out - golden("reformer.pt")["output_of_all_buckets"]).abs().max() > 0.1
