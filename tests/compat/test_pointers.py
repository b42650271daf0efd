"""The place of each item in a merged data set, without the gigabytes that it is about."""

import numpy
import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset

SIZES = [2**29, 2**29, 7, 2**30, 3]


@pytest.mark.parametrize("dtype", [numpy.uint16, numpy.int32, numpy.int64])
@pytest.mark.parametrize("sizes", [SIZES, numpy.array(SIZES, numpy.int32), [*numpy.array(SIZES, numpy.int32)]])
def test_places_beyond_two_gibibytes(tmp_path, sizes, dtype):
    with MMapIndexedDataset.Index.writer(str(tmp_path / "index"), dtype) as index:
        index.write(sizes)
    read = MMapIndexedDataset.Index(str(tmp_path / "index"))
    assert [read[i] for i in range(len(SIZES))] == [
        (sum(SIZES[:i]) * numpy.dtype(dtype).itemsize, size) for i, size in enumerate(SIZES)
    ]
