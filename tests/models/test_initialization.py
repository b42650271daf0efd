"""In every kind of model each attention has the parameters that its own constructor gave it.

In a RoBERTa the linear maps are fairseq's, N(0, 0.02) with a bias of 0, except those with an initialization of their
own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from fairseq_luna.modules.gated_rfa import GatedRfaAttention
from readers import EVERY_READER
from readers import build as build_reader
from support import build_model
from variants import VARIANTS

PLACES = ("self_attn", "encoder_attn")
BERT = 0.02


@contextmanager
def recorded() -> Iterator[dict[nn.Parameter, torch.Tensor]]:
    """The values of the parameters of each attention when it becomes a part of its layer."""
    values: dict[nn.Parameter, torch.Tensor] = {}

    def record(_: nn.Module, name: str, module: nn.Module | None) -> None:
        if name in PLACES and module is not None:
            values.update({p: p.detach().clone() for p in module.parameters() if p not in values})

    hook = register_module_module_registration_hook(record)
    try:
        yield values
    finally:
        hook.remove()


def attentions(model):
    """The attentions of a model by name."""
    return {name: module for name, module in model.named_modules() if name.rpartition(".")[2] in PLACES}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_translation_model_leaves_the_parameters_of_attentions_unchanged(variant):
    with recorded() as values:
        model = build_model(**VARIANTS[variant])
    found = attentions(model)
    assert found
    for place, attention in found.items():
        for name, parameter in attention.named_parameters():
            assert parameter.equal(values[parameter]), f"{place}.{name}"


def is_ordinary(start):
    """Whether it is a weight that is Xavier uniform, with a gain of 1 or 1/sqrt(2), or a bias of zeros or of chance."""
    if start.dim() == 1:
        return not start.any() or len(start.unique()) > 1
    bounds = [(gain * 6 / sum(start.shape)) ** 0.5 for gain in (0.5, 1)]
    return any(0.9 * bound < start.abs().max() <= bound for bound in bounds)


@pytest.mark.parametrize("variant", EVERY_READER)
def test_a_reader_sets_linear_maps_as_bert_and_nothing_else(variant):
    with recorded() as values:
        model = build_reader(variant)
    weights = []
    for place, attention in attentions(model).items():
        for owner, part in attention.named_modules():
            for name, parameter in part.named_parameters(recurse=False):
                alone, where = values[parameter], f"{place}.{owner}.{name}"
                if not isinstance(part, nn.Linear) or "pyramid" in variant:
                    assert parameter.equal(alone), where
                elif type(part) is nn.Linear:
                    assert is_ordinary(alone), f"{where} should be of a class with reset_parameters of its own"
                    assert name == "weight" or not parameter.any(), where
                    weights += [parameter.flatten()] * (name == "weight")
                elif name == "bias":
                    assert parameter.equal(alone), where
                else:  # drawn again, from the same distribution
                    assert parameter.std().item() == pytest.approx(alone.std().item(), rel=0.5), where
    if weights:
        assert torch.cat(weights).std().item() == pytest.approx(BERT, rel=0.1)


@pytest.mark.parametrize("flags", [{}, {"quant_noise_pq": 0.1}], ids=["plain", "noisy"])
def test_gates_of_a_reader_keep_nine_tenths_at_first(flags):
    reader = build_reader("mixed-gated-rfa", encoder_embed_dim=64, encoder_attention_heads=8, **flags)
    own = GatedRfaAttention(embed_dim=64, num_heads=8)
    for attention in attentions(reader).values():
        assert attention.gate_proj.bias.equal(own.gate_proj.bias)
        assert attention.gate_proj.weight.std().item() == pytest.approx(own.gate_proj.weight.std().item(), rel=0.15)
        gates = attention.gate_proj(torch.randn(100, 64)).sigmoid()
        torch.testing.assert_close(gates.mean(), torch.tensor(0.9), atol=0.01, rtol=0)
