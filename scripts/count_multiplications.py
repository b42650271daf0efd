"""Count the multiplications of one attention head, for full, block, Luna and Fastformer attention.

    python scripts/count_multiplications.py [--png counts.png]
    python scripts/count_multiplications.py --layers [--png layers.png]      whole self-attentions of encoders, by name

torch's flop counter counts while the code runs; the formulas are printed beside. Projections are left out because all
attentions have them. A score is one input of a softmax: it costs D multiplications to compute and D to use. The counter
counts only matrix products, not Fastformer's 2 n D multiplications of elementwise products.
"""

import bisect
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it logs while it is imported

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_luna.commands.command_line import Parser, command
from fairseq_luna.models.mixed.attentions import ATTENTIONS as BY_NAME
from fairseq_luna.ops.block_attention import block_attention
from fairseq_luna.ops.block_partition import cut_by_number
from fairseq_luna.ops.fastformer_attention import FastformerMaps, fastformer_attention
from fairseq_luna.ops.softmax_attention import softmax_attention
from fairseq_luna.usage_error import UsageError
from shared import picture
from shared.by_name import encoder_attention

SIZE, SLOTS = 64, 16
EMBED_DIM = 512  # of --layers
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]


class Attention(NamedTuple):
    run: Callable[[Tensor], object]
    scores: Callable[[int], float]  # the formula


def full(x: Tensor) -> Tensor:
    return softmax_attention(x, x, x)[0]


def block(x: Tensor) -> Tensor:
    nothing_padded = torch.zeros(1, x.shape[2], dtype=torch.bool)
    return block_attention(x, x, x, lambda summary: (summary, summary, summary), cut_by_number(nothing_padded, 0))[0]


def luna(x: Tensor) -> Tensor:
    packed, _ = softmax_attention(x[:, :, :SLOTS], x, x)
    return softmax_attention(x, packed, packed)[0]


def fastformer(x: Tensor) -> Tensor:
    weight = torch.randn(SIZE, 1)
    maps = FastformerMaps(
        query_score=lambda q: (q @ weight)[..., 0],
        key_score=lambda p: (p @ weight)[..., 0],
        combine_key=torch.mul,
        combine_value=torch.mul,
    )
    return fastformer_attention(x, x, x, maps)[0]


def optimum(n: int) -> int:
    """The number of blocks m that minimises n^2 / m + m^2."""
    return round((n * n / 2) ** (1 / 3))


ATTENTIONS = {
    "full": Attention(full, lambda n: n * n),
    "block": Attention(block, lambda n: n * n / optimum(n) + optimum(n) ** 2),
    "luna": Attention(luna, lambda n: 2 * n * SLOTS),
    "fastformer": Attention(fastformer, lambda n: 2 * n),
}


def counted(run: Callable[[Tensor], object], x: Tensor) -> int:
    """Multiplications of ``run(x)``."""
    # The counter does not see the products of the other kernels.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run(x)
    return counter.get_total_flops() // 2


def counted_layer(name: str, n: int) -> int:
    """Multiplications of the self-attention ``name`` of an encoder with its projections, for ``n`` steps."""
    module = encoder_attention(name, embed_dim=EMBED_DIM, heads=EMBED_DIM // SIZE, longest=n)
    module = module.to("meta").eval().requires_grad_(False)
    return counted(module, torch.empty(n, 1, EMBED_DIM, device="meta"))


def first_length_below_softmax(name: str) -> int | None:
    """The shortest multiple of 16 with fewer multiplications than softmax, up to half the longest, or None."""

    def is_below(sixteenths: int) -> bool:
        return counted_layer(name, 16 * sixteenths) < counted_layer("softmax", 16 * sixteenths)

    candidates = range(1, LENGTHS[-1] // 32)
    found = bisect.bisect_left(candidates, True, key=is_below)
    return 16 * candidates[found] if found < len(candidates) else None


def share_of_feed_forward(name: str, n: int) -> float:
    try:
        return counted_layer(name, n) / (8 * n * EMBED_DIM**2)
    except UsageError:  # learned scores of so many pairs are refused
        return math.nan


def print_layers() -> dict[str, list[float]]:
    """Returns the shares by name, at every second of LENGTHS."""
    d, r, lengths = EMBED_DIM, 4 * SIZE, LENGTHS[::2]
    print(
        "Multiplications of an encoder's self-attention with its projections, divided by the 8 n d^2 of a feed-\n"
        f"forward network; d = {d}, {d // SIZE} heads, D = {SIZE}.\n\n"
        "Softmax attention: 3 n d^2 + 2 n^2 d, and n d^2 for the output. Without the output it equals the\n"
        f"feed-forward network at n = 2.5 d = {5 * d // 2}, with it at n = 2 d = {2 * d}. With r features of a head\n"
        "2 n^2 d becomes 2 n r d: fewer above n = r. Random features cost as much again: fewer above n = 2 r.\n"
        f"With r = 4 D these are {r} and {2 * r}.\n"
    )
    print(f"| attention | {' | '.join(f'n = {n}' for n in lengths)} | below softmax from n = |")
    print(f"| --- |{' --- |' * (len(lengths) + 1)}")
    rows = {}
    for name, attention in BY_NAME.items():
        if "encoder" in attention.factories():
            rows[name] = [share_of_feed_forward(name, n) for n in lengths]
            shares = " | ".join("refused" if math.isnan(share) else f"{share:.2f}" for share in rows[name])
            print(f"| {name} | {shares} | {first_length_below_softmax(name) or ''} |", flush=True)
    return rows


def draw(rows: Mapping[str, Sequence[float]], lengths: Sequence[int], label: str, target: Path) -> None:
    figure, axes = picture.pyplot().subplots(figsize=(9, 5), layout="constrained")
    for number, (name, values) in enumerate(rows.items()):
        axes.plot(lengths, values, label=name, **picture.style(number, name))
    axes.set(xscale="log", yscale="log", xlabel="length n", ylabel=label)
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    if max(map(max, rows.values())) < 100:  # powers of ten alone would be too few
        axes.set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    axes.grid(True, which="major", alpha=0.3)
    figure.legend(loc="outside right upper")
    picture.save(figure, target)


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--png", type=Path, help="also draw the curves into this file")
    parser.add_argument("--layers", action="store_true", help="count whole self-attentions of encoders, by name")
    args = parser.parse_args(arguments)
    if args.png:
        picture.check_output(args.png, force=True, flag="--png")
    if args.layers:
        shares = print_layers()
        if args.png:
            draw(shares, LENGTHS[::2], "multiplications / feed-forward network's", args.png)
        return

    print(f"One head, D = {SIZE}, L = {SLOTS}; block: the optimum number of blocks m = (n^2 / 2)^(1/3)\n")
    print("| n | m | attention | scores, formula | multiplications, formula | counted | counted / full |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows: dict[str, list[int]] = {name: [] for name in ATTENTIONS}
    for n in LENGTHS:
        for name, attention in ATTENTIONS.items():
            count = counted(attention.run, torch.randn(1, 1, n, SIZE))
            rows[name].append(count)
            scores = attention.scores(n)
            share = count / rows["full"][-1]
            print(
                f"| {n} | {optimum(n) if name == 'block' else ''} | {name} | {scores:,.0f} "
                f"| {2 * SIZE * scores:,.0f} | {count:,} | {share:.4f} |"
            )
    if args.png:
        draw(rows, LENGTHS, "multiplications of one head", args.png)


if __name__ == "__main__":
    sys.exit(main())
