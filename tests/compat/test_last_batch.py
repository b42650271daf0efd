"""--required-batch-size-multiple drops no sentence, and every batch is within its limits."""

import numpy
import pytest
from fairseq.data import data_utils
from hypothesis import given
from hypothesis import strategies as st


def batches(sizes, *, vectorised, as_generator=False, **limits):
    sizes = numpy.array(sizes, dtype=numpy.int64)
    indices = numpy.arange(len(sizes))
    return data_utils.batch_by_size(
        (i for i in indices) if as_generator else indices,
        lambda i: sizes[i],
        num_tokens_vec=sizes if vectorised else None,
        **limits,
    )


@pytest.mark.parametrize("vectorised", [True, False], ids=["vector", "function"])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 13, 100])
def test_every_sentence_is_in_a_batch(count, vectorised):
    made = batches([5] * count, vectorised=vectorised, max_sentences=8, required_batch_size_multiple=8)
    assert [i for batch in made for i in batch] == list(range(count))


def test_indices_may_be_a_generator():
    made = batches([1] * 7, vectorised=True, as_generator=True, required_batch_size_multiple=8)
    assert [list(batch) for batch in made] == [list(range(7))]


@given(st.lists(st.integers(1, 20), max_size=60), st.integers(20, 90), st.integers(1, 12), st.integers(1, 8))
def test_limits_hold_for_the_last_batch_too(sizes, max_tokens, max_sentences, multiple):
    made = batches(
        sizes,
        vectorised=True,
        max_tokens=max_tokens,
        max_sentences=max_sentences,
        required_batch_size_multiple=multiple,
    )
    assert [i for batch in made for i in batch] == list(range(len(sizes)))
    assert all(len(batch) <= max_sentences for batch in made)
    assert all(len(batch) * max(sizes[i] for i in batch) <= max_tokens for batch in made)


def test_fixed_shapes_are_fairseqs():
    made = batches([3] * 7, vectorised=False, fixed_shapes=[(4, 3)])
    assert [len(batch) for batch in made] == [4, 3]
