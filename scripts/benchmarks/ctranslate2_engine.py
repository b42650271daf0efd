"""CTranslate2, a C++ engine for transformers, where it is installed."""

import importlib.util
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from fairseq_luna.commands.dictionaries import joint_dictionary

from .command import Row
from .models import build, source
from .timing import Step

COMPUTE_TYPES = ("float32", "int8")
SYSTEMS = tuple(f"ctranslate2-{kind}" for kind in COMPUTE_TYPES) if importlib.util.find_spec("ctranslate2") else ()


class CTranslate2:
    """fairseq's transformer, converted for this engine, and its beam search.

    Args:
        system: one of ``SYSTEMS``.
        args: those of ``generate``.
    """

    def __init__(self, system: str, args: Namespace) -> None:
        import ctranslate2

        self.args = args
        self.history: list[Row] = []  # nothing is recorded besides the time
        words = joint_dictionary(args.sizes.vocabulary)
        tokens = source(args.sentences, args.source_length, args.sizes, "cpu")
        # The engine adds the EOS.
        self.sentences = [[words[index] for index in sentence] for sentence in tokens[:, :-1].tolist()]
        with tempfile.TemporaryDirectory() as folder:
            convert(Path(folder), args)
            self.translator = ctranslate2.Translator(
                f"{folder}/converted",
                device=args.device,
                compute_type=system.removeprefix("ctranslate2-"),
                intra_threads=args.threads,
            )

    def step(self, length: int) -> Step:
        """A step that generates ``length`` tokens for each hypothesis, the last one EOS."""

        def translate() -> None:
            translated = self.translator.translate_batch(
                self.sentences,
                beam_size=self.args.beam,
                num_hypotheses=self.args.beam,
                min_decoding_length=length - 1,
                max_decoding_length=length - 1,
            )
            if {len(tokens) for sentence in translated for tokens in sentence.hypotheses} != {length - 1}:
                raise RuntimeError(f"a hypothesis does not have {length} tokens")

        return translate


def convert(folder: Path, args: Namespace) -> None:
    """Write fairseq's transformer to ``folder/converted``."""
    from ctranslate2.converters.fairseq import FairseqConverter

    longest = max(*args.lengths, args.source_length) + 1
    model, task, cfg = build(Namespace(device="cpu", dtype="float32"), "transformer", args.sizes, longest)
    settings: dict[str, Any] = {**vars(cfg.model), "task": "translation", "source_lang": "en", "target_lang": "de"}
    for language in ("en", "de"):
        task.target_dictionary.save(f"{folder}/dict.{language}.txt")
    torch.save({"args": Namespace(**settings), "model": model.state_dict()}, folder / "model.pt")
    FairseqConverter(str(folder / "model.pt"), str(folder)).convert(f"{folder}/converted")
