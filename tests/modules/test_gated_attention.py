"""What the gated attention unit has beside what tests/models/mixed asks of every attention."""

import pytest
import torch

from fairseq_luna.modules import GatedAttention, GatedCausalAttention
from fairseq_luna.ops.mixed_chunk_attention import mixed_chunk_attention
from fairseq_luna.usage_error import UsageError
from numeric import mixed_padding, sequences
from support import golden

KINDS = {"self": GatedAttention, "causal": GatedCausalAttention}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def build(kind, **options):
    torch.manual_seed(0)
    return kind(**{"embed_dim": 8, "chunk_size": 5, "key_size": 6, **options}).double().eval()


def published(module, x):
    """The published causal form: of the earlier chunks it reads the sum of their means, where ours reads the mean."""
    (q, k, far_q, far_k, v), gate = module.parts(x)
    earlier = torch.arange(len(x)) // module.chunk_size
    y = mixed_chunk_attention(
        *(q, k, far_q * earlier[:, None], far_k, v, module.distance_bias), chunk_size=module.chunk_size, causal=True
    )
    return module.output(y, gate)


@pytest.mark.parametrize("name", KINDS)
def test_equals_the_published_numbers(name):
    file = golden("flash.pt")
    recorded, module = file[name], KINDS[name](**file["settings"])
    module.load_state_dict(recorded["parameters"])
    x = recorded["x"].clone().requires_grad_()
    steps = x.transpose(0, 1)
    out = (module(steps) if name == "self" else published(module, steps)).transpose(0, 1)
    torch.testing.assert_close(out, recorded["output"], **CLOSE)
    parameters = dict(module.named_parameters())
    own = torch.autograd.grad(out, [x, *parameters.values()], recorded["grad_output"])
    torch.testing.assert_close(own, (recorded["grad_x"], *(recorded["grads"][key] for key in parameters)), **CLOSE)
    if name == "causal":  # the difference is the number of earlier chunks: none in the first two chunks
        torch.testing.assert_close(module(steps)[:10].transpose(0, 1), recorded["output"][:, :10], **CLOSE)
        assert not module(steps)[10:].transpose(0, 1).allclose(recorded["output"][:, 10:], **CLOSE)


@torch.no_grad()
def test_the_state_is_the_open_chunk_and_from_the_second_on_two_means():
    module, state, sizes, keys, values = build(GatedCausalAttention), {}, [], 6, 16
    for x in sequences((14, 3, 8))[0]:
        module(x[None], incremental_state=state)
        sizes.append(sum(tensor.numel() for tensor in module.load_state(state).values()))
    first = [3 * (t * (2 * keys + values) + 1) for t in range(1, 6)]
    assert sizes == first + [3 * (5 * (keys + values) + 2 * keys * values + 1)] * 9


@EVERY_KIND
def test_dropout_and_noise_are_for_training(kind):
    [x] = sequences((12, 2, 8))
    expected = build(kind)(x)
    for options in ({"dropout": 0.5}, {"q_noise": 0.5, "qn_block_size": 2}):
        module = build(kind, **options)
        torch.testing.assert_close(module(x), expected)
        module.train()
        assert not module(x).equal(module(x))


@EVERY_KIND
def test_data_decides_no_branch(kind):
    """Meta tensors have no data: reading a number from one is an error. On a GPU it would wait for the device."""
    module, [x] = build(kind, dropout=0.1).to("meta").train(), sequences((20, 3, 8))
    x, mask = x.detach().to("meta"), mixed_padding(20).to("meta")
    module(x, padding_mask=mask).sum().backward()
    assert {p.grad.device.type for p in module.parameters()} == {"meta"}
    if kind is GatedCausalAttention:
        state = {}
        for t in range(8):
            module(x[t : t + 1], padding_mask=mask[:, t : t + 1], incremental_state=state)


def test_a_chunk_of_no_steps_is_refused():
    with pytest.raises(UsageError, match=r"^chunk_size 0: must be 1 or more$"):
        build(GatedAttention, chunk_size=0)
