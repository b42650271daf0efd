"""Pre-norm models keep the final norms that a state dict without "version" has; a state of 2018 has none."""

from argparse import Namespace
from functools import partial

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models import MODEL_REGISTRY
from fairseq.models.ema import EMA
from fairseq.models.transformer_lm import base_lm_architecture as set_defaults

from fairseq_luna.models.shared.state_dict_loading import UNTRAINED_COPY
from readers import build as build_reader
from support import PAD, TINY, as_prefix, build_model, sentences, translation_task
from variants import PRENORM


def language_model(seed=0):
    torch.manual_seed(seed)
    args = Namespace(**{**TINY, **PRENORM}, decoder_embed_dim=32, tokens_per_sample=64)
    set_defaults(args)
    return MODEL_REGISTRY["transformer_lm"].build_model(args, translation_task())


def translating(model):
    return model(sentences(9, 4), None, as_prefix(sentences(5, 7, seed=2)))


def reading(model):
    return model(sentences(9, 4))


# How a model is built with a seed, and what it computes.
MODELS = {
    **{
        family: (partial(build_model, family, **PRENORM), translating)
        for family in ("transformer", "luna", "fastformer", "block", "mixed")
    },
    **{
        name: (partial(build_reader, model=name, encoder_normalize_before=True), reading)
        for name in ("roberta", "luna_roberta", "mixed_roberta")
    },
    "language-model": (language_model, reading),
}
EVERY = pytest.mark.parametrize(("build", "call"), MODELS.values(), ids=MODELS)


def trained(build):
    """A model whose norms are not those that every model starts with."""
    model = build()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 2)
    return model.eval()


def outputs(model, call):
    return call(model.eval())[0][:, :4]


@EVERY
@pytest.mark.parametrize("version", [None, 1.0], ids=["missing", "old"])
def test_norms_that_a_state_has_are_kept(build, call, version):
    model = trained(build)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for name in [name for name in state if name.endswith(".version")]:
        state.update({name: torch.tensor([version])}) if version else state.pop(name)
    loaded = build(seed=1)
    loaded.load_state_dict(state)
    torch.testing.assert_close(outputs(loaded, call), outputs(model, call))
    again = build(seed=2)  # its own state is as good as the first
    again.load_state_dict(loaded.state_dict())
    assert loaded.state_dict().keys() == model.state_dict().keys()
    torch.testing.assert_close(outputs(again, call), outputs(model, call))


@EVERY
def test_a_mean_of_parameters_has_the_mean_of_the_norms(build, call):
    first, last = build(), trained(build)
    ema = EMA(first, EMAConfig(store_ema=True, ema_decay=0.25))
    for _ in range(2):
        ema.step(last)
    mean = ema.get_model()
    assert mean.state_dict().keys() == first.state_dict().keys()
    expected = dict(last.named_parameters())
    for name, value in first.named_parameters():
        if UNTRAINED_COPY.search(name):
            continue  # fairseq 0.12.2 takes them from the weights when it loads the state
        torch.testing.assert_close(mean.state_dict()[name], value / 16 + 15 / 16 * expected[name], msg=name)
    saved = build(seed=1)
    saved.load_state_dict(mean.state_dict())
    torch.testing.assert_close(outputs(saved, call), outputs(mean, call))


def test_a_state_from_before_there_were_final_norms_has_none():
    model = build_model("transformer", **PRENORM)
    state = {name: value for name, value in model.state_dict().items() if "er.layer_norm." not in name}
    for side in ("encoder", "decoder"):
        state.pop(f"{side}.version")
    loaded = build_model("transformer", seed=1, **PRENORM)
    loaded.load_state_dict(state)
    assert loaded.encoder.layer_norm is loaded.decoder.layer_norm is None


def test_a_state_under_older_names_keeps_its_norms():
    model = trained(MODELS["roberta"][0])
    older = {name.replace("encoder.", "decoder.", 1): value for name, value in model.state_dict().items()}
    del older["decoder.sentence_encoder.version"]
    loaded = MODELS["roberta"][0](seed=1)
    loaded.load_state_dict(older)
    texts = sentences(9, 4)
    torch.testing.assert_close(loaded.eval()(texts)[0][texts.ne(PAD)], model(texts)[0][texts.ne(PAD)])
