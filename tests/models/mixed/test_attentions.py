"""What every attention of the table must do in each place where it can stand."""

from argparse import Namespace

import pytest
import torch

from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES, build_attention
from fairseq_luna.models.mixed.config import mixed_config
from numeric import gradients, scattered_padding, sequences
from support import TINY, as_prefix, build_model, sentences

SIZE, SOURCE_SIZE = 8, 12
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
# softmax, topk and, with its fixed stride, sparse are quadratic; tests/reliability/test_numbers.py has the others.
NOT_LONG = {"softmax", "fastformer", "block", "topk", "sparse"}
# At their maximum, which is below 100,000 where they are quadratic.
MAXIMUM = {name: 512 for name in ATTENTIONS if name.startswith("synthesizer")} | {"linformer": 100_000}
FASTER = {"reformer": {"num_hashes": 2}, "linformer": {"num_slots": 8}}
# A rounding error may change which steps they see.
DISCONTINUOUS = {"topk", "reformer"}


def names(*places, without=()):
    found = [
        (name, place)
        for name, attention in ATTENTIONS.items()
        for place in places
        if name not in without and place in attention.factories()
    ]
    return pytest.mark.parametrize(("name", "place"), found, ids=map("-".join, found))


def build(name, place, dtype=torch.float32, **flags):
    sizes = {"encoder_embed_dim": SOURCE_SIZE if place == "source" else SIZE, "decoder_embed_dim": SIZE}
    cfg = mixed_config(Namespace(**{**TINY, **sizes, "share_all_embeddings": False, PLACES[place]: name, **flags}))
    torch.manual_seed(0)
    return build_attention(cfg, place).to(dtype).eval()


def inputs(steps, batch=3, dtype=torch.float32):
    return sequences((steps, batch, SIZE), dtype=dtype)[0]


@names("encoder", "decoder")
def test_padding_is_not_seen_and_every_parameter_is_trained(name, place):
    module, x, mask = build(name, place), inputs(40), scattered_padding(3, 40)
    out = module(x, padding_mask=mask)
    for row in range(3):
        real = ~mask[row]
        torch.testing.assert_close(out[real, row], module(x[real, row : row + 1])[:, 0], **CLOSE)
    seen, *trained = gradients(out[~mask.t()], x, *module.parameters())
    assert not seen[mask.t()].any()
    assert all(torch.isfinite(gradient).all() and gradient.any() for gradient in (seen, *trained))


@names("decoder")
def test_no_step_sees_a_later_one(name, place):
    module, x = build(name, place), inputs(90)
    changed = x.detach().clone()
    changed[50:] += 1
    before, after = module(x), module(changed)
    assert before[:50].equal(after[:50])
    assert (before[50:] - after[50:]).abs().amax(-1).min() > 1e-6


@names("decoder")
@torch.no_grad()
def test_generation_with_a_reordered_beam_equals_the_whole_pass(name, place):
    module, x, mask = build(name, place), inputs(512), scattered_padding(3, 512)
    expected, order, state = module(x, padding_mask=mask), torch.tensor([2, 0, 0, 1]), {}
    for t in range(len(x)):
        if t == 70:
            module.reorder_incremental_state(state, order)
            x, mask, expected = x[:, order], mask[order], expected[:, order]
        out = module(x[t : t + 1], padding_mask=mask[:, t : t + 1], incremental_state=state)[0]
        torch.testing.assert_close(out[~mask[:, t]], expected[t, ~mask[:, t]], **CLOSE)


@names("source")
def test_the_source_without_its_padding_is_read_at_the_first_step(name, place):
    module, x, order = build(name, place), inputs(6), torch.tensor([2, 0, 0, 1])
    [source] = sequences((40, 3, SOURCE_SIZE), dtype=torch.float32)
    mask = scattered_padding(3, 40)
    out, weights = module(x, source, source_padding_mask=mask, need_weights=True)
    assert weights.shape == (4, 3, 6, 40)
    assert not weights.masked_select(mask[:, None]).any()
    for row in range(3):
        alone, none = module(x[:, row : row + 1], source[~mask[row], row : row + 1])
        assert none is None
        torch.testing.assert_close(out[:, row], alone[:, 0], **CLOSE)
    seen, *trained = gradients(out, source, x, *module.parameters())
    assert not seen[mask.t()].any()
    assert all(torch.isfinite(gradient).all() and gradient.any() for gradient in (seen, *trained))
    state = {}
    for t in range(6):
        if t == 2:
            module.reorder_incremental_state(state, order)
            x, out, mask = x[:, order], out[:, order], mask[order]
        given = source if t == 0 else None
        step, _ = module(x[t : t + 1], given, source_padding_mask=mask, incremental_state=state)
        torch.testing.assert_close(step[0], out[t], **CLOSE)


@names(*PLACES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(name, place, dtype, bound):
    read = (inputs(120), *(sequences((90, 3, SOURCE_SIZE), dtype=torch.float32) if place == "source" else ()))
    found = []
    for precision in (torch.float32, dtype):
        out = build(name, place, precision)(*(tensor.to(dtype).to(precision) for tensor in read))
        found.append(out[0].float() if place == "source" else out.float())
    error = (found[1] - found[0]).abs()
    assert error.quantile(0.95 if name in DISCONTINUOUS else 1.0) < bound * found[0].abs().max()


@pytest.mark.slow
@names(*PLACES, without=NOT_LONG)
def test_finite_at_100000_steps_or_the_maximum(name, place):
    steps, flags = MAXIMUM.get(name, 100_000), FASTER.get(name, {})
    [x] = sequences((steps, 1, SOURCE_SIZE if place == "source" else SIZE), dtype=torch.float32)
    if name in MAXIMUM:
        flags = {**flags, "max_source_positions": steps, "max_target_positions": steps}
    module = build(name, place, **flags)
    out = module(inputs(2, 1), x)[0] if place == "source" else module(x)
    assert all(torch.isfinite(tensor).all() for tensor in (out, *gradients(out, x, *module.parameters())))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_gradients_with_checkpointed_activations(name):
    found = []
    for checkpointed in (False, True):
        flags = {"dropout": 0.1, "attention_dropout": 0.1, "checkpoint_activations": checkpointed}
        model = build_model("mixed", **ATTENTIONS[name].fields(name), **flags)
        torch.manual_seed(1)
        model(sentences(7, 4), None, as_prefix(sentences(6, 3, seed=2)))[0].logsumexp(-1).sum().backward()
        found.append({parameter: tensor.grad for parameter, tensor in model.named_parameters()})
    torch.testing.assert_close(found[1], found[0], **CLOSE)
