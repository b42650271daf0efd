"""A process exits normally while one of its threads is still making batches."""

import subprocess
import sys

HALF_READ = """
import torch, fairseq_luna.models
from fairseq.data.iterators import BufferedIterator

class Slow:
    def __len__(self):
        return 1000
    def __iter__(self):
        for _ in range(1000):
            yield torch.rand(500, 500).sort()

next(BufferedIterator(10, Slow()))
"""


def test_half_read_iterator_does_not_abort_the_process():
    ended = subprocess.run([sys.executable, "-c", HALF_READ], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
