"""The errors that the page on reproduction quotes are those of the tests that compare with the authors' numbers."""

from types import SimpleNamespace

import pytest
import torch

from golden.errors import Errors


def test_the_largest_difference_of_a_test_is_noted():
    errors, before = Errors(), torch.testing.assert_close
    running = errors.pytest_runtest_call(SimpleNamespace(nodeid="one"))
    next(running)
    torch.testing.assert_close(torch.ones(2), torch.tensor([1, 1.25]), rtol=0, atol=1)
    torch.testing.assert_close([torch.ones(1), torch.zeros(1)], [torch.ones(1), torch.full((1,), 0.5)], rtol=0, atol=1)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(torch.ones(1), torch.zeros(1))
    with pytest.raises(StopIteration):
        next(running)
    assert errors.largest == {"one": 0.5} and torch.testing.assert_close is before
