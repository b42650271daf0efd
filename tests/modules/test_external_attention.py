from fairseq_luna.modules import ExternalAttention
from support import assert_published, golden

NAMES = ("q_proj.weight", "keys", "values", "out_proj.weight", "out_proj.bias")


def test_equals_the_authors_numbers():
    """Their biases of queries and of the slots' keys have no effect, that of the slots' values is part of each slot."""
    recorded = golden("external.pt")
    module = ExternalAttention(**{key: recorded[key] for key in ("embed_dim", "num_heads", "num_slots")})
    theirs = recorded["state_dict"]
    module.load_state_dict(
        {
            "q_proj.weight": theirs["trans_dims.weight"],
            "keys": theirs["linear_0.weight"],
            "values": theirs["linear_1.weight"].t() + theirs["linear_1.bias"],
            "out_proj.weight": theirs["proj.weight"],
            "out_proj.bias": theirs["proj.bias"],
        }
    )
    grads = dict(zip(NAMES, recorded["grads"].values(), strict=True))
    assert_published(module, recorded, {**grads, "values": grads["values"].t()})  # their map from slots to values
