"""Dictionaries, tiny models, batches and golden files for several tests."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_REGISTRY
from torch import Tensor
from torch.nn import Module

import fairseq_luna.models  # noqa: F401 (registers the models)

GOLDEN = Path(__file__).parents[1] / "golden"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # for numbers of fp32
PAD = 1
EOS = 2

TINY = {
    "encoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "projection_length": 6,
    "share_all_embeddings": True,
    "dropout": 0.0,
}


def golden(name: str) -> Any:
    """A recorded file of the authors' implementation."""
    return torch.load(GOLDEN / name, weights_only=True)


def assert_recorded(name: str, attention: Callable[..., Tensor], inputs: Sequence[str], **tolerance: float) -> Tensor:
    """Call ``attention`` with these recorded ``inputs``: it has the recorded output and gradients."""
    close = CLOSE | tolerance
    recorded = golden(name)
    given = {key: recorded[key].clone().requires_grad_() for key in inputs}
    out = attention(*given.values(), recorded=recorded)
    torch.testing.assert_close(out, recorded["output"], **close)
    found = torch.autograd.grad(out, [*given.values()], recorded["grad_output"])
    for key, gradient in zip(inputs, found, strict=True):
        torch.testing.assert_close(gradient, recorded[f"grad_{key}"], **close)
    return out


def assert_published(
    module: Module, recorded: Any, grads: dict[str, Tensor], mask: Tensor | None = None, run: Any = None
) -> Tensor:
    """The module has the recorded output ``(B, T, C)``, and the gradients of x and of its parameters, ``grads``.

    At padding there is none. ``run`` is called in place of the module.
    """
    x = recorded["x"].clone().requires_grad_()
    out = (run or module)(x.transpose(0, 1), padding_mask=mask).transpose(0, 1)
    real = slice(None) if mask is None else ~mask
    torch.testing.assert_close(out[real], recorded["output"][real], **CLOSE)
    found = torch.autograd.grad(out, [x, *map(module.get_parameter, grads)], recorded["grad_output"])
    torch.testing.assert_close(found, (recorded["grad_x"], *grads.values()), **CLOSE)
    return out


def translation_task(words: int = 40) -> Namespace:
    """As much of a fairseq task as building a model needs."""
    dictionary = Dictionary()
    for index in range(words):
        dictionary.add_symbol(f"w{index}")
    return Namespace(source_dictionary=dictionary, target_dictionary=dictionary)


def build_model(family: str, words: int = 40, seed: int = 0, **flags: Any) -> Any:
    """A small model of the registered ``family`` with ``flags`` over TINY."""
    torch.manual_seed(seed)
    return MODEL_REGISTRY[family].build_model(Namespace(**{**TINY, **flags}), translation_task(words))


build_luna = partial(build_model, "luna")


def sentences(*lengths: int, words: int = 40, seed: int = 1, left: bool = False) -> Tensor:
    """A batch of random sentences of these lengths, each ending in EOS, padded right or left."""
    generator = torch.Generator().manual_seed(seed)
    batch = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        tokens = torch.randint(4, words + 4, (length,), generator=generator)
        tokens[-1] = EOS
        start = batch.shape[1] - length if left else 0
        batch[row, start : start + length] = tokens
    return batch


def as_prefix(target: Tensor) -> Tensor:
    """The decoder's input for a right-padded ``target``: EOS first, without the target's own EOS."""
    rolled = target.roll(1, dims=1)
    rolled[:, 0] = EOS
    return rolled.masked_fill(target.eq(PAD), PAD)


def step_by_step(model: Any, prefix: Tensor, encoder_out: Any) -> Tensor:
    """Logits ``(B, T, V)`` by incremental decoding, one token at a time."""
    state: dict[str, Any] = {}
    steps = [
        model.decoder(prefix[:, : t + 1], encoder_out=encoder_out, incremental_state=state)[0]
        for t in range(prefix.shape[1])
    ]
    return torch.cat(steps, dim=1)
