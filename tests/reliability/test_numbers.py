"""Every attention at numerical extremes: half precision, scales of inputs, lengths, padding."""

import pytest
import torch

from fairseq_luna import modules
from numeric import gradients
from support import EOS, PAD, as_prefix, build_model, sentences, step_by_step

FAMILIES = ("luna", "fastformer", "block", "mixed")
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
# For outputs and for gradients, of the largest of each tensor.
HALF = {"bf16": (torch.bfloat16, 0.01, 0.08), "fp16": (torch.float16, 0.002, 0.008)}
FP32_AND_BF16 = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
SLOTS = 4


def sequence(module, x, mask=None, **options):
    """The output for ``x (T, B, C)``, which is what every attention except Luna's returns."""
    return module(x, padding_mask=mask, **options)


def luna_encoder(module, x, mask=None):
    out, packed, _ = module(x, packed_input(x), x, context_padding_mask=mask)
    return torch.cat([out, packed])


def luna_decoder(module, x, mask=None, **options):
    return module(x, packed_input(x), padding_mask=mask, **options)[0]


def packed_input(x):
    """A packed sequence of the scale of the inputs, ``(L, B, C)``."""
    return x.detach().new_ones(SLOTS, *x.shape[1:]) * torch.linspace(-1, 1, SLOTS)[:, None, None].to(x.dtype)


ATTENTIONS = {
    "luna-encoder": (modules.LunaAttention, {"num_packed_heads": 2}, luna_encoder),
    "luna-decoder": (modules.LunaCausalAttention, {}, luna_decoder),
    "luna-encoder-convolution": (modules.LunaAttention, {"num_packed_heads": 2, "kernel_size": 5}, luna_encoder),
    "luna-decoder-convolution": (modules.LunaCausalAttention, {"kernel_size": 5}, luna_decoder),
    "fastformer-encoder": (modules.FastformerAttention, {}, sequence),
    "fastformer-decoder": (modules.FastformerCausalAttention, {}, sequence),
    "fastformer-encoder-convolution": (modules.FastformerAttention, {"kernel_size": 5}, sequence),
    "fastformer-decoder-convolution": (modules.FastformerCausalAttention, {"kernel_size": 5}, sequence),
    "block-encoder": (modules.BlockAttention, {}, sequence),
    "block-decoder": (modules.BlockCausalAttention, {"block_size": 64}, sequence),
    "block-encoder-convolution": (modules.BlockAttention, {"kernel_size": 5}, sequence),
    "block-decoder-convolution": (modules.BlockCausalAttention, {"block_size": 64, "kernel_size": 5}, sequence),
}
# Biases with gradient zero, whose rounding errors are compared with their weight's gradient.
OF_ITS_WEIGHT = {("block-encoder-convolution", "k_proj.bias")}
EVERY_ATTENTION = pytest.mark.parametrize("name", ATTENTIONS)


def build(name, dtype=torch.float32, size=16):
    """The attention, and a function that calls it."""
    kind, options, call = ATTENTIONS[name]
    torch.manual_seed(1)
    module = kind(embed_dim=size, num_heads=2, **options).to(dtype)
    return module, lambda x, mask=None, **more: call(module, x, mask, **more)


def inputs(steps, batch=2, size=16, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(steps)
    return (scale * torch.randn(steps, batch, size, generator=generator)).to(dtype).requires_grad_()


@EVERY_ATTENTION
@pytest.mark.parametrize(("dtype", "output_bound", "bound"), HALF.values(), ids=HALF)
def test_outputs_and_gradients_of_half_precision_stay_near_those_of_fp32(name, dtype, output_bound, bound):
    outputs, found = [], []
    for each in (torch.float32, dtype):
        module, call = build(name, each)
        x = inputs(120, dtype=dtype).to(each).detach().requires_grad_()
        names, parameters = zip(*module.named_parameters(), strict=True)
        out = call(x)
        outputs.append(out)
        found.append(dict(zip(("input", *names), gradients(out, x, *parameters), strict=True)))
    assert (outputs[1].float() - outputs[0]).abs().max() < output_bound * outputs[0].abs().max()
    expected, half = found
    largest = max(gradient.abs().max() for gradient in expected.values())
    for which, gradient in half.items():
        error = (gradient.float() - expected[which]).abs().max()
        # A gradient that is zero except for rounding, such as that of a bias under a softmax, has no scale.
        size = expected[which.replace(".bias", ".weight") if (name, which) in OF_ITS_WEIGHT else which].abs().max()
        assert error < bound * max(size, 1e-2 * largest), which


@EVERY_ATTENTION
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 1e2, 1e4])
@FP32_AND_BF16
def test_finite_for_inputs_of_any_size(name, scale, dtype):
    module, call = build(name, dtype)
    x = inputs(90, dtype=dtype, scale=scale)
    out = call(x)
    grads = gradients(out, x, *module.parameters())
    assert all(torch.isfinite(tensor).all() for tensor in (out, *grads))


