import fractions
import math
import warnings
from functools import partial

import numpy
import pytest
import torch
import torch.distributed.fsdp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from fairseq_luna.optim.apollo import Apollo
from forks import run_apart
from optim.apollo_runs import assert_same, random_problem, run, trajectory


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=["fp64", "fp32", "bf16"])
@pytest.mark.parametrize("rebound", ["constant", "belief"])
def test_resumes_bit_for_bit(dtype, rebound, tmp_path):
    init, grads = random_problem(dtype=dtype)
    straight = run(init, grads, lr=0.02, rebound=rebound)

    params = [nn.Parameter(p.clone()) for p in init]
    first = Apollo(params, lr=0.02, rebound=rebound)
    trajectory(first, params, grads[:3])
    torch.save(first.state_dict(), tmp_path / "state.pt")

    params = [nn.Parameter(p.detach().clone()) for p in params]
    second = Apollo(params, lr=0.5)  # the loaded options win
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert_same(trajectory(second, params, grads[3:]), straight[3:], rtol=0, atol=0)


@pytest.mark.parametrize("saved", [torch.float64, torch.float32, torch.bfloat16], ids=["fp64", "fp32", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=["fp64", "fp32", "bf16"])
def test_the_precision_of_the_state_does_not_depend_on_the_saved_one(saved, dtype):
    (init,), grads = random_problem(shapes=[(4, 3)], dtype=saved)
    params = [nn.Parameter(init.clone())]
    first = Apollo(params, lr=0.02)
    trajectory(first, params, grads)
    p = nn.Parameter(init.to(dtype))
    second = Apollo([p], lr=0.02)
    second.load_state_dict(first.state_dict())
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    assert {second.state[p][name].dtype for name in ("exp_avg", "hessian", "direction")} == {kept}


def test_groups_keep_their_own_options():
    init, grads = random_problem(shapes=[(4, 3), (6,)])
    own = [{"lr": 0.02, "rebound": "belief", "weight_decay": 0.1}, {"lr": 0.05, "beta": 0.5}]
    params = [nn.Parameter(p.clone()) for p in init]
    groups = [{"params": [p], **options} for p, options in zip(params, own, strict=True)]
    ours = trajectory(Apollo(groups, lr=0.3), params, grads)
    for i, options in enumerate(own):
        alone = run([init[i]], [[g[i]] for g in grads], **options)
        assert_same([[s[i]] for s in ours], alone, rtol=0, atol=0)


def test_parameters_without_gradient_wait_at_their_own_step():
    """A parameter that is used later starts at step 1, while the others continue."""
    init, grads = random_problem(shapes=[(4, 3), (6,)])
    params = [nn.Parameter(p.clone()) for p in init]
    optimizer = Apollo(params, lr=0.02)
    ours = []
    for t, (g0, g1) in enumerate(grads):
        params[0].grad, params[1].grad = g0.clone(), g1.clone() if t >= 3 else None
        optimizer.step()
        ours.append([p.detach().clone() for p in params])
    assert_same([[s[0]] for s in ours], run([init[0]], [[g[0]] for g in grads], lr=0.02), rtol=0, atol=0)
    late = run([init[1]], [[g[1]] for g in grads[3:]], lr=0.02)
    assert_same([[s[1]] for s in ours], [[init[1]]] * 3 + late, rtol=0, atol=0)


@pytest.mark.parametrize("rebound", ["constant", "belief"])
def test_empty_tensors_are_harmless(rebound):
    init, grads = random_problem(shapes=[(0, 3), (4, 3)])
    ours = run(init, grads, lr=0.02, rebound=rebound)
    alone = run(init[1:], [g[1:] for g in grads], lr=0.02, rebound=rebound)
    assert_same([s[1:] for s in ours], alone, rtol=0, atol=0)


def test_closure_is_called_with_gradients_on():
    p = nn.Parameter(torch.tensor([2.0]))
    optimizer = Apollo([p], lr=0.001)

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    before = optimizer.step(closure)
    assert before.item() == 4.0
    assert optimizer.step(closure) < before


@pytest.mark.parametrize("grad", [torch.ones(3).to_sparse(), torch.ones(3, dtype=torch.complex64)])
def test_sparse_and_complex_gradients_are_refused_untouched(grad):
    dense, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=grad.dtype))
    dense.grad, other.grad = torch.ones(3), grad
    optimizer = Apollo([dense, other], lr=0.1)
    with pytest.raises(RuntimeError, match=f"parameter is {grad.layout} {grad.dtype}: it must be dense and real"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(3)) and not optimizer.state


@pytest.mark.parametrize(
    "name,value",
    [
        ("lr", -0.1),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("lr", "0.1"),
        ("lr", torch.tensor(0.1)),
        ("beta", 1.0),
        ("beta", -0.1),
        ("beta", float("nan")),
        ("eps", 0.0),
        ("eps", float("inf")),
        ("weight_decay", -1e-8),
        ("weight_decay", float("inf")),
        ("rebound", "trust"),
        ("weight_decay_type", "l2"),
    ],
)
@pytest.mark.parametrize("where", ["argument", "group"])
def test_bad_options_are_named(name, value, where):
    p = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=f"^Apollo: {name}=.* must be") as error:
        if where == "argument":
            Apollo([p], **{"lr": 0.1, name: value})
        else:
            Apollo([{"params": [p], name: value}], lr=0.1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("lr", 0), ("beta", 0), ("eps", 1e-30), ("weight_decay", 0)])
