"""Exported models in onnxruntime, where its exporter is installed."""

import importlib.util
import tempfile
from argparse import Namespace
from pathlib import Path

from .command import Row
from .models import SYSTEMS as MODELS
from .models import VARIANTS, build, source
from .timing import Step

KINDS = {"-deployed": False, "-deployed-int8": True}
EXPORTED = [name for name in (*MODELS, *VARIANTS) if name != "transformer"]
INSTALLED = all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnxscript"))
SYSTEMS = tuple(name + kind for name in EXPORTED for kind in KINDS) if INSTALLED else ()


class Deployed:
    """A model exported for ``fairseq_luna.deployed``, and its beam search.

    Args:
        system: one of ``SYSTEMS``.
        args: those of ``generate``.
    """

    def __init__(self, system: str, args: Namespace) -> None:
        from fairseq_luna.commands.exporting.folder import write_folder
        from fairseq_luna.deployed.folder import settings_of
        from fairseq_luna.deployed.graphs import Graphs

        self.args = args
        self.history: list[Row] = []  # nothing is recorded besides the time
        name, _, kind = system.rpartition("-deployed")
        longest = max(*args.lengths, args.source_length) + 1
        model, task, cfg = build(Namespace(device="cpu", dtype="float32"), name, args.sizes, longest)
        model.eval()
        model.prepare_for_inference_(cfg)
        words = task.target_dictionary
        made = Namespace(
            task=task,
            models=[model],
            src_dict=words,
            tgt_dict=words,
            bpe=None,
            tokenizer=None,
            max_positions=model.max_positions(),
        )
        self.source = source(args.sentences, args.source_length, args.sizes, "cpu").numpy()
        with tempfile.TemporaryDirectory() as folder:
            write_folder(made, Path(folder), int8=KINDS["-deployed" + kind])
            starts = settings_of(Path(folder)).starts
            self.graphs = Graphs(Path(folder), starts, words=len(words), threads=args.threads)
            self.step(4)()  # loads the graphs

    def step(self, length: int) -> Step:
        """A step that generates ``length`` tokens for each hypothesis, the last one EOS."""
        from fairseq_luna.deployed.search import beam_search

        def translate() -> None:
            found = beam_search(
                self.graphs, self.source, beam=self.args.beam, lenpen=1.0, longest=length - 1, shortest=length - 1
            )
            if {len(hypothesis.words) for some in found for hypothesis in some} != {length}:
                raise RuntimeError(f"a hypothesis does not have {length} tokens")

        return translate
