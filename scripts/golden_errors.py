"""Print the largest differences from the recorded numbers of the authors' implementations, in fp32.

python scripts/golden_errors.py
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from comparing.recorded import Row, golden, worst
from comparing.whole_models import readers, since_2023, whole_model
from fairseq_luna.commands.command_line import Parser, command
from fairseq_luna.modules import (
    ExternalAttention,
    FastformerAttention,
    GatedAttention,
    GatedCausalAttention,
    KernelAttention,
    KernelCausalAttention,
    KernelSourceAttention,
    LunaCausalAttention,
)
from fairseq_luna.modules.feature_maps import EluFeatures, FourierFeatures, PositiveFeatures, SoftmaxFeatures
from fairseq_luna.ops.linformer_attention import linformer_attention
from fairseq_luna.ops.mixed_chunk_attention import mixed_chunk_attention
from fairseq_luna.ops.nystrom_attention import nystrom_attention
from fairseq_luna.ops.reformer_attention import reformer_attention
from fairseq_luna.optim import Apollo


def causal(name: str) -> Iterator[Row]:
    """Luna's causal attention module."""
    recorded = golden(f"{name}.pt")
    module = LunaCausalAttention(
        embed_dim=recorded["embed_dim"], num_heads=recorded["num_heads"], tie_kv=recorded["tie_kv"]
    )
    module.load_state_dict(recorded["state_dict"])
    query, packed = recorded["query"].clone().requires_grad_(), recorded["pquery"].clone().requires_grad_()
    out, weights = module(query, packed)
    gradients = torch.autograd.grad(out, (query, packed), recorded["grad_output"])
    yield name, "output", worst(out, recorded["output"])
    yield name, "attention weights", worst(weights, recorded["attn_weights"])
    expected = (recorded["grad_query"], recorded["grad_pquery"])
    yield name, "gradients of the inputs", max(map(worst, gradients, expected))


def fastformer() -> Iterator[Row]:
    """Fastformer's bidirectional attention, without the authors' biases of the scores, which the softmax cancels."""
    names = {
        "q_proj": "query",
        "k_proj": "key",
        "query_score": "query_att",
        "key_score": "key_att",
        "out_proj": "transform",
    }
    recorded = golden("fastformer.pt")
    module = FastformerAttention(embed_dim=recorded["embed_dim"], num_heads=recorded["num_heads"])
    theirs = recorded["state_dict"]
    own = ((name, *name.rsplit(".", 1)) for name in module.state_dict())
    module.load_state_dict({name: theirs[f"{names[part]}.{kind}"] for name, part, kind in own})
    hidden, real = recorded["hidden_states"].clone().requires_grad_(), ~recorded["padding_mask"]
    out = module(hidden.transpose(0, 1), padding_mask=~real).transpose(0, 1)
    (gradient,) = torch.autograd.grad(out, hidden, recorded["grad_output"])
    yield "fastformer", "output", worst(out[real], recorded["output"][real])
    yield "fastformer", "gradient of the input", worst(gradient[real], recorded["grad_hidden_states"][real])


# How each implementation calls the projections of queries, keys, values and output.
KERNEL_PROJECTIONS = {
    "linear": ("query_projection", "key_projection", "value_projection", "out_projection"),
    "performer": ("to_q", "to_k", "to_v", "to_out"),
    "rfa": ("q_proj", "k_proj", "v_proj", "out_proj"),
    "efficient": ("queries", "keys", "values", "reprojection"),
}
FEATURE_MAPS = {
    "linear": EluFeatures,
    "performer": PositiveFeatures,
    "rfa": FourierFeatures,
    "efficient": SoftmaxFeatures,
}
KERNEL_PLACES = {"self": KernelAttention, "causal": KernelCausalAttention, "source_attention": KernelSourceAttention}


def kernel(name: str) -> Iterator[Row]:
    """A kernel attention in each place that the authors' code has."""
    recorded = golden(f"{name}.pt")
    for place in [place for place in KERNEL_PLACES if place in recorded]:
        module = kernel_module(name, place, recorded)
        inputs = {"x": recorded["x"].clone().requires_grad_()}
        options = {}
        if place == "source_attention":
            inputs["source"] = recorded["source"].clone().requires_grad_()
            if "source_lengths" in recorded:
                steps = torch.arange(recorded["source"].shape[1])
                options["source_padding_mask"] = steps >= recorded["source_lengths"][:, None]
        out = module(*(x.transpose(0, 1) for x in inputs.values()), **options)
        out = (out[0] if isinstance(out, tuple) else out).transpose(0, 1)
        gradients = torch.autograd.grad(out, list(inputs.values()), recorded["grad_output"])
        expected = [recorded[place][f"grad_{which}"] for which in inputs]
        yield name, f"{place.replace('_', ' ')}: output", worst(out, recorded[place]["output"])
        yield name, f"{place.replace('_', ' ')}: gradients of the inputs", max(map(worst, gradients, expected))


def kernel_module(name: str, place: str, recorded: Any) -> torch.nn.Module:
    """The module with the authors' parameters."""
    options = {key: recorded[key] for key in ("embed_dim", "num_heads", "num_features") if key in recorded}
    module = KERNEL_PLACES[place](feature_map=FEATURE_MAPS[name], **options).eval()
    own, theirs = module.state_dict(), recorded["state_dict"]
    random = {
        "directions": theirs.get("fast_attention.projection_matrix"),
        "matrices": recorded.get("random_matrices"),
        "sigma": theirs.get("sigma"),
        "seed": torch.tensor(0),
    }
    names = dict(zip(KERNEL_PROJECTIONS["rfa"], KERNEL_PROJECTIONS[name], strict=True))
    for key, value in own.items():
        part, kind = key.split(".")
        own[key] = (random[kind] if part == "feature_map" else theirs[f"{names[part]}.{kind}"]).view_as(value)
    module.load_state_dict(own)
    return module


