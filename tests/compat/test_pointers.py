"""The place of each item in a merged data set, without the gigabytes that it is about."""

import numpy
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

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


def test_merged_parts_are_read_as_they_were_written(tmp_path):
    texts = [torch.arange(length) for length in (3, 5, 2)]
    for part, written in (("a", texts[:1]), ("b", texts[1:])):
        builder = MMapIndexedDatasetBuilder(str(tmp_path / f"{part}.bin"), dtype=numpy.uint16)
        for text in written:
            builder.add_item(text)
        if part == "b":
            builder.merge_file_(str(tmp_path / "a"))
        builder.finalize(str(tmp_path / f"{part}.idx"))
    merged = MMapIndexedDataset(str(tmp_path / "b"))
    assert [merged[i].tolist() for i in range(3)] == [text.tolist() for text in (*texts[1:], texts[0])]
