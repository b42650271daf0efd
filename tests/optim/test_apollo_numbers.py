import pytest
import torch
from torch import nn

from fairseq_luna.optim import tensor_lists
from fairseq_luna.optim.apollo import Apollo
from optim.apollo_runs import assert_same, random_problem, run, trajectory
from support import golden


@pytest.mark.parametrize(
    "case", golden("apollo.pt"), ids=lambda c: "-".join(f"{k}_{v}" for k, v in c["kwargs"].items())
)
@pytest.mark.parametrize("dtype,atol", [(torch.float64, 1e-6), (torch.float32, 2e-5)], ids=["fp64", "fp32"])
def test_follows_the_authors_trajectory(case, dtype, atol):
    """Within a millionth of the range the parameters cover (up to 36), which is the recorded fp32 numbers'
    own distance from the formula. In fp32 the order of a sum changes the end by ten times that."""
    grads = [[g.to(dtype) for g in gs] for gs in case["grads"]]
    ours = run([p.to(dtype) for p in case["init"]], grads, **case["kwargs"])
    for i in range(len(case["init"])):
        theirs = [[step[i].to(dtype)] for step in case["trajectory"]]
        span = max(1.0, max(p.abs().max().item() for (p,) in theirs))
        assert_same([[step[i]] for step in ours], theirs, rtol=1e-5, atol=atol * span)


def apollo_trajectory(
    init, grads, *, lr, beta=0.9, eps=1e-4, rebound="constant", weight_decay=0.0, weight_decay_type=None
):
    """The parameters after each step as the paper writes it: one tensor at a time, without rearrangements."""
    params = [p.clone() for p in init]
    state = [[torch.zeros_like(p) for _ in range(3)] for p in params]
    decay_type = weight_decay_type or {"constant": "L2", "belief": "decoupled"}[rebound]
    trajectory = []
    for t, gradients in enumerate(grads, start=1):
        alpha = (1 - beta) / (1 - beta**t)
        for i, (p, g) in enumerate(zip(params, gradients, strict=True)):
            m, b, d = state[i]
            if decay_type == "L2":
                g = g + weight_decay * p
            delta = g - m
            m = m + alpha * delta
            n = (d**4).sum() ** 0.25 + (eps / 0.01 if rebound == "constant" else eps)
            d = d / n
            b = b + (-alpha * (delta / n * d).sum() - (b * d * d).sum()) * d * d
            if rebound == "constant":
                h = b.abs().clamp(min=0.01)
            else:
                h = torch.maximum(b.abs(), delta.abs().max()) + eps / alpha
            d = m / h
            if decay_type == "decoupled":
                d = d + weight_decay * p
            if decay_type == "stable":
                d = d + weight_decay / h.mean() * p
            params[i] = p - lr * d
            state[i] = [m, b, d]
        trajectory.append([p.clone() for p in params])
    return trajectory


@pytest.mark.parametrize("weight_decay_type", [None, "L2", "decoupled", "stable"])
@pytest.mark.parametrize("rebound", ["constant", "belief"])
@pytest.mark.parametrize("beta,eps", [(0.9, 1e-4), (0.5, 1e-2), (0.0, 1e-4)], ids=["b0.9", "b0.5", "b0"])
def test_equals_the_formula_in_fp64(weight_decay_type, rebound, beta, eps):
    init, grads = random_problem()
    options = {"lr": 0.02, "beta": beta, "eps": eps, "rebound": rebound}
    options |= {"weight_decay": 0.1, "weight_decay_type": weight_decay_type}
    expected = apollo_trajectory(init, grads, **options)
    assert_same(run(init, grads, **options), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("numel", [1, 12, 40], ids=lambda n: f"chunks_of_{n}")
def test_chunks_do_not_change_the_result(numel, monkeypatch):
    init, grads = random_problem()
    expected = run(init, grads, lr=0.02)
    monkeypatch.setattr(tensor_lists, "CACHE_NUMEL", numel)
    assert_same(run(init, grads, lr=0.02), expected, rtol=0, atol=0)


@pytest.mark.parametrize("rebound", ["constant", "belief"])
@pytest.mark.parametrize("eps", [1e-4, 1e-12], ids=["eps1e-4", "eps1e-12"])
def test_zero_and_tiny_gradients_move_nothing_and_stay_finite(rebound, eps):
    init, grads = random_problem(dtype=torch.float32, steps=4)
    zeros = [torch.zeros_like(p) for p in init]
    tiny = [torch.full_like(p, 1e-30) for p in init]
    steps = run(init, [zeros, zeros, *grads, zeros, tiny, tiny], lr=0.01, eps=eps, rebound=rebound)
    assert_same(steps[:2], [init] * 2, rtol=0, atol=0)
    assert all(p.isfinite().all() for p in steps[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("rebound", ["constant", "belief"])
def test_half_precision_keeps_fp32_state_and_stays_near(dtype, rebound):
    """The state of a half-precision run equals that of an fp32 run with the same gradients."""
    init, grads = random_problem(dtype=dtype)
    half = [nn.Parameter(p.clone()) for p in init]
    full = [nn.Parameter(p.float()) for p in init]
    options = {"lr": 0.02, "rebound": rebound, "weight_decay": 0.0}
    a, b = Apollo(half, **options), Apollo(full, **options)
    ends = trajectory(a, half, grads)[-1], trajectory(b, full, [[g.float() for g in gs] for gs in grads])[-1]
    for p, q, x, y in zip(half, full, *ends, strict=True):
        for name in ("exp_avg", "hessian", "direction"):
            assert a.state[p][name].dtype == torch.float32
            torch.testing.assert_close(a.state[p][name], b.state[q][name], rtol=1e-5, atol=1e-6)
        assert x.dtype == dtype
        rounding = 8 * torch.finfo(dtype).eps * max(1.0, y.abs().max().item())
        torch.testing.assert_close(x.float(), y, rtol=0, atol=rounding)


def test_mixed_dtypes_in_a_group():
    init, grads = random_problem(shapes=[(4, 3), (4, 3)])
    dtypes = (torch.float64, torch.float32)
    mixed = [p.to(t) for p, t in zip(init, dtypes, strict=True)]
    mixed_grads = [[g.to(t) for g, t in zip(gs, dtypes, strict=True)] for gs in grads]
    ours = run(mixed, mixed_grads, lr=0.02)[-1]
    expected = apollo_trajectory(init, grads, lr=0.02)[-1]
    assert [p.dtype for p in ours] == list(dtypes)
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours[1].double(), expected[1], rtol=1e-4, atol=1e-4)


def test_layout_in_memory_does_not_matter():
    init, grads = random_problem(shapes=[(4, 6)])
    expected = run(init, grads, lr=0.02)
    params = [nn.Parameter(init[0].t().contiguous().t())]
    assert not params[0].is_contiguous()
    assert_same(trajectory(Apollo(params, lr=0.02), params, grads), expected, rtol=1e-12, atol=1e-12)
    params = [nn.Parameter(torch.empty(4, 12, dtype=torch.float64)[:, ::2].copy_(init[0]))]
    assert_same(trajectory(Apollo(params, lr=0.02), params, grads), expected, rtol=1e-12, atol=1e-12)
