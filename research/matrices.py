"""Measure the attention matrices of encoders: rank, effective rank, entropy, and distance from the mean.

    python research/matrices.py --lengths 64 256 1024 --head-sizes 16 64
    python research/matrices.py --checkpoint checkpoint_best.pt --data data-bin --source "A man in an orange hat."

The first is of random weights and normal inputs, by name; the second of each layer of a trained encoder. All are means
over the heads. "scores" are those of softmax attention before the softmax: the rank of Q K^T is at most D.
"""

import logging
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

if __name__ == "__main__":
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it logs while it is imported

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fairseq_luna
from fairseq_luna.command_line import CommandError, Parser, command, positive
from fairseq_luna.models.mixed.chosen_attentions import available_in, build_chosen_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.modules import LunaAttention
from fairseq_luna.modules.multihead import split_heads

# The output of the others is not one weighted sum of the steps' values: Fastformer multiplies vectors, block attention
# joins two levels, external attention reads learned values, flash, retention, ssd and gated-delta have a gate for each
# channel, Luna has two matrices.
NAMES = [name for name, attention in available_in("encoder").items() if attention.traits.is_matrix]
CLASSES_WITHOUT: tuple[Any, ...] = (
    LunaAttention,
    *(attention.encoder for attention in available_in("encoder").values() if not attention.traits.is_matrix),
)
COLUMNS = {"rank": "rank", "effective_rank": "effective rank", "entropy": "entropy / log N"}
COLUMNS["distance"] = "distance from the mean"


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--names", nargs="+", choices=["scores", *NAMES], default=["scores", *NAMES], metavar="NAME")
    parser.add_argument("--lengths", type=positive, nargs="+", default=[64, 256, 1024], metavar="N")
    parser.add_argument("--head-sizes", type=positive, nargs="+", default=[16, 64], metavar="D")
    parser.add_argument("--heads", type=positive, default=4)
    parser.add_argument("--checkpoint", help="a trained encoder in place of random weights; needs --source")
    parser.add_argument("--data", metavar="FOLDER", help="data-bin with the dictionaries; default: the training's")
    parser.add_argument("--sentencepiece-model", metavar="MODEL", help="default: that beside the data")
    parser.add_argument("--source", nargs="+", default=[], metavar="SENTENCE", help="what the checkpoint reads")
    args = parser.parse_args(arguments)
    if bool(args.checkpoint) != bool(args.source):
        raise CommandError("--checkpoint and --source: give both or none")
    print(f"| N | D | attention | {' | '.join(COLUMNS.values())} |\n|{' --- |' * (3 + len(COLUMNS))}")
    for length, size, name, found in trained(args) if args.checkpoint else random(args):
        numbers = " | ".join(f"{found[key]:.4g}" if key in found else "" for key in COLUMNS)
        print(f"| {length} | {size} | {name} | {numbers} |", flush=True)


def random(args: Namespace) -> Iterator[tuple[int, int, str, dict[str, float]]]:
    """Length, head size, name and measures, for each of them."""
    for size in args.head_sizes:
        for length in args.lengths:
            torch.manual_seed(length)
            x = torch.randn(length, 1, args.heads * size, dtype=torch.float64)
            for name in args.names:
                module = encoder_attention("softmax" if name == "scores" else name, args.heads, size, length)
                if name == "scores":
                    q, k = (split_heads(projection(x), args.heads)[0] for projection in (module.q_proj, module.k_proj))
                    found = measures((q @ k.mT).detach())
                    yield length, size, name, {key: found[key] for key in ("rank", "effective_rank")}
                else:
                    yield length, size, name, measures(attention_matrices(module, x))


def encoder_attention(name: str, heads: int, size: int, longest: int) -> Any:
    fields = {"encoder_embed_dim": heads * size, "encoder_attention_heads": heads, "max_source_positions": longest}
    torch.manual_seed(0)
    return (
        build_chosen_attention(mixed_config(Namespace(encoder_self_attention=name, **fields)), "encoder")
        .double()
        .eval()
    )


