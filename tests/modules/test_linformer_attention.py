import pytest
import torch

from fairseq_luna.models.mixed.chosen_attentions import fields_for
from fairseq_luna.modules import LinformerAttention, LinformerCrossAttention
from fairseq_luna.usage_error import CheckpointMismatch, UsageError
from numeric import gradients, sequences
from support import as_prefix, build_model, sentences

CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def build(kind=LinformerAttention, **options):
    torch.manual_seed(0)
    return kind(embed_dim=8, num_heads=2, num_slots=5, max_positions=50, **options).double()


def test_sums_of_keys_and_values_that_share_their_weights():
    shared, apart = build(share="kv"), build()
    apart.load_state_dict({**shared.state_dict(), "value_sums": shared.key_sums})
    [x] = sequences((40, 3, 8))
    assert shared(x).equal(apart(x))
    [found] = gradients(shared(x), shared.key_sums)
    torch.testing.assert_close(found, sum(gradients(apart(x), apart.key_sums, apart.value_sums)), **CLOSE)


def test_sums_that_all_layers_of_a_side_share():
    fields = {**fields_for("linformer"), "num_slots": 7, "encoder_layers": 3, "decoder_layers": 2}
    counts = {}
    for share in ("kv", "layers"):
        model = build_model("mixed", **fields, linformer_share=share)
        found = [tensor for name, tensor in model.named_parameters() if name.endswith("_sums")]
        counts[share] = len(found)
        assert not found[0].equal(found[-1])
    assert counts == {"kv": 5, "layers": 2}
    assert sum(name.endswith("key_sums") for name in model.state_dict()) == 5
    layers = [layer.self_attn.key_sums for layer in model.encoder.layers]
    source = sentences(9, 3)
    model(source, None, as_prefix(source))[0].sum().backward()
    assert all(sums is layers[0] for sums in layers)
    assert layers[0].grad[:, :9].any()


def test_sums_of_their_own_are_not_loaded_into_layers_that_share():
    fields = {**fields_for("linformer"), "encoder_layers": 2}
    apart, shared = (build_model("mixed", **fields, linformer_share=share) for share in ("kv", "layers"))
    with pytest.raises(CheckpointMismatch, match="key_sums are one tensor in the model and differ there"):
        shared.load_state_dict(apart.state_dict())
    shared.load_state_dict(shared.state_dict())


@pytest.mark.parametrize("kind", [LinformerAttention, LinformerCrossAttention])
def test_a_longer_sequence_is_refused(kind):
    module, [x] = build(kind), sequences((51, 1, 8))
    with pytest.raises(UsageError, match=r"^max_positions 50: .* a sentence has 51; [^\n]*$"):
        module(x) if kind is LinformerAttention else module(x[:1], x)
