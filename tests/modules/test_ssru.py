"""Properties of the simpler simple recurrent unit beside the contract of every attention."""

import pytest
import torch

from fairseq_luna.modules import SSRU
from numeric import sequences
from support import assert_published, golden

NAMES = {"W": "input_proj.weight", "Wf": "forget_proj.weight", "bf": "forget_proj.bias"}
SIZE = 8


def renamed(theirs):
    return {NAMES[name]: x[0] if name == "bf" else x.t() for name, x in theirs.items()}


def test_equals_the_numbers_of_the_published_cell():
    recorded, module = golden("ssru.pt"), SSRU(embed_dim=SIZE)
    module.load_state_dict(renamed(recorded["parameters"]))
    out = assert_published(module, recorded, renamed(recorded["grads"]))
    assert 0.2 < (out == 0).double().mean() < 0.8


def test_dropout_leaves_out_steps_and_forgets_as_before():
    torch.manual_seed(0)
    module, (x,) = SSRU(embed_dim=SIZE, dropout=0.5).double(), sequences((60, 2, SIZE))
    inputs, gate = module.input_proj(x), module.forget_proj(x)
    f, b = module.factors_and_inputs(inputs, gate)
    expected_f, expected_b = module.eval().factors_and_inputs(inputs, gate)
    dropped = b == 0
    torch.testing.assert_close((f, b), (expected_f, 2 * expected_b.masked_fill(dropped, 0)))
    assert 0.4 < dropped.double().mean() < 0.6


@pytest.mark.parametrize("bias", [14.0, 17.0, 20.0])
def test_gates_that_keep_nearly_all_write_what_they_should(bias):
    """In fp32 the sigmoid of 17 is 1."""
    torch.manual_seed(0)
    module, [x] = SSRU(embed_dim=SIZE), sequences((100, 2, SIZE), dtype=torch.float32)
    torch.nn.init.constant_(module.forget_proj.bias, bias)
    found = module(x)
    with torch.no_grad():
        steps, state = [], None
        for one in x.detach():
            y, state = module.step(one[None], None, state)
            steps.append(y)
    expected = module.double()(x.double())
    scale = expected.abs().max()
    for out in (found, torch.cat(steps)):
        torch.testing.assert_close(out.double() / scale, expected / scale, rtol=0, atol=1e-5)
