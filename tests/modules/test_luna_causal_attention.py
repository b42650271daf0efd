import pytest
import torch

from fairseq_luna.modules import LunaCausalAttention
from fairseq_luna.modules.decoding_state import repeat_rows
from fairseq_luna.modules.multihead import merge_heads
from fairseq_luna.ops.luna_causal_attention import luna_causal_attention_reference
from fairseq_luna.ops.padding import Padding
from numeric import PADDED, assert_same_function, scattered_padding, sequences
from support import CLOSE, golden

TIED = pytest.mark.parametrize("tie_kv", [True, False], ids=["tied", "untied"])
CONVOLVED = pytest.mark.parametrize("kernel_size", [0, 5], ids=["plain", "convolution"])
ACTIVATION = pytest.mark.parametrize("activation", ["softplus", "elu"])


def build(size=16, heads=4, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    return LunaCausalAttention(embed_dim=size, num_heads=heads, **options).to(dtype)


def inputs(steps=40, slots=3, batch=2, size=16, dtype=torch.float64):
    return sequences((steps, batch, size), (slots, batch, size), dtype=dtype)


@pytest.mark.parametrize("name", ["causal_tied", "causal_untied"])
def test_equals_the_authors_numbers(name):
    recorded = golden(f"{name}.pt")
    module = build(recorded["embed_dim"], recorded["num_heads"], torch.float32, tie_kv=recorded["tie_kv"])
    module.load_state_dict(recorded["state_dict"])
    query, packed = recorded["query"].clone().requires_grad_(), recorded["pquery"].clone().requires_grad_()
    out, weights = module(query, packed)
    gradients = torch.autograd.grad(out, (query, packed), recorded["grad_output"])
    torch.testing.assert_close(out, recorded["output"], **CLOSE)
    torch.testing.assert_close(weights, recorded["attn_weights"], **CLOSE)
    torch.testing.assert_close(gradients, (recorded["grad_query"], recorded["grad_pquery"]), **CLOSE)


def by_the_equations(module, query, packed, padding_mask=None, packed_padding_mask=None):
    """The naive form with the module's projections and convolution: output and weights."""
    x = query if module.convolution is None else module.convolution.causal(query, padding=padding_mask)[0]
    k, v = module.keys_and_values(x)
    y, weights = luna_causal_attention_reference(
        *(module.project_heads(module.q_proj, x), k, v),
        *(module.project_heads(module.pq_proj, packed), module.project_heads(module.pc_proj, x)),
        activation=module.activation,
        padding=padding_mask,
        packed_padding=packed_padding_mask,
    )
    return module.out_proj(merge_heads(y)), weights.transpose(0, 1)


@TIED
@ACTIVATION
@CONVOLVED
@PADDED
def test_equals_the_naive_form(tie_kv, activation, kernel_size, padded):
    module = build(tie_kv=tie_kv, activation=activation, kernel_size=kernel_size)
    query, packed = inputs()
    masks = {}
    if padded:
        slots = torch.tensor([[False, False, True], [False, False, False]])
        masks = {"padding_mask": scattered_padding(2, 40), "packed_padding_mask": slots}
    out, weights = module(query, packed, **masks)
    expected, expected_weights = by_the_equations(module, query, packed, **masks)
    torch.testing.assert_close(weights, expected_weights)
    assert_same_function(out, expected, [query, packed, *module.parameters()])


@PADDED
def test_a_long_sequence_equals_the_naive_form_without_pack_keys(padded, monkeypatch):
    module = build(heads=2)
    query, packed = inputs()
    mask = scattered_padding(2, 40) if padded else None
    expected, _ = by_the_equations(module, query, packed, mask)
    called, forward = [], torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: called.append(self) or forward(self, x))
    out, _ = module(query, packed, padding_mask=mask)
    assert called and module.pc_proj not in called
    assert_same_function(out, expected, [query, packed, *module.parameters()])


def with_memory():
    """A memory of two sentences, and padded slots."""
    return {
        "packed_padding_mask": torch.tensor([[False, False, True], [False, False, False]]),
        "memory": torch.randn(7, 2, 16, dtype=torch.float64),
        "memory_padding_mask": torch.arange(7) >= torch.tensor([[5], [7]]),
    }


@TIED
@CONVOLVED
@pytest.mark.parametrize("memory", [False, True], ids=["alone", "memory"])
def test_beams_of_a_sentence_read_one_row(tie_kv, kernel_size, memory):
    module, beams = build(tie_kv=tie_kv, kernel_size=kernel_size), 3
    query, packed = (x.detach() for x in inputs(steps=12, batch=6))
    rows = torch.arange(2).repeat_interleave(beams)
    options = {name: x for name, x in with_memory().items() if memory or name == "packed_padding_mask"}
    of_rows = {name: x[:, rows] if name == "memory" else x[rows] for name, x in options.items()}
    expected, expected_weights = module(query, packed[:, rows], **of_rows)
    pq = module.slot_queries(packed[:, :2])
    state = repeat_rows(module.initial_state(pq, options.get("memory"), options.get("memory_padding_mask")), beams)
    slots = Padding(options["packed_padding_mask"])
    for t in range(12):
        out, weights, state = module.step(query[t : t + 1], Padding(), pq, slots, state)
        torch.testing.assert_close(out, expected[t : t + 1])
        torch.testing.assert_close(weights, expected_weights[:, :, t : t + 1])
