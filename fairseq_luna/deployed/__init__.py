"""Translate on a CPU with an exported model: onnxruntime, numpy and sentencepiece, without torch and fairseq.

    from fairseq_luna.deployed import Translator
    Translator("exported").translate(["Two dogs run."])

``fairseq-luna export`` makes such a folder. ``python -m fairseq_luna.deployed exported`` translates lines of text.
"""

from .translator import Translation, Translator

__all__ = ["Translation", "Translator"]
