"""``--ddp-backend c10d`` and ``pytorch_ddp`` on a GPU; tests/reliability/test_processes.py trains with them on CPUs."""

from fairseq.models import distributed_fairseq_model
from torch import nn

from fairseq_luna.compat import PATCHES


def test_a_model_on_another_device_keeps_its_device_ids(monkeypatch):
    """The meta device stands for a GPU's."""
    given = {}
    monkeypatch.setattr(distributed_fairseq_model, "DistributedDataParallel", lambda **seen: given.update(seen))
    PATCHES["cpu-ddp"].apply()
    model = nn.Linear(1, 1, device="meta")
    distributed_fairseq_model.DistributedDataParallel(module=model, device_ids=[3], output_device=3)
    assert given == {"module": model, "device_ids": [3], "output_device": 3}
