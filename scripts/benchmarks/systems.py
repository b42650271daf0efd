"""The table of systems: encoder-decoders of equal size, built from flags as by fairseq-train, and batches for them."""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_luna.command_line import positive
from fairseq_luna.commands.converting.parameters import placeholder_dictionary
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS
from shared.by_name import flags_for

from .flags import DTYPES

SYSTEMS = {
    "transformer": ("--arch=transformer",),
    "luna": ("--arch=luna_base",),
    "luna-untied": ("--arch=luna_base_untied",),
    "fastformer": ("--arch=fastformer_base",),
    "block": ("--arch=block_base",),
}
# Measured only if --systems names them.
VARIANTS = {
    "luna-softmax-source": ("--arch=luna_base", "--luna-source-attention=softmax"),
    "transformer-chunked-loss": ("--arch=transformer", "--criterion=label_smoothed_cross_entropy_chunked"),
    "luna-chunked-loss": ("--arch=luna_base", "--criterion=label_smoothed_cross_entropy_chunked"),
    "luna-triton": ("--arch=luna_base", "--luna-kernel=triton"),
    "luna-untied-triton": ("--arch=luna_base_untied", "--luna-kernel=triton"),
    "luna-triton-chunked-loss": (
        *("--arch=luna_base", "--luna-kernel=triton", "--criterion=label_smoothed_cross_entropy_chunked"),
    ),
    "softmax-chunked-loss": ("--arch=mixed_base", "--criterion=label_smoothed_cross_entropy_chunked"),
    "luna-segment-bias": ("--arch=luna_base_untied", "--attention-kernel-size=5", "--luna-segment-bias=4"),
    # The variants of README's tables.
    "luna-packed-convolution": ("--arch=luna_base_untied", "--attention-kernel-size=5"),
    "luna-convolution": ("--arch=luna_base_untied", "--luna-source-attention=softmax", "--attention-kernel-size=5"),
    "fastformer-convolution": ("--arch=fastformer_base", "--attention-kernel-size=5"),
    "block-convolution": ("--arch=block_base", "--attention-kernel-size=5"),
    "softmax-convolution": ("--arch=mixed_base", "--attention-kernel-size=5"),
    **{name: ("--arch=mixed_base", *flags_for(name)) for name in ATTENTIONS if name not in SYSTEMS},
}
# Ways to run a system, by the end of its name: recorded training steps and generation, compiled layers, and both.
RECORDED = "-recorded"
WAYS = {
    RECORDED: ("--record-training", "--search=recorded"),
    "-compiled": ("--compile-layers",),
    f"-compiled{RECORDED}": ("--compile-layers", "--record-training", "--search=recorded"),
}
VARIANTS |= {
    f"{name}{way}": (*(SYSTEMS | VARIANTS)[name], *flags)
    for name in ("softmax", "luna", "fastformer", "block", "linear", "ssru", "retention")
    for way, flags in WAYS.items()
}
# fairseq's transformer has no other search, and torch's compiler cannot read Triton kernels.
VARIANTS[f"transformer{RECORDED}"] = (*SYSTEMS["transformer"], "--record-training")
VARIANTS[f"luna-triton{RECORDED}"] = (*VARIANTS["luna-triton"], *WAYS[RECORDED])
# Indices in every dictionary of fairseq's.
PAD, EOS, FIRST_WORD = 1, 2, 4


class Sizes(NamedTuple):
    """Sizes shared by all systems; the slots are Luna's."""

    layers: int = 3
    embed_dim: int = 256
    ffn_dim: int = 1024
    heads: int = 4
    slots: int = 16
    vocabulary: int = 8000


NAMED_SIZES = {
    "small": Sizes(),
    # The sizes of luna_tiny, fastformer_tiny and block_tiny, with the demo's vocabulary.
    "tiny": Sizes(layers=4, embed_dim=128, ffn_dim=256, vocabulary=1600),
    "base": Sizes(layers=6, embed_dim=512, ffn_dim=2048, heads=8, slots=32, vocabulary=32_000),
}


def add_sizes(parser: ArgumentParser, default: str = "small") -> None:
    """Flags for the sizes; those not given are absent from ``args``, see :func:`sizes_of`."""
    parser.add_argument("--size", choices=NAMED_SIZES, default=default, help=f"of the following (default: {default})")
    for name in Sizes._fields:
        values = ", ".join(f"{size} {getattr(sizes, name)}" for size, sizes in NAMED_SIZES.items())
        parser.add_argument(f"--{name.replace('_', '-')}", type=positive, default=argparse.SUPPRESS, help=values)


def sizes_of(args: Namespace) -> Sizes:
    """Those that --size names, with the sizes that the command line sets."""
    chosen = NAMED_SIZES[args.size]._asdict()
    return Sizes(**{name: getattr(args, name, value) for name, value in chosen.items()})


def build(args: Namespace, system: str, longest: int, more: Sequence[str] = ()) -> tuple[Any, TranslationTask, Any]:
    """``system`` on its device for sentences of up to ``longest`` tokens, its task and its config.

    ``more`` is added to its flags.

    Raises:
        UsageError: a model refuses a size.
    """
    torch.manual_seed(1)
    sizes, sides, positions = sizes_of(args), ("encoder", "decoder"), max(1024, longest + 1)
    flags = {
        **{f"{side}-layers": sizes.layers for side in sides},
        **{f"{side}-embed-dim": sizes.embed_dim for side in sides},
        **{f"{side}-ffn-embed-dim": sizes.ffn_dim for side in sides},
        **{f"{side}-attention-heads": sizes.heads for side in sides},
        **({"projection-length": sizes.slots} if system.startswith("luna") else {}),
        **{"max-source-positions": positions, "max-target-positions": positions, "dropout": 0.1},
        **{"criterion": "label_smoothed_cross_entropy", "label-smoothing": 0.1},
    }
    given = ["--share-all-embeddings", *(f"--{key}={flags[key]}" for key in flags), *(SYSTEMS | VARIANTS)[system]]
    parser = options.get_training_parser(default_task="translation")
    parsed = options.parse_args_and_arch(parser, input_args=["no-data", *given, *more])
    cfg, words = convert_namespace_to_omegaconf(parsed), placeholder_dictionary(sizes.vocabulary)
    task = TranslationTask(cfg.task, words, words)
    return task.build_model(cfg.model).to(device=args.device, dtype=DTYPES[args.dtype]), task, cfg


def sentences(args: Namespace, count: int, length: int) -> Tensor:
    """Random sentences of one length that end in EOS: ``(count, length)``."""
    tokens = torch.randint(FIRST_WORD, sizes_of(args).vocabulary, (count, length), device=args.device)
    tokens[:, -1] = EOS
    return tokens


def batch(args: Namespace, count: int, source_length: int, length: int) -> dict[str, Any]:
    """A batch for a fairseq criterion; all sources have one length, all targets another."""
    target = sentences(args, count, length)
    net_input = {
        "src_tokens": sentences(args, count, source_length),
        "src_lengths": torch.full((count,), source_length, device=args.device),
        "prev_output_tokens": target.roll(1, dims=1),
    }
    return {"net_input": net_input, "target": target, "ntokens": target.numel(), "nsentences": count}
