"""The Triton kernels: on a GPU or in Triton's interpreter, and compiled for GPUs that are not there."""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from fairseq_luna.ops.luna_causal_attention import pack_scores, self_check, torch_form
from fairseq_luna.ops.luna_causal_attention import triton_form as op
from fairseq_luna.ops.padding import Padding
from numeric import TOLERANCE, assert_gradients_close

pytestmark = pytest.mark.slow
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs pip install triton")

BATCH = HEADS = 2
# Steps, channels of a head, slots, tied, padding, padded slots: 1 to 6 chunks of 16, or 1 to 3 of 32.
CASES = [
    (1, 64, 32, True, None, False),
    (7, 32, 16, False, "end", True),
    (32, 32, 16, True, "front", False),
    (70, 64, 32, True, None, True),
    (70, 24, 10, False, "front", False),
    (90, 16, 5, True, "end", True),
]
KINDS = [(torch.float32, "softplus"), (torch.float32, "elu"), (torch.bfloat16, "softplus"), (torch.float16, "softplus")]
KIND_IDS = ["fp32-softplus", "fp32-elu", "bf16", "fp16"]


@pytest.fixture(autouse=True)
def no_verdicts(monkeypatch):
    monkeypatch.setattr(self_check, "_verdicts", {})


def heads(x):
    """fairseq's layout: ``(T, B, C)`` seen as ``(B, H, T, D)``."""
    return x.view(*x.shape[:2], HEADS, -1).permute(1, 2, 0, 3)


def problem(steps, size, slots, dtype, tied):
    """q, k, v and pk ``(T, B, C)``, and pq ``(L, B, C)``."""
    generator = torch.Generator().manual_seed(steps + size)
    lengths = [steps] * 4 + [slots]
    q, k, v, pk, pq = (torch.randn(n, BATCH, HEADS * size, generator=generator).to(dtype) for n in lengths)
    q, k, v, pk, pq = (x.requires_grad_() for x in (q, k, v, pk, pq))
    return q, k, k if tied else v, pk, pq


