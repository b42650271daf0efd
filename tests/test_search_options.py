"""The numbers that translating takes, for trained and for exported models alike."""

import math

import pytest

from fairseq_luna.search_options import COUNTS, NUMBERS, check_numbers
from fairseq_luna.usage_error import UsageError

REFUSED = {
    "a whole number of 1 or more": [(name, value) for name in COUNTS for value in (0, -1, 2.5, math.nan, True)],
    "a number": [(name, value) for name in NUMBERS for value in ("a", True)],
    "a finite number": [
        (name, value) for name in (*NUMBERS, "sampling_topp") for value in (math.nan, math.inf, -math.inf)
    ],
    "above 0": [("temperature", 0.0)],
}


@pytest.mark.parametrize("said", REFUSED)
def test_numbers_that_cannot_be_are_refused_by_name(said):
    for name, value in REFUSED[said]:
        with pytest.raises(UsageError, match=f"^{name} {value}: must be {said}$"):
            check_numbers({"min_len": 1, name: value})


def test_other_numbers_are_taken():
    check_numbers({"beam": 1, "max_tokens": None, "lenpen": -1.5, "temperature": 0.1, "sampling": True, "task": "x"})
