"""Other engines for generation: CTranslate2, a C++ engine for transformers, and exported models in onnxruntime.

Both are systems of ``generate`` where they are installed.
"""

import importlib.util
import tempfile
from argparse import Namespace
from pathlib import Path

import torch

from fairseq_luna.commands.converting.parameters import placeholder_dictionary

from . import systems
from .systems import build, sentences, sizes_of
from .timing import Step


def check_length(lengths: set[int], length: int) -> None:
    if lengths != {length}:
        raise RuntimeError(f"a hypothesis does not have {length} tokens")


class CTranslate2:
    """fairseq's transformer, converted for this engine, and its beam search."""

    def __init__(self, system: str, args: Namespace) -> None:
        import ctranslate2
        from ctranslate2.converters.fairseq import FairseqConverter

        self.args = args
        words = placeholder_dictionary(sizes_of(args).vocabulary)
        # The engine adds the EOS.
        tokens = sentences(args, args.sentences, args.source_length)[:, :-1]
        self.sentences = [[words[index] for index in sentence] for sentence in tokens.tolist()]
        model, _, cfg = build(args, "transformer", max(*args.lengths, args.source_length) + 1)
        with tempfile.TemporaryDirectory() as folder:
            for language in ("en", "de"):
                words.save(f"{folder}/dict.{language}.txt")
            settings = {**vars(cfg.model), "task": "translation", "source_lang": "en", "target_lang": "de"}
            torch.save({"args": Namespace(**settings), "model": model.state_dict()}, f"{folder}/model.pt")
            FairseqConverter(f"{folder}/model.pt", folder).convert(f"{folder}/converted")
            kind = system.removeprefix("ctranslate2-")
            self.translator = ctranslate2.Translator(
                f"{folder}/converted", compute_type=kind, intra_threads=args.threads
            )

    def step(self, length: int) -> Step:
        """A step that generates ``length`` tokens for each hypothesis, the last one EOS."""
        limits = {"min_decoding_length": length - 1, "max_decoding_length": length - 1}
        beam = {"beam_size": self.args.beam, "num_hypotheses": self.args.beam}

        def translate() -> None:
            found = self.translator.translate_batch(self.sentences, **beam, **limits)
            check_length({len(tokens) for sentence in found for tokens in sentence.hypotheses}, length - 1)

        return translate


class Deployed:
    """A model exported for ``fairseq_luna.deployed``, and its beam search."""

    def __init__(self, system: str, args: Namespace) -> None:
        from fairseq_luna.deployed.folder import read_settings
        from fairseq_luna.deployed.graphs import Graphs
        from fairseq_luna.exporting.exported_folder import write_folder

        self.args = args
        name, _, kind = system.rpartition("-deployed")
        model, task, cfg = build(args, name, max(*args.lengths, args.source_length) + 1)
        model.eval()
        model.prepare_for_inference_(cfg)
        words = task.target_dictionary
        made = {"task": task, "models": [model], "src_dict": words, "tgt_dict": words, "bpe": None, "tokenizer": None}
        self.source = sentences(args, args.sentences, args.source_length).numpy()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_folder(Namespace(**made, max_positions=model.max_positions()), folder, int8=kind == "-int8")
            starts = read_settings(folder).starts
            self.graphs = Graphs(folder, starts, vocabulary_size=len(words), threads=args.threads)
            self.step(4)()  # loads the graphs

    def step(self, length: int) -> Step:
        """A step that generates ``length`` tokens for each hypothesis, the last one EOS."""
        from fairseq_luna.deployed.onnx_beam_search import beam_search

        limits = {"longest": length - 1, "shortest": length - 1}

        def translate() -> None:
            found = beam_search(self.graphs, self.source, beam=self.args.beam, lenpen=1.0, **limits)
            check_length({len(hypothesis.tokens) for some in found for hypothesis in some}, length)

        return translate


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(name) for name in modules)


SYSTEMS: dict[str, type[CTranslate2] | type[Deployed]] = {}
if _installed("ctranslate2"):
    SYSTEMS |= dict.fromkeys(("ctranslate2-float32", "ctranslate2-int8"), CTranslate2)
if _installed("onnxruntime", "onnxscript"):
    names = systems.SYSTEMS | systems.VARIANTS
    exported = [name for name in names if name != "transformer" and not name.endswith(tuple(systems.WAYS))]
    SYSTEMS |= dict.fromkeys([f"{name}-deployed{kind}" for name in exported for kind in ("", "-int8")], Deployed)
