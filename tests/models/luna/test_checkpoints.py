from argparse import Namespace

import pytest
import torch

from fairseq_luna.models.luna.checkpoint_names import translate
from support import as_prefix, build_luna, golden, sentences


def test_the_authors_names_are_converted_one_to_one():
    state_dict = dict(golden("luna_untied_prenorm_fixed.pt")["state_dict"])
    unread = {"decoder.proj_layer_norm.weight", "decoder.proj_layer_norm.bias", "encoder.projected_positions"}
    expected = len(set(state_dict) - unread)
    translate(state_dict)
    assert len(state_dict) == expected
    assert not any("atten_" in name or "porjected" in name for name in state_dict)


@pytest.mark.parametrize("flags", [{}, {"encoder_normalize_before": True, "decoder_normalize_before": True}])
def test_a_checkpoint_of_our_own_loads_unchanged(flags):
    first, second = build_luna(seed=0, **flags), build_luna(seed=1, **flags)
    second.load_state_dict(first.state_dict(), strict=True)
    for (name, ours), theirs in zip(second.named_parameters(), first.parameters(), strict=True):
        assert ours.equal(theirs), name


def test_a_missing_parameter_is_an_error():
    model = build_luna()
    state_dict = model.state_dict()
    del state_dict["encoder.packed_embeddings"]
    with pytest.raises(ValueError, match=r"encoder\.packed_embeddings \(6, 32\) is missing"):
        model.load_state_dict(state_dict, strict=True)


@pytest.mark.parametrize("normalize_before", [False, True], ids=["post", "pre"])
def test_layers_can_be_pruned_from_a_checkpoint(normalize_before):
    norms = {"encoder_normalize_before": normalize_before, "decoder_normalize_before": normalize_before}
    whole = build_luna(encoder_layers=3, decoder_layers=3, **norms).eval()
    kept = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "0,1"}
    pruned = build_luna(seed=1, encoder_layers=3, decoder_layers=3, **norms, **kept).eval()
    pruned.load_state_dict(whole.state_dict(), strict=True, model_cfg=Namespace(arch="luna", **kept))
    assert (len(pruned.encoder.layers), len(pruned.decoder.layers)) == (2, 2)
    whole.encoder.layers = torch.nn.ModuleList([whole.encoder.layers[0], whole.encoder.layers[2]])
    whole.decoder.layers = torch.nn.ModuleList(list(whole.decoder.layers[:2]))
    source, prefix = sentences(5, 3), as_prefix(sentences(4, 4, seed=2))
    expected, actual = (m(source, None, prefix)[0] for m in (whole, pruned))
    torch.testing.assert_close(actual, expected)
