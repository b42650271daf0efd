"""Everything on meta tensors: a tensor that is not made on the device of its input stands out at once.

A new attention is a line in ``helpers/every_op.py`` and one in ``helpers/variants.py``.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import readers
from every_op import ATTENTIONS, SPECIFICATIONS
from fairseq_luna.optim.apollo import Apollo
from fairseq_luna.optim.fairseq_apollo import clip_each
from models.test_correctness_bar import EVERY_VARIANT
from optim.test_apollo_launches import DTYPES, EVERY_MODE
from support import PAD, as_prefix, build_model, sentences

DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1, "word_dropout": 0.1}


class OneDevice(TorchDispatchMode):
    """Refuses operators whose operands are on two devices; a number (0 dimensions) may be on the CPU, as for torch."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.dim() > 0]
        assert len({x.device for x in operands}) < 2, f"{func} of {[(x.device, x.shape) for x in operands]}"
        return func(*args, **kwargs)


class Answers(TorchFunctionMode):
    """Numbers in place of data that a meta tensor does not have: whether anything is ``padded``; every count is 1."""

    def __init__(self, *, padded=True):
        super().__init__()
        self.padded = padded

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is Tensor.any and len(args) == 1:
            return torch.tensor(self.padded)
        if func in (Tensor.__int__, Tensor.item) and args[0].device.type == "meta":
            return 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch):
    """torch has no autocast for meta tensors: asking for it is an error."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device_type: False)


def devices(*results):
    return {x.device.type for x in tree_leaves(results) if isinstance(x, Tensor)}


def on_meta(build, **flags):
    """A model, its source and its target."""
    source, target = sentences(7, 4, 5), sentences(6, 3, 8, seed=2)
    return build(**flags).to("meta"), source.to("meta"), target.to("meta")


OPS = ATTENTIONS | {f"{name}-specification": call for name, call in SPECIFICATIONS.items()}


@pytest.mark.parametrize("attention", OPS.values(), ids=OPS)
def test_ops(attention):
    with Answers(), OneDevice():
        out = attention(*attention.make(torch.empty(0, device="meta")))
        sum(x.sum() for x in tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad).backward()
    assert devices(out) == {"meta"}


@EVERY_VARIANT
def test_training_step(flags):
    model, source, target = on_meta(build_model, **DROPOUT, **flags)
    model.to(torch.bfloat16)
    with Answers(), OneDevice():
        out = model(source, source.ne(PAD).sum(1), as_prefix(target))[0]
        F.cross_entropy(out.float().flatten(0, 1), target.flatten()).backward()
    assert devices([p.grad for p in model.parameters()]) == {"meta"}


@EVERY_VARIANT
@torch.no_grad()
def test_decoding_steps_with_reorder(flags):
    model, source, target = on_meta(build_model, **flags)
    model.eval()
    with Answers(padded=False), OneDevice():
        encoder_out = model.encoder.forward_torchscript({"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)})
        order = torch.arange(len(source), device="meta")
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
        state = {}
        for t in range(1, 5):
            model.decoder(target[:, :t], encoder_out=encoder_out, incremental_state=state)
            model.decoder.reorder_incremental_state_scripting(state, order)
    assert devices(encoder_out, state) == {"meta"}


@pytest.mark.parametrize(
    ("variant", "pooling"),
    [
        *(("luna", pooling) for pooling in readers.POOLINGS[:-1]),
        *((name, "attention") for name in readers.EVERY_READER),
    ],
)
def test_reader(variant, pooling):
    model, texts, _ = on_meta(readers.build, variant=variant, pooling=pooling, **DROPOUT)
    with Answers(), OneDevice():
        out = readers.classify(model, texts), model(texts)[0]
        sum(x.sum() for x in out).backward()
    assert devices(out, [p.grad for p in model.parameters()]) == {"meta"}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@EVERY_MODE
def test_optimizer_step(options, dtype):
    params = [nn.Parameter(torch.empty(3, 2, device="meta", dtype=dtype)) for _ in range(2)]
    optimizer = Apollo(params, lr=0.1, **options)
    with OneDevice():
        for p in params:
            p.grad = torch.empty_like(p)
        for _ in range(2):
            clip_each([p.grad for p in params], 0.1)
            optimizer.step()
    assert devices(optimizer.state_dict()["state"]) == {"meta"}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_optimizer_state_of_a_checkpoint_follows_its_parameters(dtype):
    on_cpu, on_meta = (nn.Parameter(torch.ones(2, device=device, dtype=dtype)) for device in ("cpu", "meta"))
    saving, loading = Apollo([on_cpu], lr=0.1), Apollo([on_meta], lr=0.1)
    on_cpu.grad = torch.ones_like(on_cpu)
    saving.step()
    loading.load_state_dict(saving.state_dict())
    assert devices(loading.state_dict()["state"]) == {"meta"}
