"""Merging the parts of several preprocessing workers ends in wrong places in the data beyond 2 GiB.

The sizes of merged parts are numpy's int32, and numpy 2 keeps the sum of a Python integer and an int32 in int32, so
fairseq's byte positions overflow: sentences behind the first 2 GiB of a side are other sentences (fairseq 0.12.2 and
fairseq-fixed 0.12.3.1). With this patch positions are summed as Python integers. ``fairseq-preprocess`` has it only
with ``--user-dir``.
"""

from typing import Any

import numpy
from fairseq.data.indexed_dataset import MMapIndexedDataset

from fairseq_luna.replacing import replaces

SUMMARY = "places beyond 2 GiB overflowed when parts of a data set were merged; they are whole"


def is_needed() -> bool:
    """Whether the item behind one of 2 GiB is not placed behind it."""
    sizes = numpy.array([2**30, 1], numpy.int32)
    with numpy.errstate(over="ignore"):
        pointers = MMapIndexedDataset.Index.writer("", numpy.uint16)._get_pointers([*sizes, sizes[1]])
    return list(pointers) != [0, 2**31, 2**31 + 2]


def apply() -> None:
    @replaces(MMapIndexedDataset.Index, "writer")
    def writer(original: Any, path: str, dtype: type) -> Any:
        made = original(path, dtype)
        pointers = made._get_pointers
        made._get_pointers = lambda sizes: pointers(map(int, sizes))
        return made
