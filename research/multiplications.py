"""Count multiplications: of one attention head for full, block, Luna and Fastformer attention, and of whole modules.

    python research/multiplications.py [--png counts.png]
    python research/multiplications.py --layers [--lengths N ...]      self-attentions of encoders, by name

torch's flop counter counts matrix products while the code runs, not Fastformer's 2 n D elementwise ones. Heads have no
projections. A score is one input of a softmax: it costs D multiplications to compute and D to use.
"""

import bisect
import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache

if __name__ == "__main__":
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it logs while it is imported

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_luna.command_line import Parser, command, positive
from fairseq_luna.models.mixed.chosen_attentions import available_in, build_chosen_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.ops.block_attention import block_attention
from fairseq_luna.ops.block_partition import cut_by_number
from fairseq_luna.ops.fastformer_attention import FastformerMaps, fastformer_attention
from fairseq_luna.ops.softmax_attention import softmax_attention
from fairseq_luna.usage_error import UsageError

SIZE, SLOTS, EMBED_DIM = 64, 16, 512
COLOURS = {"full": "#000000", "block": "#009E73", "luna": "#D55E00", "fastformer": "#0072B2"}  # as in all pictures
LABELS = {"full": "softmax", "block": "block attention", "luna": "Luna, 16 slots", "fastformer": "Fastformer"}
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]


def block(x: Tensor) -> Tensor:
    nothing_padded = torch.zeros(1, x.shape[2], dtype=torch.bool)
    return block_attention(x, x, x, lambda summary: (summary, summary, summary), cut_by_number(nothing_padded, 0))[0]


def luna(x: Tensor) -> Tensor:
    packed, _ = softmax_attention(x[:, :, :SLOTS], x, x)
    return softmax_attention(x, packed, packed)[0]


def fastformer(x: Tensor) -> Tensor:
    weight = torch.randn(SIZE, 1)
    scores = dict.fromkeys(("query_score", "key_score"), lambda q: (q @ weight)[..., 0])
    return fastformer_attention(x, x, x, FastformerMaps(**scores, combine_key=torch.mul, combine_value=torch.mul))[0]


def optimum(n: int) -> int:
    """The number of blocks m that minimises n^2 / m + m^2."""
    return round((n * n / 2) ** (1 / 3))


# What runs, and the number of its scores.
HEADS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], float]]] = {
    "full": (lambda x: softmax_attention(x, x, x)[0], lambda n: n * n),
    "block": (block, lambda n: n * n / optimum(n) + optimum(n) ** 2),
    "luna": (luna, lambda n: 2 * n * SLOTS),
    "fastformer": (fastformer, lambda n: 2 * n),
}


def counted(run: Callable[[Tensor], object], x: Tensor) -> int:
    """Multiplications of ``run(x)``."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # sees no others
        run(x)
    return counter.get_total_flops() // 2


def encoder_attention(name: str, longest: int) -> torch.nn.Module:
    fields: dict[str, object] = {
        "encoder_self_attention": name,
        "encoder_embed_dim": EMBED_DIM,
        "max_source_positions": longest,
    }
    fields["encoder_attention_heads"] = EMBED_DIM // SIZE
    return build_chosen_attention(mixed_config(Namespace(**fields)), "encoder").eval().requires_grad_(False)


@cache
def counted_layer(name: str, n: int) -> int:
    """Multiplications of the self-attention ``name`` of an encoder with its projections, for ``n`` steps."""
    return counted(encoder_attention(name, n).to("meta"), torch.empty(n, 1, EMBED_DIM, device="meta"))


def first_length_below_softmax(name: str) -> int | None:
    """The shortest multiple of 16 with fewer multiplications than softmax, up to half the longest, or None."""
    candidates = range(16, LENGTHS[-1] // 2, 16)
    found = bisect.bisect_left(candidates, True, key=lambda n: counted_layer(name, n) < counted_layer("softmax", n))
    return candidates[found] if found < len(candidates) else None


def share_of_feed_forward(name: str, n: int) -> str:
    try:
        return f"{counted_layer(name, n) / (8 * n * EMBED_DIM**2):.2f}"
    except UsageError:  # learned scores of so many pairs are refused
        return "refused"


def print_layers(names: Sequence[str], lengths: Sequence[int]) -> None:
    print(f"Multiplications with projections / 8 n d^2 of a feed-forward network; d = {EMBED_DIM}, D = {SIZE}\n")
    print(f"| attention | {' | '.join(f'n = {n}' for n in lengths)} | below softmax from n = |")
    print(f"|{' --- |' * (len(lengths) + 2)}")
    for name in names:
        shares = " | ".join(share_of_feed_forward(name, n) for n in lengths)
        print(f"| {name} | {shares} | {first_length_below_softmax(name) or ''} |", flush=True)


def print_heads(lengths: Sequence[int]) -> dict[str, list[int]]:
    """Returns the counts by name."""
    print(f"One head, D = {SIZE}, L = {SLOTS}; block: the optimum number of blocks m = (n^2 / 2)^(1/3)\n")
    print(f"| n | m | attention | scores | multiplications, formula | counted | counted / full |\n|{' --- |' * 7}")
    counts: dict[str, list[int]] = {name: [] for name in HEADS}
    for n in lengths:
        for name, (run, scores) in HEADS.items():
            counts[name].append(counted(run, torch.randn(1, 1, n, SIZE)))
            formula, count, of_full = scores(n), counts[name][-1], counts["full"][-1]
            print(
                f"| {n} | {optimum(n) if name == 'block' else ''} | {name} | {formula:,.0f} "
                f"| {2 * SIZE * formula:,.0f} | {count:,} | {count / of_full:.4f} |"
            )
    return counts


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--layers", action="store_true", help="count self-attentions of encoders, by name")
    parser.add_argument(
        "--names", nargs="+", choices=available_in("encoder"), default=list(available_in("encoder")), metavar="NAME"
    )
    parser.add_argument("--lengths", type=positive, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--png", help="also draw the curves of the heads into this file; needs matplotlib")
    args = parser.parse_args(arguments)
    if args.layers:
        return print_layers(args.names, args.lengths)
    counts = print_heads(args.lengths)
    if args.png:
        from matplotlib.figure import Figure

        axes = (figure := Figure(figsize=(7, 4.5), layout="constrained")).subplots()
        for name, values in counts.items():
            axes.plot(args.lengths, values, marker="o", color=COLOURS[name])
            axes.annotate(
                *(LABELS[name], (args.lengths[-1], values[-1]), (10, -13 if name == "luna" else -2)),
                textcoords="offset points",
                color=COLOURS[name],
                fontsize=12,
            )
        axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="multiplications of one head, forward")
        axes.set_xticks(args.lengths, [f"{n:,}" for n in args.lengths], minor=False)
        axes.grid(True, alpha=0.3)
        figure.savefig(args.png, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