def slots() -> Iterator[Row]:
    """The two attentions to slots that were published without projections."""
    for name, parameter in (("linformer", "sums"), ("nystrom", "kernel")):
        recorded = golden(f"{name}.pt")
        inputs = {key: recorded[key].clone().requires_grad_() for key in ("q", "k", "v", parameter)}
        if name == "linformer":
            padded = torch.arange(recorded["q"].shape[2]) >= recorded["lengths"][:, None]
            out = linformer_attention(*inputs.values(), inputs["sums"], padding_mask=padded)
        else:
            out = nystrom_attention(*inputs.values(), num_landmarks=recorded["num_landmarks"])
        gradients = torch.autograd.grad(out, list(inputs.values()), recorded["grad_output"])
        yield name, "output", worst(out, recorded["output"])
        yield name, "gradients", max(map(worst, gradients, [recorded[f"grad_{key}"] for key in inputs]))


def reformer() -> Iterator[Row]:
    """Reformer's attention without projections: reformer-pytorch's divides the scores by sqrt(D)."""
    for name, divided in (("reformer", True), ("reformer_lsh", False)):
        recorded = golden(f"{name}.pt")
        q, v = (recorded[key].clone().requires_grad_() for key in "qv")
        queries = q / q.shape[-1] ** 0.5 if divided else q
        out = reformer_attention(queries, v, recorded["directions"], chunk_size=recorded["chunk_size"])
        gradients = torch.autograd.grad(out, (q, v), recorded["grad_output"])
        yield name, "output", worst(out, recorded["output"])
        yield name, "gradients", max(map(worst, gradients, [recorded[f"grad_{key}"] for key in "qv"]))


def external() -> Iterator[Row]:
    """External attention, without the authors' biases of queries and slots' keys, which the softmax cancels."""
    recorded = golden("external.pt")
    module = ExternalAttention(**{key: recorded[key] for key in ("embed_dim", "num_heads", "num_slots")})
    theirs = recorded["state_dict"]
    own = {
        "q_proj.weight": theirs["trans_dims.weight"],
        "keys": theirs["linear_0.weight"],
        "values": theirs["linear_1.weight"].t() + theirs["linear_1.bias"],
        "out_proj.weight": theirs["proj.weight"],
        "out_proj.bias": theirs["proj.bias"],
    }
    module.load_state_dict(own)
    x = recorded["x"].clone().requires_grad_()
    out = module(x.transpose(0, 1)).transpose(0, 1)
    (gradient,) = torch.autograd.grad(out, x, recorded["grad_output"])
    yield "external", "output", worst(out, recorded["output"])
    yield "external", "gradient of the input", worst(gradient, recorded["grad_x"])


def flash() -> Iterator[Row]:
    """The gated attention unit; causal, its far queries times the number of earlier chunks, as published."""
    file = golden("flash.pt")
    for name, kind in (("self", GatedAttention), ("causal", GatedCausalAttention)):
        recorded, module = file[name], kind(**file["settings"])
        module.load_state_dict(recorded["parameters"])
        x = recorded["x"].clone().requires_grad_()
        (q, k, far_q, far_k, v), gate = module.parts(x.transpose(0, 1))
        if module.causal:
            far_q = far_q * (torch.arange(x.shape[1]) // module.chunk_size)[:, None]
        y = mixed_chunk_attention(
            *(q, k, far_q, far_k, v, module.distance_bias), chunk_size=module.chunk_size, causal=module.causal
        )
        out = module.output(y, gate).transpose(0, 1)
        (gradient,) = torch.autograd.grad(out, x, recorded["grad_output"])
        yield f"flash, {name}", "output", worst(out, recorded["output"])
        yield f"flash, {name}", "gradient of the input", worst(gradient, recorded["grad_x"])


def apollo() -> Iterator[Row]:
    """Parameters after each of thirty steps, relative to the largest element of their tensor."""
    for run in golden("apollo.pt"):
        params = [torch.nn.Parameter(value.clone()) for value in run["init"]]
        optimizer = Apollo(params, **run["kwargs"])
        error = 0.0
        for gradients, expected in zip(run["grads"], run["trajectory"], strict=True):
            for param, gradient in zip(params, gradients, strict=True):
                param.grad = gradient.clone()
            optimizer.step()
            error = max(error, *(worst(p, e) / e.abs().max().item() for p, e in zip(params, expected, strict=True)))
        options = ", ".join(f"{key} {value}" for key, value in run["kwargs"].items())
        yield "apollo", f"30 steps, {options} (relative)", error


def rows() -> Iterator[Row]:
    for name in ("causal_tied", "causal_untied"):
        yield from causal(name)
    for name in ("luna_tied", "luna_untied_prenorm_fixed", "luna_learned_pos_lnemb"):
        yield from whole_model(name)
    yield from since_2023()
    yield from readers()
    yield from fastformer()
    for name in KERNEL_PROJECTIONS:
        yield from kernel(name)
    yield from slots()
    yield from reformer()
    yield from external()
    yield from flash()
    yield from apollo()


@command
def main(arguments: Sequence[str] | None = None) -> None:
    Parser(__doc__).parse_args(arguments)
    print("| recorded | what | largest error |\n| --- | --- | --- |")
    for name, what, error in rows():
        print(f"| {name} | {what} | {error:.1e} |")


if __name__ == "__main__":
    sys.exit(main())
