"""Encoder-decoders of equal size, built from flags as by fairseq-train, and batches for them."""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_luna.commands.command_line import positive
from fairseq_luna.commands.dictionaries import joint_dictionary
from fairseq_luna.models.mixed.attentions import ATTENTIONS
from shared.by_name import flags_for

from .arguments import DTYPES

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
    "luna-segment-bias": ("--arch=luna_base_untied", "--luna-kernel-size=5", "--luna-segment-bias=4"),
    # The variants of README's tables.
    "luna-packed-convolution": ("--arch=luna_base_untied", "--luna-kernel-size=5"),
    "luna-convolution": ("--arch=luna_base_untied", "--luna-source-attention=softmax", "--luna-kernel-size=5"),
    "fastformer-convolution": ("--arch=fastformer_base", "--fastformer-kernel-size=5"),
    "block-convolution": ("--arch=block_base", "--block-kernel-size=5"),
    **{name: ("--arch=mixed_base", *flags_for(name)) for name in ATTENTIONS if name not in SYSTEMS},
}
# Indices in every dictionary of fairseq's.
EOS, FIRST_WORD = 2, 4


class Sizes(NamedTuple):
    """Sizes shared by all systems; the slots are Luna's."""

    layers: int = 3
    embed_dim: int = 256
    ffn_dim: int = 1024
    heads: int = 4
    slots: int = 16
    vocabulary: int = 8000


SMALL = Sizes()
# The sizes of luna_tiny, fastformer_tiny and block_tiny, with the demo's vocabulary.
TINY = Sizes(layers=4, embed_dim=128, ffn_dim=256, vocabulary=1600)
BASE = Sizes(layers=6, embed_dim=512, ffn_dim=2048, heads=8, slots=32, vocabulary=32_000)
NAMED_SIZES = {"small": SMALL, "tiny": TINY, "base": BASE}


class Built(NamedTuple):
    """A model on its device, its task and its config."""

    model: Any
    task: TranslationTask
    cfg: Any


def add_size_arguments(parser: ArgumentParser) -> None:
    """Flags for the sizes; those not given are absent from ``args``, see :func:`sizes_of`."""
    described = {
        "layers": "of the encoder, and of the decoder",
        "embed_dim": "channels",
        "ffn_dim": "of the feed-forward network",
        "heads": "of every attention",
        "slots": "L, Luna's packed slots",
        "vocabulary": "words of the joint dictionary",
    }
    parser.add_argument("--size", choices=NAMED_SIZES, help="all of the following (default: as the table's title says)")
    for name, help_text in described.items():
        values = ", ".join(f"{size} {getattr(sizes, name)}" for size, sizes in NAMED_SIZES.items())
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=positive, default=argparse.SUPPRESS, help=f"{help_text}: {values}"
        )


def sizes_of(args: Namespace, default: Sizes = SMALL) -> Sizes:
    """``default`` or those that --size names, with the sizes that the command line sets."""
    chosen = NAMED_SIZES[args.size] if args.size else default
    return Sizes(**{name: getattr(args, name, value) for name, value in chosen._asdict().items()})


def flags(system: str, sizes: Sizes, longest: int) -> list[str]:
    """Flags of fairseq-train for ``system`` and sentences of up to ``longest`` tokens."""
    sides = [
        f"--{side}-{name}={value}"
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", sizes.layers),
            ("embed-dim", sizes.embed_dim),
            ("ffn-embed-dim", sizes.ffn_dim),
            ("attention-heads", sizes.heads),
        )
    ]
    positions = max(1024, longest + 1)
    own = [f"--projection-length={sizes.slots}"] if system.startswith("luna") else []
    return [
        *("no-data", "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1"),
        *(*(SYSTEMS | VARIANTS)[system], *sides, *own, "--share-all-embeddings", "--dropout=0.1"),
        *(f"--max-source-positions={positions}", f"--max-target-positions={positions}"),
    ]


def build(args: Namespace, system: str, sizes: Sizes, longest: int, more: Sequence[str] = ()) -> Built:
    """Build ``system`` for the device and dtype of ``args``; ``more`` is added to its flags.

    Raises:
        UsageError: a model refuses a size.
    """
    torch.manual_seed(1)
    parser = options.get_training_parser(default_task="translation")
    parsed = options.parse_args_and_arch(parser, input_args=[*flags(system, sizes, longest), *more])
    cfg = convert_namespace_to_omegaconf(parsed)
    words = joint_dictionary(sizes.vocabulary)
    task = TranslationTask(cfg.task, words, words)
    model = task.build_model(cfg.model).to(device=args.device, dtype=DTYPES[args.dtype])
    return Built(model, task, cfg)


def source(sentences: int, length: int, sizes: Sizes, device: str) -> Tensor:
    """Random sentences of one length that end in EOS: ``(sentences, length)``."""
    tokens = torch.randint(FIRST_WORD, sizes.vocabulary, (sentences, length), device=device)
    tokens[:, -1] = EOS
    return tokens


def sample(sentences: int, source_length: int, length: int, sizes: Sizes, device: str) -> dict[str, Any]:
    """A batch for a fairseq criterion; all sources have one length, all targets another."""
    target = source(sentences, length, sizes, device)
    lengths = torch.full((sentences,), source_length, device=device)
    net_input = {
        "src_tokens": source(sentences, source_length, sizes, device),
        "src_lengths": lengths,
        "prev_output_tokens": target.roll(1, dims=1),
    }
    return {
        "id": torch.arange(sentences),
        "nsentences": sentences,
        "ntokens": target.numel(),
        "net_input": net_input,
        "target": target,
    }
