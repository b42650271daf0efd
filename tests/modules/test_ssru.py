"""What the simpler simple recurrent unit has beside the contract of every attention."""

import torch

from fairseq_luna.modules import SSRU
from numeric import sequences
from support import golden

SIZE = 8


def build(**options):
    torch.manual_seed(0)
    return SSRU(embed_dim=SIZE, **options)


def test_equals_the_numbers_of_the_published_cell():
    recorded, module = golden("ssru.pt"), build()
    weights = {name: x.t() if name != "bf" else x[0] for name, x in recorded["parameters"].items()}
    names = {"W": "input_proj.weight", "Wf": "forget_proj.weight", "bf": "forget_proj.bias"}
    module.load_state_dict({names[name]: x for name, x in weights.items()})
    x = recorded["x"].clone().requires_grad_()
    out = module(x.transpose(0, 1)).transpose(0, 1)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(out, recorded["output"], **close)
    assert 0.2 < (out == 0).double().mean() < 0.8
    out.backward(recorded["grad_output"])
    torch.testing.assert_close(x.grad, recorded["grad_x"], **close)
    parameters = dict(module.named_parameters())
    found = {name: parameters[names[name]].grad.view_as(weights[name]) for name in names}
    theirs = {name: x.t() if name != "bf" else x[0] for name, x in recorded["grads"].items()}
    torch.testing.assert_close(found, theirs, **close)


def test_dropout_leaves_out_steps_and_forgets_as_before():
    module, (x,) = build(dropout=0.5).double().train(), sequences((60, 2, SIZE))
    f, b = module.factors_and_inputs(x)
    expected_f, expected_b = module.eval().factors_and_inputs(x)
    dropped = b == 0
    torch.testing.assert_close((f, b), (expected_f, 2 * expected_b.masked_fill(dropped, 0)))
    assert 0.4 < dropped.double().mean() < 0.6
