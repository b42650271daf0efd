"""A wrong side is noticed in a few sentences, other differences are none; tests/commands/test_prepare.py swaps both."""

import pytest

from corpus_files import pairs
from fairseq_luna.commands.preparing.corpus import check_sides, trigram_profiles
from fairseq_luna.usage_error import UsageError

TRAIN, OTHER = pairs(40, 1), pairs(6, 2)
NAMES = ("a.en", "a.de")


def test_texts_of_the_same_languages_are_accepted():
    check_sides(trigram_profiles(TRAIN), trigram_profiles(OTHER), NAMES)
    check_sides(trigram_profiles(TRAIN), trigram_profiles([("", ""), ("XYZ 12", "QRS 34")]), NAMES)
    same = [(english, english) for english, _ in TRAIN]
    check_sides(trigram_profiles(same), trigram_profiles(same[:5]), NAMES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ([(german, german) for _, german in OTHER], "a.en: is given as the source, but looks like"),
        ([(english, english) for english, _ in OTHER], "a.de: is given as the target, but looks like"),
    ],
    ids=["target twice", "source twice"],
)
def test_a_wrong_side_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        check_sides(trigram_profiles(TRAIN), trigram_profiles(text), NAMES)
