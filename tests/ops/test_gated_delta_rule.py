"""Properties of the gated delta rule beside the contract of every op."""

import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.gated_delta_rule import gated_delta_rule, gated_delta_rule_reference, gated_delta_rule_step
from numeric import assert_same_function
from support import CLOSE, golden

OP = OPS["gated-delta-rule"]
FORMS = pytest.mark.parametrize("form", [gated_delta_rule_reference, gated_delta_rule], ids=["naive", "chunked"])


@FORMS
def test_equals_the_published_numbers(form):
    """Two implementations, and the state after the last step. They divide queries by sqrt(D) too."""
    recorded = golden("gated_delta.pt")["rule"]
    names = ("q", "k", "v", "log_decay", "beta")
    given = [recorded[name].clone().requires_grad_() for name in names]
    arguments = [x.transpose(1, 2) for x in given]
    out = (form(*arguments) * recorded["q"].shape[-1] ** -0.5).transpose(1, 2)
    for theirs in (recorded["output"], recorded["fla_output"]):
        torch.testing.assert_close(out, theirs, **CLOSE)
    found = torch.autograd.grad(out, given, recorded["grad_output"])
    torch.testing.assert_close(found, tuple(recorded["grads"][name] for name in names), **CLOSE)
    state = None
    for step in zip(*(x.split(1, dim=2) for x in arguments), strict=True):
        _, state = gated_delta_rule_step(*step, state)
    torch.testing.assert_close(state.memory, recorded["final_state"], **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_one_key_for_all_steps_is_exact(dtype):
    """The system then has only ones below its diagonal: a sum of its powers would lose all digits."""
    k, v = torch.ones(1, 1, 300, 8), torch.randn(1, 1, 300, 4, generator=torch.Generator().manual_seed(0))
    zero, one = torch.zeros(1, 1, 300), torch.ones(1, 1, 300)
    given = [x.to(dtype) for x in (k, k, v, zero, one)]
    torch.testing.assert_close(gated_delta_rule(*given).float(), given[2].float(), rtol=1e-4, atol=1e-4)


def test_a_step_may_forget_everything():
    """Steps before it have no part in steps after it, and nothing is NaN."""
    q, k, v, _, strength = OP.make(T=150)
    log_decay = torch.zeros(3, 2, 150).double()
    log_decay[:, :, [0, 70, 71, 149]] = -1e4
    given = [x.detach().requires_grad_() for x in (q, k, v, log_decay, strength.sigmoid())]
    expected, actual = (form(*given) for form in (gated_delta_rule_reference, gated_delta_rule))
    assert_same_function(actual, expected, given)
    torch.testing.assert_close(gated_delta_rule(*(x[:, :, 71:] for x in given)), actual[:, :, 71:])
