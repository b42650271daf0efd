import torch

from fairseq_luna.modules import ExternalAttention
from support import golden

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


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
    x = recorded["x"].clone().requires_grad_()
    out = module(x.transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(out, recorded["output"], **CLOSE)
    names = ("q_proj.weight", "keys", "values", "out_proj.weight", "out_proj.bias")
    parameters = dict(module.named_parameters())
    gradients = torch.autograd.grad(out, [x, *(parameters[name] for name in names)], recorded["grad_output"])
    expected = [recorded["grad_x"], *recorded["grads"].values()]
    expected[3] = expected[3].t()  # their map from slots to values
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)