def trained(args: Namespace) -> Iterator[tuple[int, int, str, dict[str, float]]]:
    """The same for each sentence and layer of the checkpoint's encoder."""
    translator = fairseq_luna.load(args.checkpoint, data=args.data, pieces=args.sentencepiece_model)
    encoder = translator.models[0].encoder.double()
    for sentence in args.source:
        for layer, (module, x) in enumerate(inputs_of_layers(encoder, translator.encode(sentence)[None])):
            if isinstance(module, CLASSES_WITHOUT):
                raise CommandError(f"--checkpoint {args.checkpoint}: {type(module).__name__} has no attention matrix")
            size = x.shape[2] // module.num_heads
            yield len(x), size, f"layer {layer}", measures(attention_matrices(module, x))


@torch.no_grad()
def inputs_of_layers(encoder: Any, tokens: Tensor) -> list[tuple[Any, Tensor]]:
    """The self-attention of each layer of ``encoder`` with its input ``(N, 1, C)`` for ``tokens (1, N)``."""
    attentions = [layer.self_attn for layer in encoder.layers]
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple, kwargs: dict) -> None:
        seen.append(args[0] if args else kwargs["query"])

    with ExitStack() as hooks:
        for attention in attentions:
            hooks.callback(attention.register_forward_pre_hook(keep, with_kwargs=True).remove)
        encoder(tokens, torch.tensor([tokens.shape[1]]))
    return list(zip(attentions, seen, strict=True))


@torch.no_grad()
def attention_matrices(module: Any, x: Tensor) -> Tensor:
    """The matrix A of each head, whose output is ``A v``, for one sentence ``x (N, 1, C)`` without padding.

    It is what the module makes of values that are the columns of the identity: ``(H, N, N)``. The rows of linformer,
    RFA and Nystrom attention do not sum to 1 and may have negative numbers; Nystrom's include its convolution.
    """
    columns = torch.eye(len(x), dtype=x.dtype).split(x.shape[2] // module.num_heads, dim=1)
    batches = (columns[first : first + 8] for first in range(0, len(columns), 8))  # not too large
    return torch.cat([_outputs(module, x, batch) for batch in batches], dim=-1)


def _outputs(module: Any, x: Tensor, columns: Sequence[Tensor]) -> Tensor:
    """What the heads make of values: ``(H, N, number of columns)`` for ``columns`` of ``(N, up to D)`` each."""
    size = x.shape[2] // module.num_heads
    padded = [F.pad(part, (0, size - part.shape[1])).repeat(1, module.num_heads) for part in columns]
    values, seen = torch.stack(padded, dim=1), []
    with ExitStack() as hooks:
        for name, projection in module.named_children():
            if name.endswith("v_proj"):  # Longformer has two; the second of a part of the steps
                hook = projection.register_forward_hook(lambda _, args, output: values[: len(output)])
                hooks.callback(hook.remove)
        hook = module.out_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        hooks.callback(hook.remove)
        module(x.expand(-1, len(columns), -1))
    heads = split_heads(seen[0], module.num_heads)  # (number of parts, H, N, D)
    return torch.cat([of_part[..., : part.shape[1]] for of_part, part in zip(heads, columns, strict=True)], dim=-1)


def measures(matrices: Tensor) -> dict[str, float]:
    """The measures of ``matrices (H, N, N)``, averaged over the heads.

    - rank: singular values above N times the precision of fp32 times the largest.
    - effective rank: exp of the entropy of the singular values divided by their sum (Roy and Vetterli, 2007).
    - entropy of a row, divided by that of the mean, log N; of the weights' magnitudes if some are negative.
    - distance: the Frobenius norm of A - 11^T / N. The mean has 0, the identity sqrt(N - 1).
    """
    steps = matrices.shape[-1]
    values = torch.linalg.svdvals(matrices)
    shares = matrices.abs() / matrices.abs().sum(-1, keepdim=True)
    found = {
        "rank": (values > steps * torch.finfo(torch.float32).eps * values[:, :1]).sum(-1).to(values),
        "effective_rank": torch.special.entr(values / values.sum(-1, keepdim=True)).sum(-1).exp(),
        "entropy": torch.special.entr(shares).sum(-1).mean(-1) / math.log(max(steps, 2)),
        "distance": (matrices - 1 / steps).norm(dim=(1, 2)),
    }
    return {name: value.mean().item() for name, value in found.items()}


if __name__ == "__main__":
    sys.exit(main())
