"""Promises of every attention in each place where it can stand, whatever its formula."""

from functools import partial

import pytest
import torch

import every_attention
from every_attention import EVERY, WITH_OPTIONS, Kept, call, declaration_of, inputs
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS
from fairseq_luna.modules.decoding_state import flatten_state, select_rows
from fairseq_luna.ops.padding import Padding
from largest_tensor import LargestTensor
from numeric import gradients, mixed_padding, scattered_padding

every = partial(every_attention.every, also=WITH_OPTIONS)
DECLARED = {name: declaration_of(name) for name, _ in (*EVERY, *WITH_OPTIONS)}
TRAITS = {name: declaration.traits for name, declaration in DECLARED.items()}
LIMITED = {name for name, traits in TRAITS.items() if not traits.sees_every_step}
NOT_CONTINUOUS = {name for name, traits in TRAITS.items() if not traits.continuous}
GROWING = {name for name, traits in TRAITS.items() if traits.state_grows}
QUADRATIC = {name for name, traits in TRAITS.items() if traits.quadratic}
# The longest sequence that they are made for, where their parameters decide it.
MAXIMUM = {
    name: 512 if name in QUADRATIC else 100_000
    for name, declaration in DECLARED.items()
    if declaration.has_max_positions
}
# tests/reliability/test_numbers.py has the attentions of the papers; the pyramid's blocks are a third of the sentence.
NOT_LONG = {name for name, _ in EVERY if name.startswith(("luna", "fastformer", "block", "pyramid"))}
NOT_LONG |= QUADRATIC - MAXIMUM.keys()
SMALL = {
    **{"num_slots": 8, "num_features": 8, "state_size": 8, "attention_window": 16, "num_hashes": 1},
    **{"attention_nodes": 1, "attention_memory": 16},
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def build(name, place, **options):
    """Of the table, an attention to a source of other channels."""
    if place == "source" and name in ATTENTIONS:
        options["encoder_embed_dim"] = 12
    return every_attention.build(name, place, **options)


def small_of(name):
    """Small sizes of the table's attention, where it has flags for them."""
    flags = {flag.name for flag in ATTENTIONS[name].flags} if name in ATTENTIONS else ()
    return {flag: size for flag, size in SMALL.items() if flag in flags}


def in_fp64(name, place, steps, batch=3, source_steps=None, **options):
    module = build(name, place, **options).double()
    return module, *(x.double().requires_grad_() for x in inputs(module, steps, batch, source_steps))


@every()
def test_padding_is_not_seen_and_every_parameter_is_trained(name, place):
    """At any position; of a sentence of padding the output is finite."""
    module, x, source = in_fp64(name, place, 40, batch=4)
    mask = torch.cat([mixed_padding(40), torch.ones(1, 40, dtype=torch.bool)])
    out, read = call(module, place, x, mask, source), source if place == "source" else x
    for row in range(3):
        one, real = slice(row, row + 1), ~mask[row]
        if place == "source":
            torch.testing.assert_close(out[:, one], call(module, place, x[:, one], None, source[real, one]), **CLOSE)
        else:
            torch.testing.assert_close(out[real, one], call(module, place, x[real, one]), **CLOSE)
    assert out.isfinite().all() and torch.autograd.grad(out.sum(), read, retain_graph=True)[0].isfinite().all()
    seen, *trained = gradients(out if place == "source" else out[~mask.t()], read, *module.parameters())
    assert (seen.abs().amax(-1) > 0).equal(~mask.t())
    assert all(gradient.isfinite().all() and gradient.any() for gradient in (seen, *trained))


@every("decoder")
def test_no_step_sees_a_later_one(name, place):
    """With dropout too. Unless its field is limited, each sees all steps before it."""
    for options in ({}, {"dropout": 0.5}):
        module, x, _ = in_fp64(name, place, 90, batch=2, **options)
        out = module.train(bool(options))(x)
        for t in (0, 7, 8, 60, 89):
            (seen,) = torch.autograd.grad(out[t].square().sum(), x, retain_graph=True)
            assert not seen[t + 1 :].any()
            assert options or name in LIMITED or (seen[: t + 1].abs().amax((1, 2)) > 0).all()
    torch.testing.assert_close(module.eval()(x[:17]), module(x)[:17], **CLOSE)


@every("encoder", without=LIMITED)
def test_every_step_sees_every_other(name, place):
    module, x, _ = in_fp64(name, place, 30, batch=1)
    for t in (0, 29):
        (seen,) = torch.autograd.grad(module(x)[t].square().sum(), x)
        assert (seen.abs().amax(-1) > 0).all()


@every("decoder")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@torch.no_grad()
def test_generation_equals_the_whole_pass_and_follows_the_beam(name, place, padded):
    """Steps come one by one or several at once; rows are permuted, doubled and dropped."""
    module, x, _ = in_fp64(name, place, 100)
    mask = scattered_padding(3, 100) if padded else torch.zeros(3, 100, dtype=torch.bool)
    expected = module(x, padding_mask=mask if padded else None)
    orders = {20: [2, 0, 1], 47: [0, 0, 1, 2], 67: [0, 2, 3], 80: [2]}
    kept, rows, t = Kept(), torch.arange(3), 0
    for steps in (*[1] * 40, 7, *[1] * 20, 13, 20):
        if t in orders:
            order = torch.tensor(orders[t])
            kept.reorder(order)
            rows = rows[order]
        now, t = slice(t, t + steps), t + steps
        out = call(module, place, x[now, rows], mask[rows, now] if padded else None, kept=kept)
        real = ~mask[rows, now].t()
        assert out.isfinite().all()
        torch.testing.assert_close(out[real], expected[now, rows][real], **CLOSE)


@every("decoder", without=GROWING)
@torch.no_grad()
def test_the_state_of_generation_does_not_grow(name, place):
    """Once a window or a chunk is full."""
    module, kept, sizes = build(name, place), Kept(), []
    for part in inputs(module, 640)[0].split([600, 40]):
        call(module, place, part, kept=kept)
        sizes.append(sum(x.numel() for x in flatten_state(kept.value).values()))
    assert sizes[0] == sizes[1]


@every("source")
@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
@torch.no_grad()
def test_the_source_is_read_once_and_shared_by_beams(name, place, need_weights):
    """Each of three sentences has two beams. What is kept of a sentence has one row."""
    module, x, _ = in_fp64(name, place, 5, batch=6)
    _, source = (each.double() for each in inputs(module, 5, 3, 40))
    mask, of_sentences = scattered_padding(3, 40), torch.arange(3).repeat_interleave(2)
    expected, weights = module(x, source[:, of_sentences], source_padding_mask=mask[of_sentences], need_weights=True)
    assert weights.shape[1:] == (6, 5, 40) and not weights.masked_select(mask[of_sentences][:, None]).any()
    aligned = name.startswith("luna") or not ATTENTIONS[name].unaligned
    assert not aligned or weights.sum(-1).allclose(torch.ones(()).double())
    if not name.startswith("luna"):  # which reads slots
        values = module.project_heads(module.v_proj, source[:, of_sentences])
        torch.testing.assert_close(module.project_output(weights.transpose(0, 1) @ values), expected, **CLOSE)
    rows, padding = torch.arange(6), Padding(mask)
    kept = module.read_source(source, padding, need_weights=need_weights)
    for t in range(5):
        if t == 2:  # beams of a sentence change places
            rows = torch.tensor([1, 0, 2, 2, 4, 5])
        if t == 4:  # the second sentence is finished
            kept, padding = select_rows(kept, torch.tensor([0, 2])), padding.rows(torch.tensor([0, 2]))
            rows = rows[torch.tensor([0, 1, 4, 5])]
        out, found = module.attend_to_source(x[t : t + 1, rows], kept, padding, need_weights=need_weights)
        torch.testing.assert_close(out[0], expected[t, rows], **CLOSE)
        assert (found is None) != need_weights
        if found is not None:
            torch.testing.assert_close(found[:, :, 0], weights[:, rows, t], **CLOSE)
    assert {len(x) for x in flatten_state(kept).values()} == {2}


@every()
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)], ids=["bf16", "fp16"])
@torch.no_grad()
def test_half_precision_stays_near_fp32(name, place, dtype, bound):
    found = []
    for precision in (torch.float32, dtype):
        module = build(name, place).to(precision)
        x, source = (each.to(dtype).to(precision) for each in inputs(module, 120, 3, 90))
        outs, kept = [call(module, place, x, source=source)], Kept()
        if place != "encoder":
            steps = [call(module, place, x[t : t + 1], source=source if t == 0 else None, kept=kept) for t in range(40)]
            outs.append(torch.cat(steps))
        assert {out.dtype for out in outs} == {precision}
        found.append([out.float() for out in outs])
    for expected, out in zip(*found, strict=True):
        error = (out - expected).abs()
        assert error.quantile(0.95 if name in NOT_CONTINUOUS else 1.0) < bound * expected.abs().max()