def test_the_ends_of_the_ranges_are_taken(name, value):
    Apollo([nn.Parameter(torch.ones(2))], **{"lr": 0.1, name: value})


@pytest.mark.parametrize("kind", [numpy.float16, numpy.float32, numpy.float64, fractions.Fraction])
@pytest.mark.parametrize("where", ["argument", "group"])
def test_numbers_of_other_kinds_are_taken_and_saved_as_pythons(kind, where, tmp_path):
    p = nn.Parameter(torch.ones(2))
    given = {name: kind(0.25) for name in ("lr", "beta", "eps", "weight_decay")}
    optimizer = Apollo([p], **given) if where == "argument" else Apollo([{"params": [p], **given}], lr=numpy.int64(1))
    p.grad = torch.ones(2)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    (group,) = torch.load(tmp_path / "state.pt", weights_only=True)["param_groups"]
    assert {name: (group[name], type(group[name])) for name in given} == dict.fromkeys(given, (0.25, float))


def test_warns_once_of_a_rate_for_another_bound():
    p = nn.Parameter(torch.ones(2))
    with pytest.warns(UserWarning, match="lr=1.5 is likely to diverge") as record:
        Apollo([p], lr=1.5)
    assert len(record) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Apollo([p], lr=1.0)


def test_the_first_update_that_is_not_finite_warns():
    p = nn.Parameter(torch.ones(2, device="cpu"))  # on a GPU it would have to wait for the number
    with pytest.warns(UserWarning, match="the update of step 2 is not finite.* lr below 0.1") as record:
        trajectory(Apollo([p], lr=0.1), [p], [[torch.full_like(p, g)] for g in (1, math.inf, math.nan, 1)])
    assert len(record) == 1


@pytest.mark.filterwarnings("error")
def test_the_rate_of_the_docstring_fits_without_a_warning():
    assert "lr=0.01" in Apollo.__doc__ and "total_iters=300" in Apollo.__doc__
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    weight, optimizer = torch.randn(16, 1), Apollo(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-4, total_iters=300)
    for _ in range(400):
        x = torch.randn(64, 16)
        loss = (network(x) - x @ weight).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert loss < 0.1


def trained(params):
    """A state dict after one step."""
    optimizer = Apollo(params, lr=0.1)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer.state_dict()


def test_a_state_of_another_order_of_shapes_is_refused_at_loading():
    params = [nn.Parameter(torch.ones(shape)) for shape in ((2, 3), (3, 2))]
    optimizer = Apollo(params[::-1], lr=0.1)
    said = r"^Apollo: parameter 0 is \(3, 2\) and its state \(2, 3\): give the parameters in the order of the state"
    with pytest.raises(ValueError, match=said):
        optimizer.load_state_dict(trained(params))
    assert not optimizer.state
    Apollo(params, lr=0.1).load_state_dict(trained(params))


def test_a_state_of_another_order_of_names_is_refused_at_loading():
    layers = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("first", "second")})
    named = list(layers.named_parameters())
    optimizer = Apollo(named[::-1], lr=0.1)
    with pytest.raises(
        ValueError, match=r"^Apollo: parameter 'second\.weight' stands where the state has 'first\.weight'"
    ):
        optimizer.load_state_dict(trained(named))
    assert not optimizer.state
    optimizer.load_state_dict(trained(named[::-1]))
    renamed = [(f"module.{name}", p) for name, p in named]
    Apollo(renamed, lr=0.1).load_state_dict(trained(named))
    with pytest.raises(ValueError, match="parameter group that doesn't match the size"):
        optimizer.load_state_dict(trained(named[:1]))


def fsdp2(model):
    torch.distributed.fsdp.fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


def fsdp1(model):
    torch.distributed.fsdp.FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def fsdp1_with_parts(model):
    torch.distributed.fsdp.FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def refuse_parts_of_tensors(shard):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model, whole = nn.Linear(3, 4, device="cpu"), nn.Parameter(torch.zeros(2))
        shard(model)
        with pytest.raises(
            ValueError, match=r"FSDP's .* norms need whole tensors: use DistributedDataParallel"
        ) as said:
            Apollo(model.parameters(), lr=0.1)
        assert "\n" not in str(said.value)
        optimizer = Apollo([whole], lr=0.1)
        with pytest.raises(ValueError, match="FSDP's"):
            optimizer.add_param_group({"params": model.parameters()})
        assert [group["params"] for group in optimizer.param_groups] == [[whole]]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # torch's, of FSDP on a CPU
@pytest.mark.parametrize("shard", [fsdp2, fsdp1, fsdp1_with_parts])
def test_parts_of_tensors_are_refused_in_one_line(shard):
    """In a process of its own: torch keeps the group, of which a later fork of this process would wait for threads."""
    run_apart(partial(refuse_parts_of_tensors, shard))
