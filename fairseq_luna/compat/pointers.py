"""Merging the parts of several preprocessing workers ends in wrong places in the data beyond 2 GiB.

The sizes of merged parts are numpy's int32, and numpy 2 keeps the sum of a Python integer and an int32 in int32, so
fairseq's byte positions overflow: sentences behind the first 2 GiB of a side are other sentences (fairseq 0.12.2 and
fairseq-fixed 0.12.3.1). With this patch positions are summed as Python integers. ``fairseq-preprocess`` has it only
with ``--user-dir``.
"""

import functools
from typing import Any

import numpy
from fairseq.data.indexed_dataset import MMapIndexedDataset

from fairseq_luna.compat.patch import Patch


def is_needed() -> bool:
    """Whether the item behind one of 2 GiB is not placed behind it."""
    sizes = numpy.array([2**30, 1], numpy.int32)
    with numpy.errstate(over="ignore"):
        pointers = MMapIndexedDataset.Index.writer("", numpy.uint16)._get_pointers([*sizes, sizes[1]])
    return list(pointers) != [0, 2**31, 2**31 + 2]


def apply() -> None:
    original_writer = MMapIndexedDataset.Index.writer

    @functools.wraps(original_writer)
    def writer(path: str, dtype: type) -> Any:
        made = original_writer(path, dtype)
        original_pointers = made._get_pointers

        made._get_pointers = lambda sizes: original_pointers(map(int, sizes))
        return made

    MMapIndexedDataset.Index.writer = staticmethod(writer)


PATCH = Patch(
    "pointers", is_needed, apply, "places beyond 2 GiB overflowed when parts of a data set were merged; they are whole"
)