@every()
@torch.no_grad()
def test_autocast_stays_near_fp32(name, place):
    module = build(name, place)
    x, source = inputs(module, 40)
    expected = call(module, place, x, source=source)
    with torch.autocast(torch.get_default_device().type, torch.bfloat16):
        found = call(module, place, x, source=source)
    error = (found.float() - expected).abs()
    assert found.dtype == torch.bfloat16
    assert error.quantile(0.95 if name in NOT_CONTINUOUS else 1.0) < 6e-2 * expected.abs().max()


@every()
@torch.no_grad()
def test_dropout_and_quantisation_noise_are_for_training(name, place):
    module = build(name, place)
    x, source = inputs(module, 40)
    expected = call(module, place, x, source=source)
    for options in ({"dropout": 0.5}, *([{"q_noise": 0.5, "qn_block_size": 2}] if name != "pyramid" else [])):
        noisy = build(name, place, **options)
        torch.testing.assert_close(call(noisy, place, x, source=source), expected)
        noisy.train()
        first, second = (call(noisy, place, x, source=source) for _ in range(2))
        assert (first - second).abs().max() > 1e-3


@pytest.mark.slow
@every()
def test_data_decides_no_branch(name, place):
    """Meta tensors have no data: reading a number from one is an error. On a GPU it would wait for the device."""
    module = build(name, place, dropout=0.1).to("meta").train()
    x, source = (each.to("meta") for each in inputs(module, 70))
    mask, kept = scattered_padding(3, 70).to("meta"), Kept()
    call(module, place, x, mask, source).sum().backward()
    assert {p.grad.device.type for p in module.parameters()} == {"meta"}
    for t in range(20 if place != "encoder" else 0):
        of_step = mask if place == "source" else (mask[:, t : t + 1] if t >= 7 else None)
        out = call(module.eval(), place, x[t : t + 1], of_step, source, kept=kept)
        assert out.shape == x[:1].shape


