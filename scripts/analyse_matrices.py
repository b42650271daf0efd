"""Measure the attention matrices of encoders: rank, effective rank, entropy, and distance from the mean.

    python scripts/analyse_matrices.py --lengths 64 256 1024 --head-sizes 16 64 --png matrices.png
    python scripts/analyse_matrices.py --checkpoint checkpoint_best.pt --data data-bin \\
        --sentencepiece-model joint.model --source "A man in an orange hat."

The first is of random weights and normal inputs, by name; the second of each layer of a trained encoder. All are means
over the heads. "scores" are those of softmax attention before the softmax: the rank of Q K^T is at most D.
"""

import logging
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from shared import picture

Row = dict[str, Any]

# Of the flags for random weights; no names: all that have a matrix.
DEFAULTS = {"names": [], "lengths": [64, 256, 1024], "head_sizes": [16, 64], "heads": 4}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--names", nargs="+", default=SUPPRESS, metavar="NAME", help="default: all that have a matrix")
    parser.add_argument(
        "--lengths", type=positive, nargs="+", default=SUPPRESS, metavar="N", help="default: 64 256 1024"
    )
    parser.add_argument("--head-sizes", type=positive, nargs="+", default=SUPPRESS, metavar="D", help="default: 16 64")
    parser.add_argument("--heads", type=positive, default=SUPPRESS, help="default: 4")
    parser.add_argument("--checkpoint", type=Path, help="saved by fairseq-train")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="as for plot_attention.py")
    parser.add_argument("--sentencepiece-model", type=Path, metavar="MODEL", help="splits the sentences into pieces")
    parser.add_argument("--source", nargs="+", default=[], metavar="SENTENCE", help="what the checkpoint reads")
    parser.add_argument("--png", type=Path, metavar="FILE", help="also draw the measures against the length")
    args = parser.parse_args(arguments)
    if args.png:
        picture.check_output(args.png, force=True, flag="--png")
    if bool(args.checkpoint) != bool(args.source):
        raise CommandError("--checkpoint and --source: give both or none")
    for name in DEFAULTS if args.checkpoint else ("data", "sentencepiece_model"):
        if vars(args).get(name):
            whose = "random weights; leave it or --checkpoint out" if args.checkpoint else "--checkpoint; give that too"
            raise CommandError(f"--{name.replace('_', '-')}: is for {whose}")

    # fairseq takes seconds to import; wrong flags are refused before that.
    from matrices.measures import COLUMNS

    print(f"| N | D | attention | {' | '.join(COLUMNS.values())} |\n|{' --- |' * (3 + len(COLUMNS))}")
    rows = []
    for row in trained(args) if args.checkpoint else random(Namespace(**DEFAULTS | vars(args))):
        numbers = " | ".join(f"{row[name]:.4g}" if name in row else "" for name in COLUMNS)
        print(f"| {row['length']} | {row['head_size']} | {row['system']} | {numbers} |", flush=True)
        rows.append(row)
    if args.png:
        draw(args.png, COLUMNS, rows)


def random(args: Namespace) -> Iterator[Row]:
    """A row for each head size, length and name."""
    import torch

    from fairseq_luna.modules.heads import split_heads
    from matrices.extraction import NAMES, attention_matrices
    from matrices.measures import measures
    from shared.by_name import encoder_attention

    chosen = args.names or ["scores", *NAMES]
    unknown = [name for name in chosen if name not in ("scores", *NAMES)]
    if unknown:
        raise CommandError(f"--names {unknown[0]}: has no attention matrix; choose among scores, {', '.join(NAMES)}")
    for size in args.head_sizes:
        for length in args.lengths:
            generator = torch.Generator().manual_seed(length)
            x = torch.randn(length, 1, args.heads * size, generator=generator, dtype=torch.float64)
            for name in chosen:
                softmax = "softmax" if name == "scores" else name
                module: Any = encoder_attention(softmax, embed_dim=x.shape[2], heads=args.heads, longest=length)
                module.double().eval()
                row = {"system": name, "length": length, "head_size": size}
                if name == "scores":
                    q, k = (split_heads(projection(x), args.heads)[0] for projection in (module.q_proj, module.k_proj))
                    found = measures((q @ k.mT).detach())
                    yield row | {name: found[name] for name in ("rank", "effective_rank")}
                else:
                    yield row | measures(attention_matrices(module, x))


def trained(args: Namespace) -> Iterator[Row]:
    """A row for each sentence and layer of the checkpoint's encoder."""
    from matrices.extraction import attention_matrices, has_a_matrix
    from matrices.layers import inputs_of_layers
    from matrices.measures import measures
    from plots import reading

    model, task = reading.load(args.checkpoint, args.data)
    model.double()
    for sentence in args.source:
        _, tokens = reading.source_sentence(model, task, sentence, args.sentencepiece_model)
        for layer, (module, x) in enumerate(inputs_of_layers(model.encoder, tokens)):
            if not has_a_matrix(module):
                raise CommandError(f"--checkpoint {args.checkpoint}: {type(module).__name__} has no attention matrix")
            row = {"system": f"layer {layer}", "length": len(x), "head_size": x.shape[2] // module.num_heads}
            yield row | measures(attention_matrices(module, x))


def draw(target: Path, columns: Mapping[str, str], rows: list[Row]) -> None:
    """A panel for each measure with a curve for each attention; of those with the last head size."""
    pyplot, size = picture.pyplot(), rows[-1]["head_size"]
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8), layout="constrained")
    shown = [row for row in rows if row["head_size"] == size]
    systems = list(dict.fromkeys(row["system"] for row in shown))
    for (name, label), axis in zip(columns.items(), axes.flat, strict=True):
        for number, system in enumerate(systems):
            points = [(row["length"], row[name]) for row in shown if row["system"] == system and name in row]
            label_once = system if axis is axes.flat[0] else None
            axis.plot(*zip(*points or [([], [])], strict=True), label=label_once, **picture.style(number))
        axis.set(xscale="log", yscale="linear" if name == "entropy" else "log", xlabel="N", ylabel=label)
        lengths = sorted({row["length"] for row in shown})
        axis.set_xticks(lengths, [str(length) for length in lengths])
        axis.minorticks_off()
        axis.grid(True, alpha=0.3)
    figure.suptitle(f"Attention matrices, D = {size}")
    figure.legend(loc="outside right upper")
    picture.save(figure, target)


if __name__ == "__main__":
    for _name in ("fairseq", "fairseq_luna"):
        logging.getLogger(_name).setLevel(logging.WARNING)
    sys.exit(main())
