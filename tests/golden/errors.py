"""The largest differences from the recorded numbers of the authors' code, in the tests that compare with them.

python tests/golden/errors.py [arguments of pytest]
"""

import re
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

TESTS = Path(__file__).parents[1]
COMPARING = "authors or theirs or published or public or test_golden"
READERS = re.compile("golden|assert_recorded", re.IGNORECASE)  # what a file with such tests calls


class Errors:
    """A plugin of pytest that notes the largest difference that each test compares."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        compare = torch.testing.assert_close

        def noted(ours: Any, theirs: Any, **how: Any) -> None:
            compare(ours, theirs, **how)
            found = [
                (one - other).abs().max().item() for one, other in zip(*map(tree_leaves, (ours, theirs)), strict=True)
            ]
            self.largest[item.nodeid] = max(self.largest.get(item.nodeid, 0.0), *found)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.testing, "assert_close", noted)
            return (yield)


def main(arguments: Sequence[str]) -> int:
    files = [str(path) for path in TESTS.rglob("test_*.py") if READERS.search(path.read_text(encoding="utf-8"))]
    errors = Errors()
    status = pytest.main(["-q", "-k", COMPARING, *files, *arguments], plugins=[errors])
    for test, error in errors.largest.items():
        print(f"{error:.1e}  {test}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
