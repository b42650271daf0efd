"""--required-batch-size-multiple drops no sentence, and every batch is within its limits."""

import numpy
import pytest
from fairseq.data import data_utils
from hypothesis import given
from hypothesis import strategies as st


def batches(sizes, *, vectorised=False, as_generator=False, **limits):
    sizes = numpy.array(sizes, dtype=numpy.int64)
    indices = numpy.arange(len(sizes))
    return data_utils.batch_by_size(
        (i for i in indices) if as_generator else indices,
        lambda i: sizes[i],
        num_tokens_vec=sizes if vectorised else None,
        **limits,
    )


LIMITS = {"max_tokens": (20, 90), "max_sentences": (1, 12), "required_batch_size_multiple": (1, 8)}


@pytest.mark.parametrize("vectorised", [True, False], ids=["vector", "function"])
@pytest.mark.parametrize("as_generator", [True, False], ids=["generator", "indices"])
@given(
    sizes=st.lists(st.integers(1, 20), max_size=60),
    limits=st.fixed_dictionaries({name: st.integers(*ends) for name, ends in LIMITS.items()}),
)
def test_every_sentence_is_in_a_batch_within_its_limits(vectorised, as_generator, sizes, limits):
    made = batches(sizes, vectorised=vectorised, as_generator=as_generator, **limits)
    assert [i for batch in made for i in batch] == list(range(len(sizes)))
    assert all(len(batch) <= limits["max_sentences"] for batch in made)
    assert all(len(batch) * max(sizes[i] for i in batch) <= limits["max_tokens"] for batch in made)


def test_fixed_shapes_are_fairseqs():
    made = batches([3] * 7, fixed_shapes=[(4, 3)])
    assert [len(batch) for batch in made] == [4, 3]
