"""Models on meta tensors: a tensor that is not made on the device of its input stands out at once."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from models.test_correctness_bar import EVERY_VARIANT
from support import PAD, as_prefix, build_model, sentences


class OneDevice(TorchDispatchMode):
    """Refuses operators whose operands are on two devices; a number (0 dimensions) may be on the CPU, as for torch."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.dim() > 0]
        assert len({x.device for x in operands}) < 2, f"{func} of {[(x.device, x.shape) for x in operands]}"
        return func(*args, **kwargs)


class Answers(TorchFunctionMode):
    """Numbers in place of data that a meta tensor does not have: every condition holds, every count is 1."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is Tensor.any and len(args) == 1:
            return torch.tensor(True)
        if func in (Tensor.__int__, Tensor.item):
            return 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch):
    """torch has no autocast for meta tensors: asking for it is an error."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device_type: False)


def on_meta(**flags):
    source, target = sentences(7, 4, 5), sentences(6, 3, 8, seed=2)
    return build_model(**flags).to("meta"), source.to("meta"), target.to("meta")


@EVERY_VARIANT
def test_training_step(flags):
    model, source, target = on_meta(dropout=0.1, attention_dropout=0.1, **flags)
    model.to(torch.bfloat16)
    with Answers(), OneDevice():
        out = model(source, source.ne(PAD).sum(1), as_prefix(target))[0]
        F.cross_entropy(out.float().flatten(0, 1), target.flatten()).backward()
    assert {p.grad.device.type for p in model.parameters()} == {"meta"}


@EVERY_VARIANT
@torch.no_grad()
def test_decoding_steps_with_reorder(flags):
    model, source, target = on_meta(**flags)
    model.eval()
    with Answers(), OneDevice():
        encoder_out = model.encoder.forward_torchscript({"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)})
        order = torch.arange(len(source), device="meta")
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
        state = {}
        for t in range(1, 5):
            model.decoder(target[:, :t], encoder_out=encoder_out, incremental_state=state)
            model.decoder.reorder_incremental_state_scripting(state, order)
