"""A model's training step, evaluation and generation, and steps of Apollo, on a device that computes nothing.

Tensors have a shape, a dtype and a device, but no data: torch's meta tensors, or fake CUDA tensors, which also know
autocast. These need torch's CUDA build and fake_cuda.c, and no GPU: make check-cuda.
"""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from fairseq_luna.optim.apollo import Apollo
from fairseq_luna.optim.fairseq_apollo import clip_each
from readers import HEAD
from shared.fake_device import on_fake_device
from support import PAD, build_model

from .watch import Watch, check

DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, "word_dropout": 0.1}


class Shape(NamedTuple):
    """Of a batch: sentences, words of a source and of a target, and whether some sentences are shorter."""

    sentences: int
    source: int
    target: int
    padded: bool


class Precision(NamedTuple):
    """The dtype of the parameters, and autocast's or None."""

    parameters: torch.dtype
    autocast: torch.dtype | None = None

    def context(self) -> AbstractContextManager[object]:
        return nullcontext() if self.autocast is None else torch.autocast("cuda", self.autocast)


def build(family: str, **flags: Any) -> Any:
    """A small model of the registered ``family`` with dropout; a reader has a head."""
    model = build_model(family, **DROPOUT | flags)
    if hasattr(model, "register_classification_head"):
        model.register_classification_head(HEAD, num_classes=3)
    return model


@contextmanager
def moved(model: nn.Module, device: str, dtype: torch.dtype) -> Iterator[Any]:
    """A copy of ``model`` on "meta" or "cuda", and what is needed to use it there."""
    if device == "cuda":
        with on_fake_device(model, dtype) as fake_model:
            yield fake_model
    else:
        # torch has no autocast for meta tensors: asking for it is an error.
        with mock.patch.object(torch, "is_autocast_enabled", lambda *device_type: False):
            yield copy.deepcopy(model).to(device, dtype)


def run_model(model: nn.Module, device: str, shape: Shape, precision: Precision) -> None:
    """Train, evaluate and generate with a copy of ``model``."""
    with moved(model, device, precision.parameters) as fake_model:
        source, prefix = (
            torch.empty(shape.sentences, words, dtype=torch.int64, device=device)
            for words in (shape.source, shape.target)
        )
        for part in (train, evaluate, generate) if hasattr(model, "decoder") else (train, evaluate):
            with Watch(padded=shape.padded, shortest=1 if shape.padded else shape.source):
                results = part(fake_model, source, prefix, precision)
            check(results, precision.autocast or precision.parameters)


def run_apollo(model: nn.Module, device: str, dtype: torch.dtype, **options: Any) -> None:
    """Two updates, with each gradient clipped. They neither wait nor copy."""
    with moved(model, device, dtype) as fake_model, Watch(alone=True):
        optimizer = Apollo(fake_model.parameters(), lr=0.1, **options)
        for _ in range(2):
            for parameter in fake_model.parameters():
                parameter.grad = torch.empty_like(parameter)
            clip_each([parameter.grad for parameter in fake_model.parameters()], 0.1)
            optimizer.step()
    check({"state": optimizer.state_dict()["state"]})


def train(model: Any, source: Tensor, prefix: Tensor, precision: Precision) -> dict[str, Any]:
    """A training step without the update. The targets do not matter."""
    model.train()
    with precision.context():
        out = output(model, source, prefix)
        loss = model.get_normalized_probs(out, log_probs=True)[..., 0].sum()
        if hasattr(model.encoder, "lm_head"):  # a reader predicts words too
            loss = loss + model.get_normalized_probs(model(source), log_probs=True)[..., 0].sum()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": out[0], "loss": loss, "gradients": gradients}


@torch.no_grad()
def evaluate(model: Any, source: Tensor, prefix: Tensor, precision: Precision) -> dict[str, Any]:
    model.eval()
    with precision.context():
        out = output(model, source, prefix)
        return {"logits": out[0], "log-probabilities": model.get_normalized_probs(out, log_probs=True)}


def output(model: Any, source: Tensor, prefix: Tensor) -> Any:
    """The model's result; its first part is the logits."""
    lengths = source.ne(PAD).sum(1)
    if hasattr(model, "decoder"):
        return model(source, lengths, prefix)
    return model(source, src_lengths=lengths, classification_head_name=HEAD)


@torch.no_grad()
def generate(model: Any, source: Tensor, prefix: Tensor, precision: Precision) -> dict[str, Any]:
    """Two hypotheses for each sentence, reordered after each of 6 steps. The last sentence is finished after the third.

    From the fourth step on, the cross-attention is asked for, as with --print-alignment.
    """
    state: dict[str, Any] = {}
    with precision.context():
        encoder_out = model.encoder.forward_torchscript({"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)})
        order = torch.arange(len(source), device=source.device).repeat_interleave(2)
        for step in range(1, 7):
            prefix, encoder_out = prefix[order], model.encoder.reorder_encoder_out(encoder_out, order)
            reads_the_source = model.decoder.layers[0].encoder_attn is not None
            model.decoder.make_generation_fast_(need_attn=step > 3 and reads_the_source)
            out = model.decoder(prefix[:, :step], encoder_out=encoder_out, incremental_state=state)
            log_probs = model.get_normalized_probs(out, log_probs=True)
            order = torch.arange(len(prefix) - 2 * (step == 3), device=source.device)
            model.decoder.reorder_incremental_state_scripting(state, order)
    return {"logits": out[0], "log-probabilities": log_probs, "alignment": out[1]["attn"], "state": state}
