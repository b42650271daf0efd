"""fairseq under later versions of numpy: removed names, and integers that overflow."""

from types import SimpleNamespace
from typing import Any

import numpy
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.modules import dynamic_crf_layer

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method


class RemovedNames(Patch):
    """fairseq reads names that numpy has removed: ``int``, ``float``, ``compat.long``, percentile's ``interpolation``.

    It fails with ``--sample-break-mode eos``, one sample for each line of a language model's text, with
    ``--num-batch-buckets``, in masks that do not overlap and in the CRF of non-autoregressive models (fairseq 0.12.2
    and fairseq-fixed 0.12.3.1). With this patch these modules of fairseq have the names; numpy itself is not changed.
    """

    name = "numpy-names"
    summary = "numpy has removed names that fairseq reads; it finds them again"

    def is_needed(self) -> bool:
        """Whether fairseq fails to form a sample of one line, or buckets of sentences."""
        try:
            token_block_dataset.TokenBlockDataset._build_slice_indices([1], "eos", 0, 0)
            data_utils.get_buckets([1], 1)
        except (AttributeError, TypeError):
            return True
        return False

    def apply(self) -> None:
        for module in _READERS:
            module.np = _Numpy()


_READERS = (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer)


class _Numpy:
    """numpy with the names that fairseq reads."""

    int = int
    float = float
    compat = SimpleNamespace(long=int)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)

    @staticmethod
    def percentile(*args: Any, interpolation: str = "linear", **options: Any) -> Any:
        return numpy.percentile(*args, **{"method": interpolation, **options})


class OverflowingPointers(Patch):
    """Merging the parts of several preprocessing workers writes wrong positions into the data beyond 2 GiB.

    The sizes of merged parts are numpy's int32, and numpy 2 keeps the sum of a Python integer and an int32 in int32, so
    that fairseq's byte positions overflow: sentences after the first 2 GiB of a side are other sentences (fairseq
    0.12.2 and fairseq-fixed 0.12.3.1). With this patch positions are summed as Python integers. ``fairseq-preprocess``
    has it only with ``--user-dir``.
    """

    name = "pointers"
    summary = "places beyond 2 GiB overflowed when parts of a data set were merged; they are whole"

    def is_needed(self) -> bool:
        """Whether the item that follows one of 2 GiB is not placed after it."""
        sizes = numpy.array([2**30, 1], numpy.int32)
        with numpy.errstate(over="ignore"):
            pointers = MMapIndexedDataset.Index.writer("", numpy.uint16)._get_pointers([*sizes, sizes[1]])
        return list(pointers) != [0, 2**31, 2**31 + 2]

    def apply(self) -> None:
        @wrap_method(MMapIndexedDataset.Index, "writer")
        def writer(original: Any, path: str, dtype: type) -> Any:
            index = original(path, dtype)
            pointers = index._get_pointers
            index._get_pointers = lambda sizes: pointers(map(int, sizes))
            return index