def masks(steps, slots, padding, padded_slots):
    found = {"padding": None, "packed_padding": None}
    if padding is not None:
        found["padding"] = torch.zeros(BATCH, steps, dtype=torch.bool)
        third = slice(-(steps // 3), None) if padding == "end" else slice(steps // 3)
        found["padding"][1, third] = True
    if padded_slots:
        found["packed_padding"] = torch.arange(slots).expand(BATCH, -1) >= torch.tensor([[slots // 2], [slots]])
    return {name: Padding(mask) for name, mask in found.items()}


def by_kernels(q, k, v, pk, pq, **options):
    keys = heads(k)
    values = keys if v is k else heads(v)
    scores = pack_scores(heads(pq), heads(pk))
    return op.fused(heads(q), keys, values, scores, **{"activation": "softplus", "dropout_p": 0.0, **options})


@needs_triton
@pytest.mark.parametrize(("dtype", "activation"), KINDS, ids=KIND_IDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_equals_naive(case, dtype, activation):
    steps, size, slots, tied, padding, padded_slots = case
    args = q, k, v, pk, pq = problem(steps, size, slots, dtype, tied)
    options = {"activation": activation, **masks(steps, slots, padding, padded_slots)}
    expected, _ = torch_form.luna_causal_attention_reference(*map(heads, (q, k, v, pq, pk)), **options)
    actual = by_kernels(*args, **options)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, {id(x): x for x in args}.values(), dtype)


@needs_triton
@pytest.mark.parametrize("score", [-12.0, -18.0, -23.5, -40.0, -100.0])
def test_small_weights_keep_their_digits(score):
    """1 + 2^-24 is 1 in fp32."""
    q, k, v, pk, pq = (heads(x) for x in problem(20, 16, 8, torch.float32, False))
    scores = score + pack_scores(pq, pk)
    scale = 2**-score
    expected = torch_form.luna_causal_attention_from_scores(*(x.double() for x in (q, k, v, scores)))[0] * scale
    actual = op.fused(q, k, v, scores, activation="softplus", dropout_p=0.0, **masks(20, 8, None, False)) * scale
    torch.testing.assert_close(actual.double(), expected, **TOLERANCE[torch.float32])


@needs_triton
def test_longer_chunks_are_the_same(monkeypatch):
    args = problem(70, 16, 8, torch.float32, True)
    expected = by_kernels(*args, **masks(70, 8, "end", False))
    monkeypatch.setattr(op, "launch_options", lambda q: {"C": 64, "PRECISION": "ieee"})
    torch.testing.assert_close(by_kernels(*args, **masks(70, 8, "end", False)), expected)


@needs_triton
def test_dropout_drops_the_same_weights_in_both_passes():
    """Beside the formula with the masks that the kernels draw."""
    import triton
    import triton.language as tl

    @triton.jit
    def numbers(out, seed, N: tl.constexpr):
        places = tl.arange(0, N)
        tl.store(out + places, tl.rand(seed, places))

    steps, size, slots, p, seed = 40, 16, 8, 0.3, 5
    args = q, k, v, pk, pq = problem(steps, size, slots, torch.float32, False)
    kept = []
    for offset in (0, 1):
        drawn = torch.empty(2048)
        numbers[(1,)](drawn, seed + offset, N=2048)
        kept.append((drawn[: BATCH * HEADS * steps * slots] >= p).view(BATCH, HEADS, steps, slots) / (1 - p))
    each = torch.arange(1.0, steps + 1).reciprocal()[:, None]
    weights = torch_form.positive_reference("softplus", pack_scores(heads(pq), heads(pk))) * kept[0]
    means = [(x[..., None] * weights[..., None, :]).cumsum(2) * each[..., None] for x in (heads(k), heads(v))]
    unpack = torch.einsum("bhtd,bhtdl->bhtl", heads(q), means[0]).mul(size**-0.5).softmax(-1) * kept[1]
    expected = torch.einsum("bhtl,bhtdl->bhtd", unpack, means[1])

    no_mask = torch.arange(1.0, steps + 1).reciprocal()[None]
    scores = pack_scores(heads(pq), heads(pk))
    actual = op._LunaCausal.apply(heads(q), heads(k), heads(v), scores, no_mask, None, None, "softplus", p, seed)
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float32])
    assert_gradients_close(actual, expected, args, torch.float32)


@pytest.fixture
def inputs():
    """q, k, v and scores of 20 steps."""
    q, k, v, pk, pq = (heads(x) for x in problem(20, 16, 8, torch.float32, False))
    return q, k, v, pack_scores(pq, pk)


@needs_triton
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_proves_itself_once_for_tensors_of_a_kind(inputs, dropout, monkeypatch):
    checks = []
    original = self_check._describe_difference
    monkeypatch.setattr(self_check, "_describe_difference", lambda *args: checks.append(args) or original(*args))
    for steps in (20, 17, 20):  # lengths of one power of two
        y, weights = op.luna_causal_attention_from_scores(*(x[:, :, :steps] for x in inputs), dropout_p=dropout)
        assert weights is None and y.shape[2] == steps
    assert len(checks) == 1


def _not_there(y):
    raise ModuleNotFoundError("No module named 'triton'")


FAULTS = {
    "the output differs from the plain torch form's by 1.0e-01 of its largest element": lambda y: 1.1 * y,
    r"the gradient of q differs from the plain torch form's by 1.0e\+00": lambda y: y.detach() + 2 * (y - y.detach()),
    "ModuleNotFoundError: No module named 'triton'": _not_there,
}


@pytest.mark.parametrize(("message", "fault"), FAULTS.items())
def test_is_left_out_with_a_warning(inputs, message, fault, monkeypatch):
    def faulty(*inputs, **options):
        return fault(torch_form.luna_causal_attention_from_scores(*inputs, **options)[0])

    monkeypatch.setattr(op, "fused", faulty)
    monkeypatch.setattr(op, "interpreted", lambda: True)
    expected, _ = torch_form.luna_causal_attention_from_scores(*inputs)
    with pytest.warns(UserWarning, match=rf"Luna's Triton kernels are left out for \(2, 2, 20, 16\).*: {message}"):
        y, weights = op.luna_causal_attention_from_scores(*inputs)
    assert torch.equal(y, expected) and weights is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.luna_causal_attention_from_scores(*inputs)


@pytest.mark.filterwarnings("error")
def test_the_chunked_form_serves_a_cpu_without_a_word(inputs, monkeypatch):
    monkeypatch.setattr(op, "interpreted", lambda: False)
    y, _ = op.luna_causal_attention_from_scores(*inputs)
    assert torch.equal(y, torch_form.luna_causal_attention_from_scores(*inputs)[0])


@needs_triton
def test_compiles_for_gpus_without_spilled_registers():
    program = Path(__file__).parents[1] / "helpers" / "compiled_kernels.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=900, env=environment)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(rows) == 2 * 3 * 5
    shared = {80: 163 * 1024, 90: 227 * 1024}
    for row in rows:
        assert row["registers"] <= 255 and row["local"] == 0 and row["shared"] <= shared[row["capability"]], row