@EVERY_ATTENTION
@pytest.mark.parametrize("scale", [1e-4, 1.0, 10.0])
def test_finite_in_fp16(name, scale):
    # The formulas are of third order in the inputs: from some hundreds on their values exceed fp16's range.
    _, call = build(name, torch.float16)
    out = call(inputs(90, dtype=torch.float16, scale=scale))
    assert torch.isfinite(out).all()


@EVERY_ATTENTION
@pytest.mark.parametrize("batch", [1, 3], ids=["B1", "B3"])
@pytest.mark.parametrize("steps", [1, 2, 3, 63, 64, 65, 1000], ids=lambda steps: f"T{steps}")
def test_finite_at_every_length(name, steps, batch):
    module, call = build(name)
    x = inputs(steps, batch)
    out = call(x)
    assert all(torch.isfinite(tensor).all() for tensor in (out, *gradients(out, x, *module.parameters())))


@pytest.mark.slow
@EVERY_ATTENTION
@FP32_AND_BF16
def test_finite_at_100000_steps(name, dtype):
    module, call = build(name, dtype, size=4)
    x = inputs(100_000, 1, size=4, dtype=dtype)
    out = call(x)
    assert all(torch.isfinite(tensor).all() for tensor in (out, *gradients(out, x, *module.parameters())))


@EVERY_ATTENTION
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_a_row_of_padding_is_finite_and_does_not_affect_others(name, dtype):
    module, call = build(name, dtype)
    x = inputs(20, 3, dtype=dtype)
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[1] = True
    out = call(x, mask)
    assert all(torch.isfinite(tensor).all() for tensor in (out, *gradients(out, x, *module.parameters())))
    others = call(x[:, [0, 2]], mask[[0, 2]])
    close = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(out[:, [0, 2]], others, rtol=close, atol=close)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name.endswith("decoder")])
@FP32_AND_BF16
@torch.no_grad()
def test_one_step_at_a_time_equals_the_whole_pass_at_4096_steps(name, dtype):
    _, call = build(name, dtype)
    x = inputs(4096, 2, dtype=dtype)
    whole, state = call(x), {}
    stepped = torch.cat([call(x[t : t + 1], incremental_state=state) for t in range(len(x))])
    bound = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    assert (stepped - whole).abs().max() < bound * whole.abs().max()


@EVERY_FAMILY
@torch.no_grad()
def test_a_whole_model_generates_512_words_as_it_reads_them(family):
    model = build_model(family, decoder_layers=1, encoder_layers=1).eval()
    prefix = as_prefix(sentences(512, seed=2))
    encoder_out = model.encoder(sentences(9))
    whole, _ = model.decoder(prefix, encoder_out=encoder_out)
    torch.testing.assert_close(step_by_step(model, prefix, encoder_out), whole, rtol=1e-4, atol=1e-5)


@EVERY_FAMILY
@FP32_AND_BF16
def test_an_empty_sentence_is_read_and_an_empty_prefix_continued(family, dtype):
    model = build_model(family).to(dtype)
    source = torch.tensor([[EOS]])
    out = model(source, torch.tensor([1]), source)[0]
    assert out.shape[:2] == (1, 1)
    out.float().logsumexp(-1).sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@EVERY_FAMILY
@FP32_AND_BF16
@torch.no_grad()
def test_a_row_of_padding_does_not_affect_other_sentences(family, dtype):
    model = build_model(family).to(dtype).eval()
    source, prefix = torch.tensor([[5, 6, EOS], [PAD] * 3]), torch.tensor([[EOS, 7], [EOS, 7]])
    assert torch.isfinite(model.encoder(source)["encoder_out"][0]).all()
    out = model(source, source.ne(PAD).sum(1), prefix)[0]
    if dtype == torch.float32:
        torch.testing.assert_close(out[:1], model(source[:1], torch.tensor([3]), prefix[:1])[0], rtol=1e-5, atol=1e-5)
    # In a batch with a real sentence in both cases: a batch of one rounds differently in bf16.
    both = torch.tensor([[5, 6, EOS], [EOS, PAD, PAD]])
    torch.testing.assert_close(out[:1], model(both, both.ne(PAD).sum(1), prefix)[0][:1], rtol=1e-5, atol=1e-5)
    # The other families use fairseq's attention to the source, whose mean over no words is NaN.
    assert family != "luna" or torch.isfinite(out).all()
