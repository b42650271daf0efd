"""Which pairs are dropped and counted, and that a corpus is streamed."""

from collections import Counter
from itertools import cycle, islice

import pytest

from fairseq_luna.commands.preparing.cleaning import EMPTY, LengthLimits, clean_pairs

RECIPE = LengthLimits(longest=250, ratio=1.5)


def words(number):
    return " ".join(["a"] * number)


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        (1, 1, None),
        (2, 3, None),
        (3, 2, None),
        (250, 250, None),
        (250, 167, None),
        (0, 0, EMPTY),
        (0, 5, EMPTY),
        (5, 0, EMPTY),
        (251, 250, "longer than 250 pieces"),
        (200, 301, "longer than 250 pieces"),
        (3, 5, "one side longer than 1.5 times the other"),
        (250, 166, "one side longer than 1.5 times the other"),
    ],
)
def test_rules(first, second, rule):
    assert RECIPE.violated_by(words(first), words(second)) == rule


def test_without_limits_only_pairs_with_an_empty_side_are_dropped():
    assert LengthLimits().violated_by(words(1), words(900)) is None
    for blank in (" \u00a0", "\u3000", "\u2581 \U000f3000", "\u200b"):
        assert LengthLimits().violated_by(blank, "a") == LengthLimits().violated_by("a", blank) == EMPTY


def test_dropped_pairs_of_an_endless_corpus_are_counted_by_rule():
    dropped = Counter()
    pairs = cycle([("a", "b"), ("", "b"), ("a", ""), ("a b c d", "a"), ("c", "d")])
    assert list(islice(clean_pairs(pairs, RECIPE, dropped), 4)) == 2 * [("a", "b"), ("c", "d")]
    assert dropped == {EMPTY: 4, "one side longer than 1.5 times the other": 2}
