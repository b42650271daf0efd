import pytest
import torch

from fairseq_luna.optim.fairseq_apollo import clip_each
from optim.fairseq_apollo_runs import WRAPPERS, build, spy_on_steps, train


@pytest.mark.parametrize("precision", ["bf16", "fp16", "memory_efficient_bf16", "memory_efficient_fp16"])
@pytest.mark.parametrize(
    "clip", [[], ["--apollo-clip-mode", "each", "--clip-norm", "0.5"]], ids=["unclipped", "clip_each"]
)
def test_half_precision_follows_fp32(precision, clip):
    full, reference = build("fp32", *clip)
    half, optimizer = build(precision, *clip)
    for p, q in zip(full, half, strict=True):
        p.data.copy_(q.data)
    before = [p.detach().clone() for p in full]
    train(reference, full, 12)
    train(optimizer, half, 12)
    for p, q, start in zip(full, half, before, strict=True):
        moved = (p - start).abs().max()
        assert moved > 0.1
        torch.testing.assert_close(q.float(), p.detach(), rtol=0, atol=0.1 * moved.item())
    assert {s[name].dtype for s in optimizer.optimizer.state.values() for name in ("exp_avg", "hessian")} == {
        torch.float32
    }


@pytest.mark.parametrize("precision", ["fp32", "memory_efficient_bf16", "memory_efficient_fp16"])
def test_resumes_bit_for_bit(precision, tmp_path):
    """Not --fp16 and --bf16: fairseq makes their fp32 copy of the model again from the rounded one."""
    params, optimizer = build(precision)
    train(optimizer, params, 3)
    torch.save((params, optimizer.state_dict()), tmp_path / "checkpoint.pt")
    train(optimizer, params, 3)

    again, resumed = build(precision)
    saved, state = torch.load(tmp_path / "checkpoint.pt", weights_only=False)
    for p, q in zip(again, saved, strict=True):
        p.data.copy_(q)
    resumed.load_state_dict(state)
    # by default fairseq would give the checkpoint's own tensors, on the CPU, to the optimizer
    assert resumed.optimizer.state[next(iter(resumed.params))] is not state["state"][0]
    train(resumed, again, 3)
    assert all(torch.equal(p, q) for p, q in zip(params, again, strict=True))


@pytest.mark.parametrize("precision", list(WRAPPERS))
def test_clip_each_bounds_every_gradient_by_itself(precision):
    params, optimizer = build(precision, "--apollo-clip-mode", "each", "--clip-norm", "10")
    norms = [2 * p.detach().float().norm().item() for p in params]
    assert min(norms) < 10 < max(norms)
    seen = spy_on_steps(optimizer)
    (total,) = train(optimizer, params, 1)
    assert seen[0] == pytest.approx([min(n, 10.0) for n in norms], rel=0.01)
    assert total == pytest.approx(sum(n**2 for n in norms) ** 0.5, rel=0.01)


def test_clip_each_leaves_small_zero_and_missing_gradients():
    grads = [torch.tensor([0.3, 0.4]), torch.zeros(3), torch.tensor(-8.0), torch.zeros(0)]
    clip_each(grads, 1.0)
    assert torch.equal(grads[0], torch.tensor([0.3, 0.4])) and torch.equal(grads[1], torch.zeros(3))
    assert grads[2].item() == pytest.approx(-1.0, rel=1e-5)
    clip_each([], 1.0)


def test_clip_each_takes_norms_of_fp16_beyond_its_range():
    grad = torch.full((100,), 60000.0, dtype=torch.float16)
    clip_each([grad], 10.0)
    torch.testing.assert_close(grad, torch.ones(100, dtype=torch.float16), rtol=1e-2, atol=0)


def test_step_unscales_before_it_clips():
    params, optimizer = build("fp32", "--apollo-clip-mode", "each", "--clip-norm", "3")
    seen = spy_on_steps(optimizer)
    for p in params:
        p.grad = torch.full_like(p, 4.0)
    optimizer.step(scale=1000.0)
    assert seen[0] == pytest.approx([0.004 * p.numel() ** 0.5 for p in params])
