import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.prefix_softmax import RunningSoftmax, prefix_softmax, prefix_softmax_step
from numeric import TOLERANCE, assert_same_function, gradients, mixed_padding, randn

OP = OPS["prefix-softmax"]
FORMS = pytest.mark.parametrize("form", ["chunked", "recurrent"])


def run(form, scores, v):
    """The chunked form, or one step at a time."""
    if form == "chunked":
        return prefix_softmax(scores, v, block_length=32)
    [out] = OP.generated([scores, v])
    return out


@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("block_length", [7, 64])
def test_the_largest_score_so_far_is_none_of_padding(spread, block_length):
    """Whose scores are far above all others here."""
    (scores, v), mask = OP.make(), mixed_padding(40)
    scores = (scores * spread + 1e4 * mask[:, None]).detach().requires_grad_()
    [expected] = OP("naive", [scores, v], mask)
    actual = prefix_softmax(scores, v, padding=mask, block_length=block_length)
    assert_same_function(actual, expected, (scores, v))
    [stepped] = OP.generated([scores, v], mask)
    torch.testing.assert_close(stepped, expected, **TOLERANCE[torch.float64])


def clamp_of_torch_2_15(x, *, min):
    """No gradient at the bound."""
    return torch.where(x > min, x, min)


@FORMS
def test_the_first_step_has_a_gradient_in_every_torch_version(form, monkeypatch):
    scores, v = OP.make(B=1, T=3)
    expected = gradients(OP("naive", [scores, v])[0], scores, v)
    monkeypatch.setattr(torch.Tensor, "clamp", clamp_of_torch_2_15)
    torch.testing.assert_close(gradients(run(form, scores, v), scores, v), expected)


@pytest.mark.parametrize("form", ["naive", "fast"])
def test_the_last_step_is_the_softmax_over_all(form):
    scores, v = OP.make(T=140)
    expected = (scores.softmax(-1)[..., None] * v).sum(2)
    torch.testing.assert_close(OP(form, [scores, v])[0][:, :, -1], expected)


JUMPS = {
    "rise by 80 inside a block": lambda t: 80.0 * (t >= 20),
    "rise by 80 between blocks": lambda t: 80.0 * (t >= 32),
    "fall by 80 inside a block": lambda t: -80.0 * (t >= 20),
    "fall by 80 between blocks": lambda t: -80.0 * (t >= 32),
    "rise by 80 at each step": lambda t: 80.0 * t,
    "fall by 80 at each step": lambda t: -80.0 * t,
    "one step far above": lambda t: 80.0 * (t == 40),
    "one step far below": lambda t: -80.0 * (t == 0),
    "up and down": lambda t: 80.0 * (t % 7 - t % 5),
}


@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
def test_stable_for_large_jumps_of_the_scores(jump, dtype, form):
    scores, v = (x.detach() for x in OP.make(B=1, T=100, D=4))
    scores = (scores + jump(torch.arange(100))).to(dtype).requires_grad_()
    v = v.to(dtype).requires_grad_()
    actual = run(form, scores, v)
    exact = [x.detach().double().requires_grad_() for x in (scores, v)]
    [expected] = OP("naive", exact)
    torch.testing.assert_close(actual.double(), expected, **TOLERANCE[dtype])
    for ours, theirs in zip(gradients(actual, scores, v), gradients(expected, *exact), strict=True):
        assert torch.isfinite(ours).all()
        scale = theirs.abs().max().clamp(min=1).item()
        torch.testing.assert_close(ours.double() / scale, theirs / scale, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_after_100000_steps(dtype):
    # All values are positive and far from zero, so that the numerator grows linearly.
    scores, v = (x.detach() for x in OP.make(B=1, H=1, T=100_000, D=4))
    scores, v = scores.to(dtype), (v.abs() * 20).to(dtype)
    expected = prefix_softmax(scores.double(), v.double())
    actual = prefix_softmax(scores, v)
    worst = ((actual.double() - expected).abs() / expected.abs()).max()
    assert worst < {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]


def test_a_step_is_exact_after_100000_steps():
    # An equal value does not change the mean of 100,000; a value with a far higher score replaces it.
    equal = torch.full((1, 1, 1, 2), 0.1)
    state = RunningSoftmax(torch.full((1, 1, 1), 1e5, dtype=torch.float64).log(), equal)
    _, after = prefix_softmax_step(torch.zeros(1, 1, 1), equal, state)
    assert after.log_denominator.exp().item() == pytest.approx(100_001, rel=1e-12)
    assert after.mean.equal(state.mean)
    out, _ = prefix_softmax_step(torch.full((1, 1, 1), 80.0), 3 * equal, after)
    assert out.equal(3 * equal)


def test_the_denominator_of_many_large_scores_keeps_its_precision():
    # The last steps add 5e-5 to a logarithm of about 1,010, where numbers of fp32 are 6e-5 apart.
    scores = 1000 + randn(20_000, seed=1, grad=False)
    state = None
    for score in scores.float():
        _, state = prefix_softmax_step(score.view(1, 1, 1), torch.zeros(1, 1, 1, 1), state)
    assert state.log_denominator.item() == pytest.approx(scores.float().double().logsumexp(0).item(), abs=1e-9)
