"""Taking some layers of a checkpoint, on each side by itself."""

from argparse import Namespace

import pytest
import torch

from fairseq_luna.models.transformer.checkpoint import keep_layers
from support import as_prefix, build_model, sentences

FAMILIES = ("luna", "fastformer", "block")


def numbers(state_dict, side):
    return sorted({int(name.split(".")[2]) for name in state_dict if name.startswith(f"{side}.layers.")})


def logits(model):
    return model(sentences(5, 3), None, as_prefix(sentences(4, 4, seed=2)))[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_of_one_side_are_pruned_and_the_other_side_stays_whole(family, side):
    whole = build_model(family, **{f"{side}_layers": 3}).eval()
    flags = {f"{side}_layers": 3, f"{side}_layers_to_keep": "2,0"}
    pruned = build_model(family, seed=1, **flags).eval()
    cfg = Namespace(arch=family, **flags)
    pruned.load_state_dict(whole.state_dict(), strict=True, model_cfg=cfg)
    assert getattr(cfg, f"{side}_layers_to_keep") is None
    layers = getattr(whole, side).layers
    getattr(whole, side).layers = torch.nn.ModuleList([layers[0], layers[2]])
    getattr(whole, side).num_layers = 2
    torch.testing.assert_close(logits(pruned), logits(whole))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_trained_with_the_flag_is_loaded_as_it_is(family):
    flags = {"encoder_layers_to_keep": "1", "decoder_layers_to_keep": "0,4"}
    trained, loaded = (build_model(family, seed=seed, **flags).eval() for seed in (0, 1))
    loaded.load_state_dict(trained.state_dict(), strict=True, model_cfg=Namespace(arch=family, **flags))
    assert logits(loaded).equal(logits(trained))


def test_layers_that_the_checkpoint_has_not_are_missed():
    whole = build_model("luna", encoder_layers=3)
    flags = {"encoder_layers": 3, "encoder_layers_to_keep": "0,7"}
    pruned = build_model("luna", **flags)
    with pytest.raises(RuntimeError, match=r"Missing key.*encoder\.layers\.1"):
        pruned.load_state_dict(whole.state_dict(), strict=True, model_cfg=Namespace(arch="luna", **flags))


def test_kept_layers_are_numbered_anew():
    state = {f"{side}.layers.{n}.w.layers.9": n for side in ("encoder", "decoder") for n in range(12)}
    pruned = keep_layers({**state, "encoder.other": 1}, "encoder", [10, 3])
    assert (numbers(pruned, "encoder"), numbers(pruned, "decoder")) == ([0, 1], list(range(12)))
    assert (pruned["encoder.layers.0.w.layers.9"], pruned["encoder.layers.1.w.layers.9"]) == (3, 10)
    assert pruned["encoder.other"] == 1
