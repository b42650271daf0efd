"""Held-out pairs that stand in the training text too."""

import pytest

from corpus_files import write_pairs
from fairseq_luna.commands.preparing.cleaning import Overlap, lines_of_overlap

TRAIN = [("a b", "x"), ("c ", " y"), ("a b", "z"), ("e", "v"), ("", "")]
VALID = [("a b", "x"), ("a b", "q"), ("n", "n"), ("", "")]
TEST = [("c", "y"), ("c", "y"), ("m", "v")]


@pytest.mark.parametrize(
    ("leave_out", "kept", "lines"),
    [
        (
            None,
            TRAIN,
            [
                "valid: 1 of 4 pairs also stand in the training text, and 2 of the sources",
                "test: 2 of 3 pairs also stand in the training text, and 2 of the sources",
            ],
        ),
        ("pairs", TRAIN[2:], ["valid: 0 of 4 pairs also stand in the training text, and 2 of the sources"]),
        ("sources", TRAIN[3:], []),
    ],
)
def test_pairs_and_sources_are_counted_and_left_out(leave_out, kept, lines, tmp_path):
    for split, pairs in (("valid", VALID), ("test", TEST)):
        write_pairs(tmp_path, split, pairs)
    found = Overlap(tmp_path, ("en", "de"), leave_out)
    assert [pair for pair in TRAIN if not found.record_or_leave_out(pair)] == kept
    assert lines_of_overlap(found.counts()) == lines