@pytest.mark.slow
@every(without=QUADRATIC | MAXIMUM.keys())
def test_memory_is_linear_in_the_length(name, place):
    largest = []
    for steps in (1024, 4096):
        window = {flag: size for flag, size in small_of(name).items() if flag == "attention_window"}
        module = build(name, place, **window)
        x, source = (each.requires_grad_() for each in inputs(module, steps, 1))
        with LargestTensor() as seen:
            call(module, place, x, source=source).sum().backward()
        largest.append(seen.elements)
    growth = 6.5 if name.startswith("block") else 5.1 if name == "bp" else 4.1  # of power 4/3, n log n, or linear
    assert largest[1] <= growth * largest[0]


@pytest.mark.slow
@every(without=NOT_LONG)
def test_finite_at_100000_steps_or_the_maximum(name, place):
    steps, options = MAXIMUM.get(name, 100_000), small_of(name)
    if name in MAXIMUM:
        options = {**options, "max_source_positions": steps, "max_target_positions": steps}
    module = build(name, place, **options)
    x, source = (each.requires_grad_() for each in inputs(module, 2 if place == "source" else steps, 1, steps))
    out, read = call(module, place, x, source=source), source if place == "source" else x
    assert all(each.isfinite().all() for each in (out, *gradients(out, read, *module.parameters())))
